"""Runs migrations of Alembic. Each test has a directory of migrations and a schema of its own."""

from __future__ import annotations

import io
import itertools

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError

_numbers = itertools.count()

ENVIRONMENT = """
import sqlalchemy as sa
from alembic import context

url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True)
    context.run_migrations()
else:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
"""
BIRDS = """
op.create_table(
        "birds",
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.String, server_default="kea", comment="what it is"),
        sa.UniqueConstraint("kind", name="one_of_a_kind"),
        sa.CheckConstraint("id > 0", name="positive"),
        comment="what sings",
    )
"""
CHANGES = """
op.create_table("nests", sa.Column("bird", sa.BigInteger, sa.ForeignKey("birds.id", name="of_bird")))
    op.alter_column("birds", "kind", server_default="tui", comment="it's: a kind")
    op.create_check_constraint("few", "birds", "id < 1000")
    op.drop_constraint("one_of_a_kind", "birds")
    op.bulk_insert(sa.table("birds", sa.column("id", sa.BigInteger)), [{"id": 1}, {"id": 2}])
"""


class Migrations:
    """A directory of migrations of a schema."""

    def __init__(self, directory, url) -> None:
        self._directory = directory
        self.engine = sa.create_engine(url)
        (directory / "versions").mkdir()
        (directory / "env.py").write_text(ENVIRONMENT)
        self.output = io.StringIO()
        self.config = Config(output_buffer=self.output)
        self.config.set_main_option("script_location", str(directory))
        self.config.set_main_option("sqlalchemy.url", url)

    def add(self, name: str, after: str | tuple[str, ...] | None, upgrade: str, downgrade: str = "pass") -> None:
        script = f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {name!r}\ndown_revision = {after!r}\n"
        script += f"def upgrade():\n    {upgrade.strip()}\ndef downgrade():\n    {downgrade}\n"
        (self._directory / "versions" / f"{name}.py").write_text(script)

    def versions(self) -> list[str]:
        with self.engine.connect() as connection:
            return list(connection.scalars(sa.text("SELECT version_num FROM alembic_version ORDER BY version_num")))


@pytest.fixture
def migrations(cluster, tmp_path):
    place = f"migrated_{next(_numbers)}"
    with cluster.connect() as connection:
        connection.sql(f"CREATE SCHEMA {place}")
        migrations = Migrations(tmp_path, f"{cluster.uri.replace('grpc://', 'volary://')}?schema={place}")
        yield migrations
        migrations.engine.dispose()
        connection.sql(f"DROP SCHEMA {place} CASCADE")


def test_tables_with_keys_are_created_changed_and_dropped(migrations):
    migrations.add("first", None, BIRDS, 'op.drop_table("birds")')
    migrations.add("second", "first", CHANGES, 'op.drop_table("nests")')
    command.upgrade(migrations.config, "first")
    inspector = sa.inspect(migrations.engine)
    assert inspector.get_pk_constraint("birds")["constrained_columns"] == ["id"]
    assert [found["name"] for found in inspector.get_unique_constraints("birds")] == ["one_of_a_kind"]
    assert inspector.get_table_comment("birds") == {"text": "what sings"}
    assert migrations.versions() == ["first"]

    command.upgrade(migrations.config, "head")
    inspector = sa.inspect(migrations.engine)
    assert [found["name"] for found in inspector.get_check_constraints("birds")] == ["few", "positive"]
    assert inspector.get_unique_constraints("birds") == []
    assert [found["referred_table"] for found in inspector.get_foreign_keys("nests")] == ["birds"]
    kind = inspector.get_columns("birds")[1]
    assert (kind["default"], kind["comment"]) == ("'tui'", "it's: a kind")
    with migrations.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT * FROM birds ORDER BY id")).all() == [(1, "tui"), (2, "tui")]
    assert migrations.versions() == ["second"]

    command.downgrade(migrations.config, "first")
    assert migrations.versions() == ["first"]
    command.downgrade(migrations.config, "base")
    assert migrations.versions() == []
    assert sa.inspect(migrations.engine).get_table_names() == ["alembic_version"]


def test_branches_have_a_version_each_until_they_are_merged(migrations):
    migrations.add("root", None, "pass")
    migrations.add("left", "root", "pass")
    migrations.add("right", "root", "pass")
    command.upgrade(migrations.config, "heads")
    assert migrations.versions() == ["left", "right"]
    migrations.add("merged", ("left", "right"), "pass")
    command.upgrade(migrations.config, "head")
    assert migrations.versions() == ["merged"]


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ('op.add_column("birds", sa.Column("grams", sa.Float))', "add_column"),
        ('op.drop_column("birds", "kind")', "drop_column"),
        ('op.rename_table("birds", "songbirds")', "rename_table"),
        ('op.alter_column("birds", "kind", type_=sa.Text())', "type_"),
        ('op.alter_column("birds", "kind", nullable=False)', "nullable"),
        ('op.alter_column("birds", "kind", new_column_name="species")', "new_column_name"),
    ],
)
def test_what_is_not_possible_is_refused(migrations, operation, words):
    migrations.add("first", None, BIRDS)
    migrations.add("second", "first", operation)
    command.upgrade(migrations.config, "first")
    with pytest.raises(CommandError, match=f"{words}.*cannot be changed"):
        command.upgrade(migrations.config, "second")
    assert migrations.versions() == ["first"]
    assert [column["name"] for column in sa.inspect(migrations.engine).get_columns("birds")] == ["id", "kind"]


def test_scripts_are_written_without_a_connection(migrations):
    migrations.add("first", None, BIRDS)
    migrations.add("second", "first", CHANGES)
    command.upgrade(migrations.config, "head", sql=True)
    script = migrations.output.getvalue()
    for part in ("CREATE TABLE birds", "WITH (shard_key = 'id')", "COMMENT ON TABLE birds", "SET DEFAULT 'tui'"):
        assert part in script
    # What is written can be run.
    with migrations.engine.connect() as connection:
        for statement in script.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    assert migrations.versions() == ["second"]


def test_a_model_is_compared_with_what_is_there(migrations):
    metadata = sa.MetaData()
    sa.Table(
        "birds",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.String(20), server_default="kea", comment="what it is", index=True),
        sa.Column("grams", sa.Numeric(10, 2)),
        sa.UniqueConstraint("kind", name="one_of_a_kind"),
        sa.CheckConstraint("id > 0", name="positive"),
    )
    options = {"compare_type": True, "compare_server_default": True}
    with migrations.engine.connect() as connection:
        with pytest.warns(UserWarning, match="no indexes"):
            metadata.create_all(connection)
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
        metadata.tables["birds"].append_column(sa.Column("wingspan", sa.Float))
        sa.Table("nests", metadata, sa.Column("k", sa.BigInteger))
        changes = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    assert {change[0] for change in changes} == {"add_table", "add_column"}
