"""Rules for lists, structs and maps."""

from __future__ import annotations

from functools import reduce
from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import sqlglot.expressions as sge

_NULL = sge.Null()


class Lists:
    """Rules for lists, structs and maps, as a part of the compiler."""

    __slots__ = ()

    f: Any
    cast: Any
    if_: Any

    def visit_ArrayLength(self, op: Any, *, arg: Any) -> Any:
        return self._length(arg)

    def _length(self, arg: Any) -> Any:
        return self.cast(self.f.anon.array_length(arg), dt.int64)

    def visit_ArrayIndex(self, op: Any, *, arg: Any, index: Any) -> Any:
        index = sge.paren(index)
        return self.f.anon.array_element(arg, self.if_(index >= 0, index + 1, index))

    def visit_ArraySlice(self, op: Any, *, arg: Any, start: Any, stop: Any) -> Any:
        length = self._length(arg)
        begin = self._position(start, length) if start is not None else sge.convert(0)
        end = self._position(stop, length) if stop is not None else length
        return self.f.anon.array_slice(arg, begin + 1, end)

    def _position(self, index: Any, length: Any) -> Any:
        """Returns an index from the start of the list, for one that may count from its end."""
        index = sge.paren(index)
        return self.if_(index < 0, self.f.greatest(length + index, 0), index)

    def visit_ArrayContains(self, op: Any, *, arg: Any, other: Any) -> Any:
        return self.f.anon.array_has(arg, other)

    def visit_ArrayPosition(self, op: Any, *, arg: Any, other: Any) -> Any:
        position = self.cast(self.f.anon.array_position(arg, other), dt.int64)
        return self.if_(sge.Is(this=arg, expression=_NULL), _NULL, self.f.coalesce(position, 0))

    def visit_FindInSet(self, op: Any, *, needle: Any, values: Any) -> Any:
        position = self.cast(self.f.anon.array_position(self.f.anon.make_array(*values), needle), dt.int64)
        return self.f.coalesce(position, 0)

    def visit_ArraySort(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.array_sort(arg, "ASC", "NULLS LAST")

    def visit_ArrayMin(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.array_min(arg)

    def visit_ArrayMax(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.array_max(arg)

    def visit_ArraySum(self, op: Any, *, arg: Any) -> Any:
        # The function adds doubles, so sums of integers are exact up to 2^53.
        return self.cast(self.f.anon.array_sum(arg), op.dtype)

    def visit_ArrayMean(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.array_avg(arg)

    def visit_ArrayRepeat(self, op: Any, *, arg: Any, times: Any) -> Any:
        return self.f.anon.flatten(self.f.anon.array_repeat(arg, self.f.greatest(times, 0)))

    def visit_ArrayConcat(self, op: Any, *, arg: Any) -> Any:
        def concat(left: Any, right: Any) -> Any:
            is_null = sge.Or(this=sge.Is(this=left, expression=_NULL), expression=sge.Is(this=right, expression=_NULL))
            return self.if_(is_null, _NULL, self.f.anon.array_concat(left, right))

        return reduce(concat, arg)

    def visit_ArrayStringJoin(self, op: Any, *, arg: Any, sep: Any) -> Any:
        return self.f.anon.array_to_string(arg, sep)

    def visit_ArrayFlatten(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.flatten(arg)

    def visit_IntegerRange(self, op: Any, *, start: Any, stop: Any, step: Any) -> Any:
        # A step of 0 is an error in SQL, and gives an empty list in Ibis.
        numbers = self.f.anon.range(start, stop, self.f.nullif(step, 0))
        return self.if_(sge.paren(step).eq(0), self.cast(sge.Array(expressions=[]), op.dtype), numbers)

    def visit_TimestampRange(self, op: Any, *, start: Any, stop: Any, step: Any) -> Any:
        step_of = op.step.arg if isinstance(op.step, ops.Negate) else op.step
        if isinstance(step_of, ops.Literal) and not step_of.value:
            return self.cast(sge.Array(expressions=[]), op.dtype)
        return self.cast(self.f.anon.range(start, stop, step), op.dtype)

    def visit_Unnest(self, op: Any, *, arg: Any) -> Any:
        return sge.Explode(this=arg)

    def visit_StructColumn(self, op: Any, *, names: Any, values: Any) -> Any:
        fields = zip(map(sge.convert, names), values, strict=True)
        return self.f.anon.named_struct(*(part for field in fields for part in field))

    def visit_StructField(self, op: Any, *, arg: Any, field: Any) -> Any:
        return self.f.anon.get_field(arg, field)

    def visit_Map(self, op: Any, *, keys: Any, values: Any) -> Any:
        if not (op.keys.dtype.nullable or op.values.dtype.nullable):
            return self.f.anon.map(keys, values)
        # The function would refuse NULL, because it is no list of the same length.
        known = sge.And(this=_is_not_null(keys), expression=_is_not_null(values))
        return self.if_(known, self.f.anon.map(keys, values), _NULL)

    def visit_MapGet(self, op: Any, *, arg: Any, key: Any, default: Any) -> Any:
        if op.dtype.is_null():
            return _NULL
        found = self.f.anon.array_element(self.f.anon.map_extract(arg, key), 1)
        if op.default.dtype.is_null():
            return found
        has_key = self.f.anon.array_has(self.f.anon.map_keys(arg), key)
        return self.if_(has_key, found, default)

    def visit_MapLength(self, op: Any, *, arg: Any) -> Any:
        return self._length(self.f.anon.map_keys(arg))


def _is_not_null(arg: Any) -> Any:
    return sge.Not(this=sge.Is(this=arg, expression=_NULL))


UNSUPPORTED = (
    ops.ArrayFilter,  # there are no lambdas
    ops.ArrayMap,
    ops.ArrayMode,
    ops.ArrayZip,  # the fields of its structs could not be renamed
    ops.MapMerge,
)
