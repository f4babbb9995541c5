"""Tests what the SQLAlchemy dialect declares, and what it reflects of it."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.schema import AddConstraint, CreateSchema, CreateTable, DropConstraint, DropSchema

from volary.sqlalchemy import STRUCT, TIME, TIMESTAMP

_numbers = itertools.count()


@pytest.fixture(scope="module")
def url(cluster):
    return cluster.uri.replace("grpc://", "volary://")


@pytest.fixture
def engine(url):
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def place(engine):
    """The name of a schema of the test's own."""
    name = f"reflected_{next(_numbers)}"
    with engine.connect() as connection:
        connection.execute(CreateSchema(name))
        yield name
        connection.execute(DropSchema(name, cascade=True))


@pytest.fixture
def statements(engine):
    """The statements that the engine has run."""
    run: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *of_call: run.append(of_call[2]))
    return run


def declared(place: str) -> sa.MetaData:
    """Returns two tables with everything that a table can declare."""
    metadata = sa.MetaData(schema=place)
    sa.Table(
        "sites",
        metadata,
        sa.Column("region", sa.String, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        comment="where it's nice: here",
    )
    sa.Table(
        "nests",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True, comment="a number"),
        sa.Column("region", sa.String),
        sa.Column("site", sa.BigInteger),
        sa.Column("eggs", sa.Integer, server_default="2", nullable=False),
        sa.Column("kind", sa.String, server_default=sa.text("upper('kea')")),
        sa.Column("parent", sa.ForeignKey(f"{place}.nests.id", ondelete="CASCADE")),
        sa.ForeignKeyConstraint(["region", "site"], [f"{place}.sites.region", f"{place}.sites.number"], name="at"),
        sa.UniqueConstraint("kind", "eggs", name="kind_and_eggs"),
        sa.CheckConstraint("eggs >= 0", name="some_eggs"),
        volary_shard_key="id",
        volary_shards=2,
    )
    return metadata


def what_is_reflected(metadata: sa.MetaData, name: str) -> dict[str, object]:
    table = metadata.tables[name]
    return {
        "columns": [(c.name, str(c.type), c.nullable, c.primary_key, c.comment) for c in table.columns],
        "defaults": {c.name: str(c.server_default.arg) for c in table.columns if c.server_default is not None},
        "primary key": (table.primary_key.name, table.primary_key.columns.keys()),
        "foreign keys": {
            (key.name, tuple(key.column_keys), tuple(e.target_fullname for e in key.elements), key.ondelete)
            for key in table.foreign_key_constraints
        },
        "unique": {(c.name, tuple(c.columns.keys())) for c in table.constraints if isinstance(c, sa.UniqueConstraint)},
        "checks": {(c.name, str(c.sqltext)) for c in table.constraints if isinstance(c, sa.CheckConstraint)},
        "comment": table.comment,
        "options": {name: value for name, value in table.dialect_options["volary"].items() if value is not None},
    }


def test_all_that_a_table_declares_is_reflected(engine, place, statements):
    declared(place).create_all(engine)
    statements.clear()
    reflected = sa.MetaData(schema=place)
    reflected.reflect(engine)
    # The number of statements does not depend on the number of tables.
    assert len(statements) <= 8, statements
    assert what_is_reflected(reflected, f"{place}.nests") == {
        "columns": [
            ("id", "BIGINT", False, True, "a number"),
            ("region", "VARCHAR", True, False, None),
            ("site", "BIGINT", True, False, None),
            ("eggs", "INTEGER", False, False, None),
            ("kind", "VARCHAR", True, False, None),
            ("parent", "BIGINT", True, False, None),
        ],
        "defaults": {"eggs": "'2'", "kind": "upper('kea')"},
        "primary key": ("nests_pkey", ["id"]),
        "foreign keys": {
            ("nests_parent_fkey", ("parent",), (f"{place}.nests.id",), "CASCADE"),
            ("at", ("region", "site"), (f"{place}.sites.region", f"{place}.sites.number"), None),
        },
        "unique": {("kind_and_eggs", ("kind", "eggs"))},
        "checks": {("some_eggs", "eggs >= 0")},
        "comment": None,
        "options": {"shard_key": "id", "shards": 2, "sort_key": "id"},
    }
    sites = reflected.tables[f"{place}.sites"]
    assert sites.comment == "where it's nice: here"
    assert sites.primary_key.columns.keys() == ["region", "number"]
    # What is reflected can be created again.
    reflected.drop_all(engine)
    reflected.create_all(engine)
    again = sa.MetaData(schema=place)
    again.reflect(engine)
    assert what_is_reflected(again, f"{place}.nests") == what_is_reflected(reflected, f"{place}.nests")


