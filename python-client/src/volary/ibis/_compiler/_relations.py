"""Rules for tables: joins, set operations, tables in memory, rows of lists."""

from __future__ import annotations

from typing import Any

import ibis
import ibis.common.exceptions as com
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import sqlglot as sg
import sqlglot.expressions as sge
from ibis.backends.sql.compilers.base import SQLGlotCompiler
from ibis.util import gen_name

from .. import _memtables

_STAR = sge.Star()
_JOINS = ("inner", "left", "right", "outer", "semi", "anti", "cross")


class Relations:
    """Rules for tables, as a part of the compiler."""

    __slots__ = ()

    f: Any
    cast: Any
    if_: Any
    quoted: bool
    visit_Literal: Any

    def visit_Aggregate(self, op: Any, *, parent: Any, groups: Any, metrics: Any) -> Any:
        # Ibis' compiler for DataFusion computes the keys in a query of their own. Volary needs no such query.
        return SQLGlotCompiler.visit_Aggregate(self, op, parent=parent, groups=groups, metrics=metrics)

    def visit_JoinLink(self, op: Any, *, how: str, table: Any, predicates: Any) -> Any:
        if how not in _JOINS:
            raise com.UnsupportedOperationError(f"Volary has no {how} joins; it has {', '.join(_JOINS)}")
        return SQLGlotCompiler.visit_JoinLink(self, op, how=how, table=table, predicates=predicates)

    def visit_Intersection(self, op: Any, *, left: Any, right: Any, distinct: bool) -> Any:
        _refuse_all("INTERSECT", distinct)
        return SQLGlotCompiler.visit_Intersection(self, op, left=left, right=right, distinct=distinct)

    def visit_Difference(self, op: Any, *, left: Any, right: Any, distinct: bool) -> Any:
        _refuse_all("EXCEPT", distinct)
        return SQLGlotCompiler.visit_Difference(self, op, left=left, right=right, distinct=distinct)

    def visit_Limit(self, op: Any, *, parent: Any, n: Any, offset: Any) -> Any:
        if not (n is None or isinstance(n, int)) or not isinstance(offset, int):
            raise com.UnsupportedOperationError("limits and offsets must be constants")
        return SQLGlotCompiler.visit_Limit(self, op, parent=parent, n=n, offset=offset)

    def visit_TableUnnest(
        self, op: Any, *, parent: Any, column: Any, column_name: str, offset: str | None, keep_empty: bool
    ) -> Any:
        length = self.cast(self.f.anon.array_length(column), dt.int64)
        positions = self.f.anon.range(0, length)
        if keep_empty:
            # A list of one NULL stands for an empty list, because unnest leaves out rows of empty lists.
            nothing = self.f.coalesce(length, 0).eq(0)
            column = self.if_(nothing, self.cast(sge.Array(expressions=[sge.Null()]), op.column.dtype), column)
            nowhere = self.cast(sge.Array(expressions=[sge.Null()]), dt.Array(dt.int64))
            positions = self.if_(nothing, nowhere, positions)
        values = {column_name: sge.Explode(this=column)}
        if offset is not None:
            values[offset] = sge.Explode(this=positions)
        alias = parent.alias_or_name
        columns = {name: sg.column(name, table=alias, quoted=self.quoted) for name in op.parent.schema}
        selected = (value.as_(name, quoted=self.quoted) for name, value in {**columns, **values}.items())
        return sg.select(*selected).from_(parent)

    def visit_InMemoryTable(self, op: Any, *, name: str, schema: Any, data: Any) -> Any:
        """Writes the rows of a small table into the statement. The backend sends those of a large one beforehand."""
        if not _memtables.is_inlined(op):
            return sg.table(name, quoted=self.quoted)
        rows = _memtables.arrow_of(op).to_pylist()
        if not rows:
            empty = (self.cast(sge.Null(), dtype).as_(column, quoted=True) for column, dtype in schema.items())
            return sg.select(*empty).where(sge.false())
        tuples = [
            sge.Tuple(expressions=[self._value(row[column], dtype) for column, dtype in schema.items()]) for row in rows
        ]
        alias = sge.TableAlias(
            this=sg.to_identifier(gen_name("memtable"), quoted=True),
            columns=[sg.to_identifier(column, quoted=True) for column in schema],
        )
        return sg.select(_STAR).from_(sge.Values(expressions=tuples, alias=alias))

    def _value(self, value: Any, dtype: Any) -> Any:
        literal = ibis.literal(value, type=dtype.copy(nullable=True)).op()
        typed = self.visit_Literal(literal, value=literal.value, dtype=literal.dtype)
        # The columns of VALUES have the types of their literals, and those of numbers are always 64 bits wide.
        return self.cast(typed, dtype) if dtype.is_numeric() and value is not None else typed


def _refuse_all(operator: str, distinct: bool) -> None:
    if not distinct:
        raise com.UnsupportedOperationError(f"Volary has no {operator} ALL; say distinct=True")


UNSUPPORTED = (ops.Sample,)
