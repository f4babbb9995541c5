"""Tests the comparison that other tests use to check queries. No server is needed."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from reference import assert_same_rows, classic, classic_type, ordered_by

SCHEMA = pa.schema([("name", pa.string()), ("share", pa.float64())])


def table(*rows: tuple[str | None, float | None]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)), schema=SCHEMA)


def test_rows_are_a_bag():
    assert_same_rows(table(("b", 1.0), ("a", None), ("a", 2.0)), table(("a", 2.0), ("b", 1.0), ("a", None)))
    with pytest.raises(AssertionError, match="1 of 2 rows differ as a bag"):
        assert_same_rows(table(("a", 1.0), ("a", 1.0)), table(("a", 1.0), ("b", 1.0)))
    with pytest.raises(AssertionError, match="1 rows instead of 2"):
        assert_same_rows(table(("a", 1.0)), table(("a", 1.0), ("a", 1.0)))


def test_floats_are_equal_to_nine_digits():
    assert_same_rows(table(("a", 1.0 + 1e-12), ("b", math.nan)), table(("a", 1.0), ("b", math.nan)))
    with pytest.raises(AssertionError, match="differ"):
        assert_same_rows(table(("a", 1.0 + 1e-8)), table(("a", 1.0)))


def test_a_last_digit_does_not_pair_other_rows():
    assert_same_rows(table(("b", 1.0), ("a", 1.0 + 1e-15)), table(("b", 1.0 + 1e-15), ("a", 1.0)))


def test_an_order_is_checked_only_in_the_columns_it_names():
    one, two = table(("a", 1.0), ("b", 1.0)), table(("b", 1.0), ("a", 1.0))
    assert_same_rows(one, two, ordered_by=["share"])
    with pytest.raises(AssertionError, match="in the order of"):
        assert_same_rows(one, two, ordered_by=["share", "name"])


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT name FROM t", []),
        ("SELECT name FROM t ORDER BY name", ["name"]),
        ("SELECT name, share FROM t\norder by share DESC,\n    t.name\nLIMIT 10;\n", ["share", "name"]),
        ("SELECT name, row_number() OVER (ORDER BY share) FROM t", []),
        ("SELECT name FROM t ORDER BY hidden, name", []),
        ("SELECT name FROM t ORDER BY name -- ORDER BY share", ["name"]),
    ],
)
def test_the_order_is_read_from_the_query(query, keys):
    assert ordered_by(query, SCHEMA) == keys


def test_types_are_compared_as_clients_are_sent_them():
    native = pa.table(
        [["x"], [7], [Decimal("1.5")]],
        schema=pa.schema([("s", pa.string_view()), ("n", pa.uint64()), ("d", pa.decimal128(3, 1))]),
    )
    sent = native.cast(classic(native.schema))
    assert sent.schema.types == [pa.string(), pa.decimal128(20, 0), pa.decimal128(3, 1)]
    assert_same_rows(sent, native)
    with pytest.raises(AssertionError):
        assert_same_rows(native, native)


@pytest.mark.parametrize(
    ("native", "sent"),
    [
        (pa.large_string(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.dictionary(pa.int32(), pa.string_view()), pa.string()),
        (pa.list_view(pa.uint8()), pa.list_(pa.int16())),
        (pa.struct([("a", pa.string_view())]), pa.struct([("a", pa.string())])),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.float16(), pa.float32()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    ],
)
def test_every_unusual_type_has_a_classic_one(native, sent):
    assert classic_type(native) == sent