def test_the_schema_of_the_url_is_where_names_without_a_schema_are(url, place):
    engine = sa.create_engine(f"{url}?schema={place}")
    declared_here = sa.MetaData()
    sa.Table("here", declared_here, sa.Column("k", sa.BigInteger, primary_key=True))
    declared_here.create_all(engine)
    inspector = sa.inspect(engine)
    assert inspector.default_schema_name == place
    assert inspector.get_table_names() == inspector.get_table_names(place) == ["here"]
    assert inspector.has_table("here")
    assert not inspector.has_table("here", schema="public")
    engine.dispose()
    missing = sa.create_engine(f"{url}?schema=no_such_schema")
    with pytest.raises(exc.ProgrammingError, match="no_such_schema"):
        missing.connect()


def test_use_changes_where_an_inspector_of_the_connection_looks(engine, place):
    declared(place).create_all(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"USE {place}")
        assert sorted(sa.inspect(connection).get_table_names()) == ["nests", "sites"]
        keys = sa.inspect(connection).get_foreign_keys("nests")
        # Keys within the current schema refer to names without a schema.
        assert {key["referred_schema"] for key in keys} == {None}
        connection.exec_driver_sql("SET search_path = public")
        assert "nests" not in sa.inspect(connection).get_table_names()
        connection.invalidate()


def test_a_key_to_another_schema_names_it(engine, place):
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {place}.a (k BIGINT PRIMARY KEY, v BIGINT)")
        # The referenced column is no key of its table.
        connection.exec_driver_sql(f"CREATE TABLE named_{place} (k BIGINT REFERENCES {place}.a (v))")
        (key,) = sa.inspect(connection).get_foreign_keys(f"named_{place}")
        connection.exec_driver_sql(f"DROP TABLE named_{place}")
    assert (key["referred_schema"], key["referred_table"], key["referred_columns"]) == (place, "a", ["v"])


def test_schemas_are_listed_and_translated(engine, place):
    inspector = sa.inspect(engine)
    assert {place, "public", "system", "information_schema"} <= set(inspector.get_schema_names())
    assert inspector.has_schema(place)
    assert not inspector.has_schema("no_such_schema")
    table = sa.Table("translated", sa.MetaData(schema="anywhere"), sa.Column("k", sa.BigInteger, primary_key=True))
    with engine.connect().execution_options(schema_translate_map={"anywhere": place}) as connection:
        table.create(connection)
        connection.execute(table.insert(), [{"k": 1}, {"k": 2}])
        assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 2
    assert sa.inspect(engine).get_table_names(place) == ["translated"]


def test_views_are_reflected_with_their_queries(engine, place):
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {place}.t (k BIGINT, v VARCHAR)")
        connection.exec_driver_sql(f"CREATE VIEW {place}.v AS SELECT k FROM {place}.t")
        connection.exec_driver_sql(f"COMMENT ON VIEW {place}.v IS 'the keys'")
    inspector = sa.inspect(engine)
    assert inspector.get_view_names(place) == ["v"]
    assert inspector.get_table_comment("v", place) == {"text": "the keys"}
    assert inspector.get_view_definition("v", place) == f"SELECT k FROM {place}.t"
    with pytest.raises(exc.NoSuchTableError):
        inspector.get_view_definition("t", place)
    assert [column["name"] for column in inspector.get_columns("v", place)] == ["k"]
    assert inspector.get_pk_constraint("v", place)["constrained_columns"] == []
    # Those of the cluster can be reflected, too.
    assert "comment" in [column["name"] for column in inspector.get_columns("tables", "system")]
    assert "table_name" in [column["name"] for column in inspector.get_columns("tables", "information_schema")]


