"""Refuses inserts that need keys of the server."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import default
from sqlalchemy.exc import CompileError


class VolaryExecutionContext(default.DefaultExecutionContext):
    """The execution of a statement."""

    def get_insert_default(self, column: Any) -> Any:
        """Returns the default of a column that an INSERT leaves out. Raises `CompileError` if it is a key that other
        databases would generate.
        """
        if column.default is None and column is column.table._autoincrement_column:
            raise CompileError(
                f'the server generates no keys, so each row of table "{column.table.name}" needs a value for '
                f'"{column.name}": give it, or give the column a default in the client'
            )
        inherited: Any = super()
        return inherited.get_insert_default(column)
