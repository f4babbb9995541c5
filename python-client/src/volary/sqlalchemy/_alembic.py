"""Runs Alembic's migrations.

`_dialect` imports this module when Alembic is in use. Importing it makes the dialect known to Alembic.
"""

from __future__ import annotations

from typing import Any, NoReturn

from alembic.ddl.impl import DefaultImpl
from alembic.util import CommandError
from sqlalchemy import Column, MetaData, Table, case, not_, select, text
from sqlalchemy import types as sqltypes
from sqlalchemy.schema import DropColumnComment, SetColumnComment
from sqlalchemy.sql.expression import Delete, Update


class VolaryImpl(DefaultImpl):
    """How Alembic migrates Volary.

    Tables, views, constraints, defaults and comments can be created, changed and dropped. The columns of a table cannot
    be changed.
    """

    __dialect__ = "volary"
    transactional_ddl = False
    _version_table: Any = None

    def version_table_impl(self, **kw: Any) -> Any:
        """Returns the table of versions. It has one row at most times, so one shard is enough."""
        table = super().version_table_impl(**kw)
        table.dialect_options["volary"]["shards"] = 1
        self._version_table = table
        return table

    def _exec(self, construct: Any, *args: Any, **kw: Any) -> Any:
        # Alembic changes its table of versions with UPDATE and DELETE, which Volary lacks. Replacing the table is one
        # step, too: it has the old rows or the new ones.
        if isinstance(construct, Update | Delete) and construct.table is self._version_table:
            construct = self._replacement(construct)
        return super()._exec(construct, *args, **kw)

    def _replacement(self, change: Any) -> Any:
        table = change.table
        if change.is_update:
            values = {getattr(column, "name", column): value for column, value in change._values.items()}
            columns = [
                case((change.whereclause, values[column.name]), else_=column).label(column.name)
                if column.name in values
                else column
                for column in table.columns
            ]
            rows = select(*columns)
        else:
            rows = select(*table.columns).where(not_(change.whereclause))
        query = rows.compile(dialect=self.dialect, compile_kwargs={"literal_binds": True})
        name = self.dialect.identifier_preparer.format_table(table)
        return text(f"CREATE OR REPLACE TABLE {name} WITH (shards = 1) AS {query}".replace(":", "\\:"))

    def alter_column(
        self,
        table_name: str,
        column_name: str,
        *,
        nullable: bool | None = None,
        server_default: Any = False,
        name: str | None = None,
        type_: Any = None,
        schema: str | None = None,
        comment: Any = False,
        **kw: Any,
    ) -> None:
        """Changes the default and the comment of a column. Refuses everything else."""
        refused = {"nullable": nullable, "new_column_name": name, "type_": type_}
        if given := [argument for argument, value in refused.items() if value is not None]:
            _refuse(f"alter_column({table_name!r}, {column_name!r}, {given[0]}=…)")
        if server_default is not False:
            super().alter_column(table_name, column_name, server_default=server_default, schema=schema, **kw)
        if comment is not False:
            column = Column(column_name, sqltypes.NullType(), comment=comment)
            Table(table_name, MetaData(), column, schema=schema)
            self._exec(DropColumnComment(column) if comment is None else SetColumnComment(column))

    def add_column(self, table_name: str, column: Any, **kw: Any) -> None:
        """Refuses to add a column."""
        _refuse(f"add_column({table_name!r}, {column.name!r})")

    def drop_column(self, table_name: str, column: Any, **kw: Any) -> None:
        """Refuses to drop a column."""
        _refuse(f"drop_column({table_name!r}, {column.name!r})")

    def rename_table(self, old_table_name: str, new_table_name: Any, schema: Any = None) -> None:
        """Refuses to rename a table."""
        _refuse(f"rename_table({old_table_name!r}, {str(new_table_name)!r})")

    def compare_server_default(
        self,
        inspector_column: Any,
        metadata_column: Any,
        rendered_metadata_default: Any,
        rendered_inspector_default: Any,
    ) -> bool:
        """Returns whether the default of a column in the database is another one than that of the model."""
        compiler: Any = self.dialect.ddl_compiler(self.dialect, None)  # type: ignore[arg-type]
        return _normal(compiler.get_column_default_string(metadata_column)) != _normal(rendered_inspector_default)

    def correct_for_autogen_constraints(
        self, conn_uniques: Any, conn_indexes: Any, metadata_unique_constraints: Any, metadata_indexes: Any
    ) -> None:
        """Leaves indexes out of comparisons, because the dialect creates none."""
        metadata_indexes.clear()


def _normal(expression: str | None) -> str | None:
    """Returns an expression without what the gateway may write in another way: white space and the case of words."""
    return None if expression is None else "".join(expression.split()).casefold()


def _refuse(what: str) -> NoReturn:
    raise CommandError(
        f"{what} is not possible: the columns and the name of a table cannot be changed. Replace the table in one step "
        'with op.execute("CREATE OR REPLACE TABLE … AS SELECT … FROM …"), which may read the old table'
    )
