"""Rules for aggregate functions."""

from __future__ import annotations

from typing import Any

import ibis.common.exceptions as com
import ibis.expr.operations as ops
import sqlglot as sg
import sqlglot.expressions as sge


class Aggregates:
    """Rules for aggregate functions, as a part of the compiler."""

    __slots__ = ()

    f: Any
    agg: Any

    def visit_CountDistinctStar(self, op: Any, *, arg: Any, where: Any) -> Any:
        # A struct stands for the row. It is never NULL, so rows with NULL count.
        columns = [sg.column(name, table=arg.alias_or_name, quoted=True) for name in op.arg.schema]
        row = self.f.anon.struct(*columns)
        return self.agg.count(sge.Distinct(expressions=[row]), where=where)

    def visit_Median(self, op: Any, *, arg: Any, where: Any) -> Any:
        _check_number(op)
        return self.agg.median(arg, where=where)

    def visit_Quantile(self, op: Any, *, arg: Any, quantile: Any, where: Any) -> Any:
        _check_number(op)
        return self._within_group("percentile_cont", quantile, arg, where)

    def visit_MultiQuantile(self, op: Any, *, arg: Any, quantile: Any, where: Any) -> Any:
        _check_number(op)
        shares = _constants(op.quantile)
        return self.f.anon.make_array(*(self._within_group("percentile_cont", share, arg, where) for share in shares))

    def visit_ApproxQuantile(self, op: Any, *, arg: Any, quantile: Any, where: Any) -> Any:
        return self._within_group("approx_percentile_cont", quantile, arg, where)

    def visit_ApproxMultiQuantile(self, op: Any, *, arg: Any, quantile: Any, where: Any) -> Any:
        shares = _constants(op.quantile)
        parts = (self._within_group("approx_percentile_cont", share, arg, where) for share in shares)
        return self.f.anon.make_array(*parts)

    def _within_group(self, function: str, share: Any, arg: Any, where: Any) -> Any:
        order = sge.Order(expressions=[sge.Ordered(this=arg, nulls_first=False)])
        called = sge.WithinGroup(this=self.f.anon[function](share), expression=order)
        return _filtered(called, where)

    def visit_ArgMin(self, op: Any, *, arg: Any, key: Any, where: Any) -> Any:
        return self._value_at(arg, key, where, descending=False)

    def visit_ArgMax(self, op: Any, *, arg: Any, key: Any, where: Any) -> Any:
        return self._value_at(arg, key, where, descending=True)

    def _value_at(self, arg: Any, key: Any, where: Any, descending: bool) -> Any:
        """Returns the first value by the order of a key that is not NULL. The value may be NULL."""
        known = sg.and_(_is_not_null(key), *(() if where is None else (where,)))
        order = [sge.Ordered(this=key, desc=descending, nulls_first=False)]
        return self.agg.first_value(arg, where=known, order_by=order)

    def visit_ArrayCollect(
        self, op: Any, *, arg: Any, where: Any, order_by: Any, include_null: bool, distinct: bool
    ) -> Any:
        if not include_null:
            where = _is_not_null(arg) if where is None else sg.and_(_is_not_null(arg), where)
        if distinct:
            arg = sge.Distinct(expressions=[arg])
        return self.agg.array_agg(arg, where=where, order_by=order_by)

    def visit_GroupConcat(self, op: Any, *, arg: Any, sep: Any, where: Any, order_by: Any) -> Any:
        if order_by:
            # The order belongs to the whole call, after its last argument.
            sep = sge.Order(this=sep, expressions=order_by)
        return _filtered(self.f.anon.string_agg(arg, sep), where)


def _is_not_null(arg: Any) -> Any:
    return sge.Not(this=sge.Is(this=arg, expression=sge.Null()))


def _check_number(op: Any) -> None:
    if not op.arg.dtype.is_numeric():
        raise com.UnsupportedOperationError(f"Volary computes quantiles of numbers only, not of {op.arg.dtype}")


def _filtered(call: Any, where: Any) -> Any:
    return call if where is None else sge.Filter(this=call, expression=sge.Where(this=where))


def _constants(values: Any) -> Any:
    if not isinstance(values, ops.Literal):
        raise com.UnsupportedOperationError("quantiles must be constants")
    return [sge.convert(float(value)) for value in values.value]


UNSUPPORTED = (ops.Kurtosis, ops.Mode)
