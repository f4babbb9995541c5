"""SQLAlchemy's compliance suite.

Tests are changed if they test something else but use a feature that Volary does not have.
"""

from __future__ import annotations

import decimal

from sqlalchemy import Column, Table, exc, select, testing, type_coerce
from sqlalchemy.testing import config, eq_, expect_raises_message
from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import ComponentReflectionTestExtra as _ComponentReflectionTestExtra
from sqlalchemy.testing.suite import InsertBehaviorTest as _InsertBehaviorTest
from sqlalchemy.testing.suite import IsolationLevelTest as _IsolationLevelTest
from sqlalchemy.testing.suite import JSONTest as _JSONTest
from sqlalchemy.testing.suite import LongNameBlowoutTest as _LongNameBlowoutTest
from sqlalchemy.testing.suite import NumericTest as _NumericTest
from sqlalchemy.testing.suite import PercentSchemaNamesTest as _PercentSchemaNamesTest
from sqlalchemy.testing.suite import TrueDivTest as _TrueDivTest
from sqlalchemy.testing.suite import WindowFunctionTest as _WindowFunctionTest


class ComponentReflectionTestExtra(_ComponentReflectionTestExtra):
    """Leaves out the test of lengths, because text has no maximum length."""

    test_string_length_reflection = None


class InsertBehaviorTest(_InsertBehaviorTest):
    """Leaves out the tests that expect the server to generate keys."""

    test_insert_from_select_autoinc = None
    test_insert_from_select_autoinc_no_rows = None


class IsolationLevelTest(_IsolationLevelTest):
    """Leaves out the test that changes the isolation level, because there is only one level."""

    test_dialect_user_setting_is_restored = None


class JSONTest(_JSONTest):
    """Leaves out the tests that look into JSON values in SQL, because JSON is text."""

    test_index_cross_casts = None


class LongNameBlowoutTest(_LongNameBlowoutTest):
    """Leaves out the names of indexes, because there are no indexes."""

    def ix(self, metadata, connection):
        config.skip_test("there are no indexes")


class NumericTest(_NumericTest):
    """The fixture creates the table again where the original deletes its rows."""

    @testing.fixture
    def do_numeric_test(self, metadata, connection):
        def run(kind, given, expected, filter_=None, check_scale=False):
            table = Table("t", metadata, Column("x", kind))
            table.create(connection)
            connection.execute(table.insert(), [{"x": x} for x in given])
            found = {row[0] for row in connection.execute(table.select())}
            expected = set(expected)
            if filter_:
                found = {filter_(x) for x in found}
                expected = {filter_(x) for x in expected}
            eq_(found, expected)
            if check_scale:
                eq_({str(x) for x in found}, {str(x) for x in expected})

            table.drop(connection)
            table.create(connection)
            number = decimal.Decimal if kind.asdecimal else float
            value, added = number("2.9"), number("37.12")
            connection.execute(table.insert(), {"x": value})
            sum_ = connection.scalar(select(type_coerce(table.c.x + added, kind)))
            eq_(round(sum_, 3), round(value + added, 3))

        return run


class PercentSchemaNamesTest(_PercentSchemaNamesTest):
    """The tests end with an UPDATE, which Volary does not support, so they expect an error there."""

    def _assert_table(self, conn):
        with expect_raises_message(exc.ProgrammingError, "Update is not supported"):
            super()._assert_table(conn)


class TrueDivTest(_TrueDivTest):
    """Leaves out divisions whose intermediate results need more than 38 digits, because the server refuses them."""

    @testing.fixture(autouse=True)
    def _skip_wide_decimals(self, request):
        if any(name in request.node.name for name in ("numeric_many_decimals", "numeric_38_digit_divisor")):
            config.skip_test("the division needs more than 38 digits on the way")


class WindowFunctionTest(_WindowFunctionTest):
    """The tests of RANGE get their rows sorted, because the rows of a query without ORDER BY come in any order."""

    def test_window_range(self, connection):
        super().test_window_range(_Sorted(connection))

    def test_window_range_numeric(self, connection):
        super().test_window_range_numeric(_Sorted(connection))


class _Sorted:
    """A connection whose results are sorted."""

    def __init__(self, connection):
        self._connection = connection
        self._rows = []

    def execute(self, statement):
        self._rows = sorted(self._connection.execute(statement))
        return self

    def all(self):
        return self._rows
