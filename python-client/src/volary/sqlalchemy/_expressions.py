"""Expressions that mean the same to Volary as others do elsewhere."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, ColumnClause, cast, literal_column
from sqlalchemy import types as sqltypes
from sqlalchemy.exc import CompileError
from sqlalchemy.sql.elements import ExpressionClauseList

from ._types import EPOCH, Span


def is_parameter(element: Any) -> bool:
    """Whether it is a parameter whose type is known here."""
    return isinstance(element, BindParameter) and not element.type._isnull


def has_only_parameters(element: Any) -> bool:
    """Whether it is a parameter, or a list of them."""
    if isinstance(element, ExpressionClauseList):
        return all(is_parameter(clause) for clause in element.clauses)
    return is_parameter(element)


def typed(parameter: Any) -> Any:
    """A parameter whose type the statement says: among other parameters it has none, and the statement is refused."""
    kind = parameter.type
    if kind._type_affinity is sqltypes.Integer:
        kind = sqltypes.BigInteger()
    return cast(parameter, kind)


def with_backslashes(pattern: str, escape: str) -> str:
    """A pattern of LIKE with another escape character as the same one with backslashes: others are not taken.

    What is escaped gets a mark in front, and so do backslashes, which stand for themselves in such a pattern. Then
    marks become backslashes, which the replacement of an expression cannot have. The mark is no character, and so in
    no text. Of a constant pattern the planner does all that once.
    """
    if len(escape) != 1:
        raise CompileError(f"the escape character of LIKE is one character, not {escape!r}")
    mark = "chr(65535)"
    escaped = rf"(?s)\x{{{ord(escape):X}}}(.)|(\\)"
    return rf"replace(regexp_replace({pattern}, '{escaped}', {mark} || '\1\2', 'g'), {mark}, '\')"


def with_lengths(binary: Any) -> Any:
    """A sum or difference whose intervals are such, as parameters and columns of them are times (see `Interval`)."""
    left, right = binary.left, binary.right
    if not (is_interval(left) or is_interval(right)):
        return binary
    binary = binary._clone()
    binary.left = _time(left) if is_interval(right) else length(left)
    binary.right = length(right) if is_interval(right) else _time(right)
    return binary


def is_interval(element: Any) -> bool:
    """Whether SQLAlchemy takes it for an interval."""
    return bool(element.type._type_affinity is sqltypes.Interval)


def length(element: Any) -> Any:
    """An interval as such: a parameter as a literal, and how long after the first second a column is."""
    if isinstance(element, BindParameter):
        return element._with_binary_element_type(Span()).render_literal_execute()
    if isinstance(element, ColumnClause):
        return element.op("-")(literal_column(f"TIMESTAMP(6) '{EPOCH}'")).self_group()
    return element


def _time(element: Any) -> Any:
    """What a length is added to. A day would leave out its hours."""
    if element.type._type_affinity is sqltypes.Date:
        return cast(element, sqltypes.DateTime())
    return typed(element) if is_parameter(element) else element
