"""Rules for literals, casts and numbers."""

from __future__ import annotations

import math
from typing import Any

import ibis.common.exceptions as com
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import sqlglot.expressions as sge
from ibis.backends.sql.compilers.base import SQLGlotCompiler


class Values:
    """Rules for literals, casts and numbers, as a part of the compiler."""

    __slots__ = ()

    f: Any
    if_: Any
    type_mapper: Any
    visit_Literal: Any
    visit_IntervalFromInteger: Any
    _interval: Any
    _timestamp: Any

    def cast(self, arg: Any, to: Any) -> Any:
        """Returns a cast. SQL cannot name the type of a map, so a NULL of that type is the missing branch of a CASE."""
        if to.is_map() and isinstance(arg, sge.Null):
            keys, values = (
                self.cast(sge.Array(expressions=[]), dt.Array(part)) for part in (to.key_type, to.value_type)
            )
            return self.if_(sge.false(), self.f.anon.map(keys, values))
        return SQLGlotCompiler.cast(self, arg, to)

    def visit_NonNullLiteral(self, op: Any, *, value: Any, dtype: Any) -> Any:
        if dtype.is_floating():
            if math.isnan(value) or math.isinf(value):
                name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
                return self.cast(name, dt.float64)
            return sge.convert(float(value))
        if dtype.is_decimal():
            if not value.is_finite():
                raise com.UnsupportedOperationError(f"Volary has no decimal {value}")
            return self.cast(format(value, "f"), _decimal_of(value, dtype))
        if dtype.is_interval():
            return self._interval(value, dtype.unit)
        if dtype.is_timestamp():
            text = value.isoformat()
            if getattr(value, "nanosecond", 0) and dtype.scale is None:
                dtype = dtype.copy(scale=9)
            return self._timestamp(text, dtype, dt.string)
        if dtype.is_date() or dtype.is_time():
            return self.cast(value.isoformat(), dtype)
        if dtype.is_binary():
            return sge.HexString(this=value.hex())
        if dtype.is_uuid() or dtype.is_inet() or dtype.is_macaddr() or dtype.is_json():
            return sge.convert(str(value))
        if dtype.is_struct():
            fields = [(name, self._literal(value[name], field)) for name, field in dtype.items()]
            return self.f.anon.named_struct(*(part for field in fields for part in field))
        if dtype.is_array() and not value and not dtype.value_type.is_null():
            return self.cast(sge.Array(expressions=[]), dtype)
        if dtype.is_map():
            keys = self._literal(tuple(value.keys()), dt.Array(dtype.key_type))
            values = self._literal(tuple(value.values()), dt.Array(dtype.value_type))
            return self.f.anon.map(keys, values)
        return None

    def _literal(self, value: Any, dtype: Any) -> Any:
        return self.visit_Literal(ops.Literal(value, dtype), value=value, dtype=dtype)

    def visit_Cast(self, op: Any, *, arg: Any, to: Any) -> Any:
        from_ = op.arg.dtype
        if from_.is_null():
            return self.cast(arg, to)
        if to.is_timestamp():
            return self._timestamp(arg, to, from_)
        if to.is_interval() and from_.is_integer():
            return self.visit_IntervalFromInteger(op, arg=arg, unit=to.unit)
        if to.is_interval() and from_.is_interval():
            return arg
        if from_.is_interval():
            raise com.UnsupportedOperationError(f"Volary cannot cast an interval to {to}")
        if from_.is_timestamp() and to.is_numeric():
            # The inverse of a cast from integers, which count seconds.
            return self.cast(self.f.anon.date_part("epoch", arg), to)
        if to.is_map() or (to.is_json() and from_.is_nested()):
            if _without_nullability(from_) == _without_nullability(to):
                return arg
            raise com.UnsupportedOperationError(f"Volary cannot cast {from_} to {to}")
        return self.cast(arg, to)

    def visit_TryCast(self, op: Any, *, arg: Any, to: Any) -> Any:
        if op.arg.dtype.is_timestamp() and to.is_numeric():
            return self.visit_Cast(op, arg=arg, to=to)
        if to.is_interval() or to.is_map() or (to.is_timestamp() and not op.arg.dtype.is_string()):
            raise com.UnsupportedOperationError(f"Volary cannot try to cast {op.arg.dtype} to {to}")
        return sge.TryCast(this=arg, to=self.type_mapper.from_ibis(to), safe=True)

    def visit_Divide(self, op: Any, *, left: Any, right: Any) -> Any:
        if op.left.dtype.is_integer() and op.right.dtype.is_integer():
            left = self.cast(left, dt.float64)
        # It is said to be typed, so that sqlglot adds no casts of its own.
        return sge.Div(this=sge.paren(left), expression=sge.paren(right), typed=True)

    def visit_FloorDivide(self, op: Any, *, left: Any, right: Any) -> Any:
        return self.cast(self.f.floor(self.visit_Divide(op, left=left, right=right)), op.dtype)

    def visit_TypeOf(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.arrow_typeof(arg)

    def visit_IsNan(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.isnan(arg)

    def visit_IsInf(self, op: Any, *, arg: Any) -> Any:
        return self.f.abs(arg).eq(self.cast("Infinity", dt.float64))

    def visit_Sign(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.signum(arg)

    def visit_Log(self, op: Any, *, arg: Any, base: Any) -> Any:
        return self.f.anon.ln(arg) if base is None else self.f.anon.log(base, arg)

    def visit_Log2(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.log2(arg)

    def visit_Log10(self, op: Any, *, arg: Any) -> Any:
        return self.f.anon.log10(arg)

    def visit_Round(self, op: Any, *, arg: Any, digits: Any) -> Any:
        return self.cast(self.f.anon.round(arg, *(() if digits is None else (digits,))), op.dtype)

    def visit_BitwiseNot(self, op: Any, *, arg: Any) -> Any:
        # There is no operator ~. All bits of -1 are set.
        return sge.BitwiseXor(this=sge.paren(arg), expression=sge.paren(sge.convert(-1)))

    def visit_RandomScalar(self, op: Any, **_: Any) -> Any:
        return self.f.anon.random()

    def visit_RandomUUID(self, op: Any, **_: Any) -> Any:
        return self.f.anon.uuid()


def _without_nullability(dtype: Any) -> str:
    return str(dtype).replace("!", "")


def _decimal_of(value: Any, dtype: Any) -> Any:
    """Returns a type that holds the decimal exactly, for a literal without a precision."""
    if dtype.precision is not None and dtype.scale is not None:
        return dtype
    scale = max(0, -value.as_tuple().exponent)
    digits = max(len(value.as_tuple().digits), scale + 1)
    return dt.Decimal(max(digits + max(0, value.as_tuple().exponent), dtype.precision or 1), scale)


UNSUPPORTED = (ops.Hash, ops.RowID)