def test_precise_and_nested_types_are_reflected(engine, place):
    created = sa.Table(
        "typed",
        sa.MetaData(schema=place),
        sa.Column("nanos", TIMESTAMP(precision=9)),
        sa.Column("millis", TIMESTAMP(timezone=True, precision=3)),
        sa.Column("micros", sa.DateTime(timezone=True)),
        sa.Column("at", TIME(precision=9)),
        sa.Column("both", STRUCT({"a": sa.BigInteger(), "b C": sa.ARRAY(sa.String)})),
    )
    created.create(engine)
    reflected = sa.Table("typed", sa.MetaData(schema=place), autoload_with=engine)
    types = [column.type.compile(engine.dialect) for column in reflected.columns]
    assert types == [
        "TIMESTAMP(9)",
        "TIMESTAMP(3) WITH TIME ZONE",
        "TIMESTAMP(6) WITH TIME ZONE",
        "TIME(9)",
        'STRUCT<a BIGINT, "b C" VARCHAR[]>',
    ]
    with engine.connect() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO {place}.typed (both) SELECT named_struct('a', 1, 'b C', ['x'])",
        )
        assert connection.scalar(sa.select(reflected.c.both)) == {"a": 1, "b C": ["x"]}


def test_a_server_default_is_used_and_a_check_is_enforced(engine, place):
    metadata = declared(place)
    metadata.create_all(engine)
    nests = metadata.tables[f"{place}.nests"]
    with engine.connect() as connection:
        connection.execute(nests.insert(), {"id": 1})
        assert connection.execute(sa.select(nests.c.eggs, nests.c.kind)).all() == [(2, "KEA")]
        with pytest.raises(exc.DBAPIError) as caught:
            connection.execute(nests.insert(), {"id": 2, "eggs": -1})
    assert caught.value.orig.sqlstate == "23514"
    assert isinstance(caught.value.orig, engine.dialect.dbapi.IntegrityError)


def test_a_row_of_defaults_can_be_inserted(engine, place):
    table = sa.Table("defaults", sa.MetaData(schema=place), sa.Column("v", sa.Integer, server_default="7"))
    table.create(engine)
    with engine.connect() as connection:
        connection.execute(table.insert())
        assert connection.execute(table.select()).all() == [(7,)]


def test_constraints_are_added_and_dropped(engine, place):
    metadata = sa.MetaData(schema=place)
    table = sa.Table("t", metadata, sa.Column("k", sa.BigInteger, primary_key=True), sa.Column("v", sa.Integer))
    table.create(engine)
    with engine.connect() as connection:
        connection.execute(table.insert(), {"k": 1, "v": -1})
        check = sa.CheckConstraint("v > 0", name="positive", volary_not_valid=True)
        table.append_constraint(check)
        connection.execute(AddConstraint(check))
        unique = sa.UniqueConstraint("v", name="alone")
        table.append_constraint(unique)
        connection.execute(AddConstraint(unique))
        inspector = sa.inspect(connection)
        assert inspector.get_check_constraints("t", place) == [{"name": "positive", "sqltext": "v > 0"}]
        assert [found["name"] for found in inspector.get_unique_constraints("t", place)] == ["alone"]
        for constraint in (check, unique):
            connection.execute(DropConstraint(constraint))
        inspector = sa.inspect(connection)
        assert inspector.get_check_constraints("t", place) == inspector.get_unique_constraints("t", place) == []


