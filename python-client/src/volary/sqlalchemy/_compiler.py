"""Compiles queries and INSERT to Volary's SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import cast
from sqlalchemy import types as sqltypes
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import compiler, operators

from ._expressions import (
    as_sql_interval,
    has_only_parameters,
    is_interval,
    is_parameter,
    typed,
    with_backslashes,
    with_sql_intervals,
)


class VolarySQLCompiler(compiler.SQLCompiler):
    """Compiles SELECT and INSERT."""

    def get_select_precolumns(self, select: Any, **kw: Any) -> str:
        if not select._distinct_on:
            inherited: Any = super()
            return str(inherited.get_select_precolumns(select, **kw))
        return f"DISTINCT ON ({', '.join(self.process(column, **kw) for column in select._distinct_on)}) "

    def limit_clause(self, select: Any, **kw: Any) -> str:
        text = ""
        if select._limit_clause is not None:
            text += "\n LIMIT " + self.process(select._limit_clause, **kw)
        if select._offset_clause is not None:
            text += "\n OFFSET " + self.process(select._offset_clause, **kw)
        return text

    def fetch_clause(
        self,
        select: Any,
        fetch_clause: Any = None,
        require_offset: bool = False,
        use_literal_execute_for_simple_int: bool = False,
        **kw: Any,
    ) -> str:
        """Writes FETCH FIRST as LIMIT."""
        if any(select._fetch_clause_options.values()):
            raise CompileError("FETCH takes neither PERCENT nor WITH TIES")
        text = "\n LIMIT " + self.process(select._fetch_clause, **kw)
        if select._offset_clause is not None:
            text += "\n OFFSET " + self.process(select._offset_clause, **kw)
        return text

    def visit_frame_clause(self, frameclause: Any, **kw: Any) -> str:
        """Writes the bounds of a window as literals, because parameters are not allowed there."""
        frame = frameclause._clone()
        for name in ("lower_bind", "upper_bind"):
            bind = getattr(frame, name)
            if bind is not None and is_interval(bind):
                setattr(frame, name, as_sql_interval(bind))
        inherited: Any = super()
        return str(inherited.visit_frame_clause(frame, literal_execute=True, **kw))

    def _format_frame_clause(self, range_: Any, **kw: Any) -> str:
        # SQLAlchemy 2.0 calls this method instead of `visit_frame_clause`.
        inherited: Any = super()
        return str(inherited._format_frame_clause(range_, literal_execute=True, **kw))

    def visit_binary(self, binary: Any, *args: Any, **kw: Any) -> str:
        if binary.operator in (operators.add, operators.sub):
            binary = with_sql_intervals(binary)
        if is_parameter(binary.left) and has_only_parameters(binary.right):
            binary = binary._clone()
            binary.left = typed(binary.left)
        inherited: Any = super()
        return str(inherited.visit_binary(binary, *args, **kw))

    def visit_expression_clauselist(self, clauselist: Any, **kw: Any) -> str:
        # The two bounds of BETWEEN (joined by AND) are compared with another expression and need no type.
        if clauselist.operator is not operators.and_ and has_only_parameters(clauselist):
            clauselist = clauselist._clone()
            clauselist.clauses = [typed(clauselist.clauses[0]), *clauselist.clauses[1:]]
        inherited: Any = super()
        return str(inherited.visit_expression_clauselist(clauselist, **kw))

    def visit_truediv_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Writes a division that keeps its fraction.

        An integer divided by an integer would be an integer. The dividend therefore becomes a decimal, and the result
        has 14 decimal places. If no type is known, the divisor is multiplied by a decimal. This makes integers
        decimals, while decimals and floats keep their types.
        """
        left, right = binary.left, binary.right
        if left.type._type_affinity is sqltypes.Integer and not isinstance(right.type, sqltypes.Float):
            left = cast(left, sqltypes.Numeric(29, 10))
        dividend, divisor = self.process(left, **kw), self.process(right, **kw)
        if left.type._isnull and right.type._type_affinity in (sqltypes.Integer, sqltypes.NullType):
            divisor = f"({divisor} * CAST(1 AS DECIMAL(1, 0)))"
        return f"{dividend} / {divisor}"

    def visit_bitwise_not_op_unary_operator(self, element: Any, operator: Any, **kw: Any) -> str:
        """Writes ~x as -x - 1, its value in two's complement. Volary does not know the operator ~."""
        return f"(-({self.process(element.element, **kw)}) - 1)"

    def visit_getitem_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"{self.process(binary.left, **kw)}[{self.process(binary.right, **kw)}]"

    def visit_slice(self, element: Any, **kw: Any) -> str:
        # The upper bound is part of the slice, as in PostgreSQL, and must be given.
        return f"{self.process(element.start, **kw)}:{self.process(element.stop, **kw)}"

    def visit_try_cast(self, cast: Any, **kw: Any) -> str:
        return f"TRY_CAST({self.process(cast.clause, **kw)} AS {self.process(cast.typeclause, **kw)})"

    def visit_json_getitem_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        raise CompileError("JSON is stored as text, so SQL cannot read its elements; read them in Python")

    visit_json_path_getitem_op_binary = visit_json_getitem_op_binary

    def visit_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._like(binary, "LIKE", **kw)

    def visit_not_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._like(binary, "NOT LIKE", **kw)

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._like(binary, "ILIKE", **kw)

    def visit_not_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._like(binary, "NOT ILIKE", **kw)

    def _like(self, binary: Any, operator: str, **kw: Any) -> str:
        left = binary.left._compiler_dispatch(self, **kw)
        pattern = binary.right._compiler_dispatch(self, **kw)
        escape = binary.modifiers.get("escape")
        if escape not in (None, "\\"):
            pattern = with_backslashes(pattern, escape)
        return f"{left} {operator} {pattern}"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._regexp(binary, "~", **kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._regexp(binary, "!~", **kw)

    def _regexp(self, binary: Any, operator: str, **kw: Any) -> str:
        flags = binary.modifiers["flags"]
        if flags not in (None, "i"):
            raise CompileError(f'regular expressions take the flag "i", not {flags!r}')
        return self._generate_generic_binary(binary, f" {operator}{'*' if flags else ''} ", **kw)

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        # Without "g", only the first match is replaced, as in PostgreSQL.
        flags = binary.modifiers["flags"]
        arguments = f"{self.process(binary.left, **kw)}, {self.process(binary.right, **kw)}"
        if flags is not None:
            arguments += f", {self.render_literal_value(flags, sqltypes.STRINGTYPE)}"
        return f"regexp_replace({arguments})"

    def visit_empty_set_expr(self, element_types: Any, **kw: Any) -> str:
        columns = ", ".join(
            f"CAST(NULL AS {self.dialect.type_compiler_instance.process(kind)})" if not kind._isnull else "NULL"
            for kind in element_types or [sqltypes.INTEGER()]
        )
        return f"SELECT {columns} WHERE 1 != 1"

    def visit_aggregate_strings_func(self, fn: Any, **kw: Any) -> str:
        return f"string_agg{self.function_argspec(fn)}"

    def visit_now_func(self, fn: Any, **kw: Any) -> str:
        return "now()"

    def visit_sequence(self, sequence: Any, **kw: Any) -> str:
        raise CompileError(f'there are no sequences, such as "{sequence.name}"; generate keys in the client')

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        # A query reads a snapshot, so its rows need no locks.
        return ""
