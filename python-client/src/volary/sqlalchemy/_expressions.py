"""Rewrites expressions that Volary would refuse or understand differently."""

from __future__ import annotations

from typing import Any

from sqlalchemy import cast, literal_column
from sqlalchemy import types as sqltypes
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import elements
from sqlalchemy.sql.elements import BindParameter, ColumnClause

from ._types import EPOCH, Span

# SQLAlchemy 1.4 has no lists of operands: it nests operators.
_OPERAND_LIST: Any = getattr(elements, "ExpressionClauseList", ())


def is_parameter(element: Any) -> bool:
    """Returns whether the element is a parameter whose type is known."""
    return isinstance(element, BindParameter) and not element.type._isnull


def has_only_parameters(element: Any) -> bool:
    """Returns whether the element is a parameter or a list of parameters."""
    if isinstance(element, _OPERAND_LIST):
        return all(is_parameter(clause) for clause in element.clauses)
    return is_parameter(element)


def typed(parameter: Any) -> Any:
    """Returns the parameter with its type in the SQL. The server refuses operations whose operands all lack a type."""
    kind = parameter.type
    if kind._type_affinity is sqltypes.Integer:
        kind = sqltypes.BigInteger()
    return cast(parameter, kind)


def with_backslashes(pattern: str, escape: str) -> str:
    """Rewrites a LIKE pattern with the escape character `escape` to one with backslashes, the only escape character of
    Volary.

    A mark replaces each escape character, and is put in front of each backslash, which stands for itself in the given
    pattern. Then the marks are replaced by backslashes, because the replacement text of `regexp_replace` cannot
    contain a backslash. The mark is a code point that is no character, so it occurs in no text. For a constant pattern,
    the planner does all this once.
    """
    if len(escape) != 1:
        raise CompileError(f"the escape of LIKE must be one character, not {escape!r}")
    mark = "chr(65535)"
    escaped = rf"(?s)\x{{{ord(escape):X}}}(.)|(\\)"
    return rf"replace(regexp_replace({pattern}, '{escaped}', {mark} || '\1\2', 'g'), {mark}, '\')"


def with_sql_intervals(binary: Any) -> Any:
    """Rewrites a sum or difference so that its intervals are SQL intervals.

    Otherwise, parameters and columns of intervals are times (see `Interval`).
    """
    left, right = binary.left, binary.right
    if not (is_interval(left) or is_interval(right)):
        return binary
    binary = binary._clone()
    binary.left = _time(left) if is_interval(right) else as_sql_interval(left)
    binary.right = as_sql_interval(right) if is_interval(right) else _time(right)
    return binary


def is_interval(element: Any) -> bool:
    """Returns whether SQLAlchemy treats the element as an interval."""
    return bool(element.type._type_affinity is sqltypes.Interval)


def as_sql_interval(element: Any) -> Any:
    """Returns the element as an SQL interval. A parameter becomes a literal. A column becomes its distance from the
    first second of 1970.
    """
    if isinstance(element, BindParameter):
        return element._with_binary_element_type(Span()).render_literal_execute()
    if isinstance(element, ColumnClause):
        return element.op("-")(literal_column(f"TIMESTAMP(6) '{EPOCH}'")).self_group()
    return element


def _time(element: Any) -> Any:
    """Returns the time that an interval is added to. A date is cast to a time, because a date would drop the hours of
    the interval.
    """
    if element.type._type_affinity is sqltypes.Date:
        return cast(element, sqltypes.DateTime())
    return typed(element) if is_parameter(element) else element