def test_tables_that_refer_to_each_other_are_created_and_dropped(engine, place):
    metadata = sa.MetaData(schema=place)
    for name, other in (("hen", "egg"), ("egg", "hen")):
        reference = sa.ForeignKey(f"{place}.{other}.id", name=f"{name}_of_{other}")
        id_ = sa.Column("id", sa.BigInteger, primary_key=True)
        sa.Table(name, metadata, id_, sa.Column("of", sa.BigInteger, reference))
    metadata.create_all(engine)
    assert {len(sa.inspect(engine).get_foreign_keys(name, place)) for name in ("hen", "egg")} == {1}
    metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names(place) == []


def test_checks_of_one_name_are_left_out_if_their_conditions_differ(engine, place):
    with engine.connect() as connection:
        for table, condition in (("a", "v > 0"), ("b", "v > 1")):
            connection.exec_driver_sql(f"CREATE TABLE {place}.{table} (v INT, CONSTRAINT c CHECK ({condition}))")
        with pytest.warns(UserWarning, match='the check "c" of table "a" is left out'):
            assert sa.inspect(connection).get_check_constraints("a", place) == []


def test_what_the_server_would_have_to_generate_is_refused(engine, place):
    def refused(column: sa.Column[object], words: str) -> None:
        with pytest.raises(exc.CompileError, match=words):
            CreateTable(sa.Table("t", sa.MetaData(), column)).compile(engine)

    refused(sa.Column("k", sa.Integer, sa.Identity()), "no identities")
    refused(sa.Column("k", sa.Integer, sa.Computed("1 + 1")), "no computed columns")
    refused(sa.Column("k", sa.Integer, sa.Sequence("numbers")), 'no sequences, such as "numbers"')
    refused(sa.Column("k", sa.Integer, autoincrement=True), "generates no keys")
    for statement in (sa.schema.CreateSequence(sa.Sequence("numbers")), sa.select(sa.Sequence("numbers").next_value())):
        with pytest.raises(exc.CompileError, match='no sequences, such as "numbers"'):
            statement.compile(engine)
    table = sa.Table("keyed", sa.MetaData(schema=place), sa.Column("k", sa.Integer, primary_key=True), sa.Column("v"))
    with engine.connect() as connection, pytest.raises(exc.StatementError, match='needs a value for "k"'):
        connection.execute(table.insert(), {"v": 1})


def test_an_index_is_not_created_and_that_is_said(engine, place):
    table = sa.Table("indexed", sa.MetaData(schema=place), sa.Column("k", sa.BigInteger, unique=True, index=True))
    with pytest.warns(UserWarning, match="is not created, because there are no indexes.*nothing checks"):
        table.create(engine)
    assert sa.inspect(engine).get_indexes("indexed", place) == []
    table.drop(engine)
    # This is what pandas does unless it is told not to.
    with pytest.warns(UserWarning, match="there are no indexes"):
        pd.DataFrame({"v": [1.5]}).to_sql("frame", engine, schema=place)
    assert pd.read_sql_table("frame", engine, schema=place).to_dict("list") == {"index": [0], "v": [1.5]}


def test_words_that_begin_a_constraint_are_names_of_columns(engine, place):
    words = ("key", "index", "check", "unique", "primary", "fulltext", "spatial", "constraint", "comment", "default")
    table = sa.Table("words", sa.MetaData(schema=place), *(sa.Column(word, sa.Integer) for word in words))
    table.create(engine)
    assert [column["name"] for column in sa.inspect(engine).get_columns("words", place)] == list(words)


def test_a_driver_lists_columns_and_foreign_keys(engine, place):
    declared(place).create_all(engine)
    with engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert set(driver.table_schemas(place)) == {"nests", "sites"}
        assert driver.table_schemas(place, "sites")["sites"].names == ["region", "number"]
        assert driver.table_schemas(place, "no_such_table") == {}
        (first, *_) = driver.foreign_keys(place, "nests")
        assert first["fk_table_name"] == "nests"
        assert driver.foreign_keys(place, "sites") == []
