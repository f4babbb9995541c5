"""Tests the SQLAlchemy dialect, and the DB-API module below it."""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
import warnings

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import volary

_numbers = itertools.count()


@pytest.fixture
def engine(cluster):
    engine = sa.create_engine(cluster.uri.replace("grpc://", "volary://"))
    yield engine
    engine.dispose()


@pytest.fixture
def metadata(engine):
    metadata = sa.MetaData()
    yield metadata
    metadata.drop_all(engine)


def name(what: str) -> str:
    return f"{what}_{next(_numbers)}"


def test_a_url_is_an_address_with_credentials(cluster):
    url = sa.make_url("volary://kea:secret@host:7/volary?tls=true&tls_ca=ca.pem&timeout=5")
    arguments = url.get_dialect()().create_connect_args(url)
    expected = {"tls_ca": "ca.pem", "timeout": 5.0, "username": "kea", "password": "secret"}
    assert arguments == (["grpc+tls://host:7"], expected)
    url = sa.make_url("volary://?token=t")
    assert url.get_dialect()().create_connect_args(url) == (["grpc://127.0.0.1:7100"], {"token": "t"})
    for wrong in ("volary://h/other", "volary://h?ssl=1", "volary://h?tls=yes", "volary://h?token=a&token=b"):
        url = sa.make_url(wrong)
        with pytest.raises(exc.ArgumentError):
            url.get_dialect()().create_connect_args(url)


@pytest.mark.parametrize("scheme", ["volary", "volary+adbc"])
def test_a_url_may_have_the_name_of_the_driver_that_the_dialect_once_used(cluster, scheme):
    engine = sa.create_engine(cluster.uri.replace("grpc://", f"{scheme}://"))
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.literal(7))) == 7
        assert connection.dialect.server_version_info >= (0, 1)
    engine.dispose()


def test_a_lost_gateway_is_a_lost_connection_and_a_wrong_statement_is_not(engine):
    for code, is_lost in (("UNAVAILABLE", True), ("UNAUTHENTICATED", True), ("INVALID_ARGUMENT", False)):
        error = engine.dialect.dbapi.OperationalError("failed", code=volary.ErrorCode(code))
        assert engine.dialect.is_disconnect(error, None, None) == is_lost


def test_values_of_all_types_come_back_as_they_were(engine, metadata):
    moment = datetime.datetime(2026, 11, 22, 12, 30, 15, 123456)
    utc = moment.replace(tzinfo=datetime.UTC)
    values = {
        "id": 7,
        "small": -3,
        "whole": 1 << 40,
        "real": 1.5,
        "exact": decimal.Decimal("12.345"),
        "yes": True,
        "text": "kea's \u00e4gg",
        "bytes": b"\x00\xff",
        "day": moment.date(),
        "time": moment.time(),
        "at": moment,
        "at_utc": utc,
        "note": {"a": [1, None]},
    }
    types = [
        sa.BigInteger,
        sa.SmallInteger,
        sa.BigInteger,
        sa.Float,
        sa.Numeric(10, 3),
        sa.Boolean,
        sa.Text,
        sa.LargeBinary,
        sa.Date,
        sa.Time,
        sa.DateTime,
        sa.DateTime(timezone=True),
        sa.JSON,
    ]
    columns = [sa.Column(name, kind) for name, kind in zip(values, types, strict=True)]
    table = sa.Table(name("types"), metadata, *columns)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), [values, {**dict.fromkeys(values), "id": 8}])
        first, second = connection.execute(table.select().order_by(table.c.id)).mappings()
    assert dict(first) == values
    assert set(second.values()) == {8, None}


def test_uuids_are_read_from_columns_of_texts_and_of_uuids(engine, metadata):
    first, second = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), uuid.UUID(int=7)
    columns = [sa.Column("id", sa.Uuid, primary_key=True), sa.Column("text", sa.Uuid(as_uuid=False))]
    texts = sa.Table(name("texts"), metadata, *columns)
    metadata.create_all(engine)
    assert sa.inspect(engine).get_table_options(texts.name)["volary_shard_key"] == "id"
    uuids = sa.Table(name("uuids"), metadata, *(column._copy() for column in columns))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {uuids.name} (id UUID, text UUID) WITH (shard_key = 'id')")
        for table in (texts, uuids):
            connection.execute(table.insert(), [{"id": first, "text": str(second)}, {"id": second, "text": None}])
            assert connection.execute(table.select().where(table.c.id == first)).all() == [(first, str(second))]
            assert connection.execute(table.select().where(table.c.text.is_(None))).all() == [(second, None)]


def test_a_table_is_made_and_reflected_with_its_layout(engine, metadata):
    made = sa.Table(
        name("layout"),
        metadata,
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("k", sa.BigInteger),
        volary_shard_key="k",
        volary_shards=4,
        volary_sort_key=["day", "k"],
    )
    keyed = sa.Table(name("keyed"), metadata, sa.Column("k", sa.BigInteger, primary_key=True))
    small = sa.Table(name("small"), metadata, sa.Column("k", sa.BigInteger), volary_reference=True)
    metadata.create_all(engine)
    inspector = sa.inspect(engine)
    assert inspector.get_table_options(made.name) == {
        "volary_shard_key": "k",
        "volary_shards": 4,
        "volary_sort_key": "day, k",
    }
    assert inspector.get_table_options(keyed.name)["volary_shard_key"] == "k"
    assert inspector.get_table_options(small.name) == {"volary_reference": True}
    again = sa.Table(made.name, sa.MetaData(), autoload_with=engine)
    assert [(column.name, str(column.type), column.nullable) for column in again.columns] == [
        ("day", "DATE", False),
        ("k", "BIGINT", True),
    ]
    assert "nodes" in inspector.get_view_names("system")
    with pytest.raises(exc.NoSuchTableError):
        inspector.get_columns("no_such_table")


def test_an_inspector_asks_once_whether_a_table_exists(engine, metadata):
    made = sa.Table(name("asked"), metadata, sa.Column("k", sa.BigInteger))
    metadata.create_all(engine)
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *of_call: statements.append(of_call[2]))
    inspector = sa.inspect(engine)
    for ask in (inspector.get_columns, inspector.get_pk_constraint, inspector.get_foreign_keys, inspector.get_indexes):
        ask(made.name)
    assert len([statement for statement in statements if "information_schema.tables" in statement]) == 1
    # Another inspector asks again.
    metadata.drop_all(engine)
    assert inspector.get_indexes(made.name) == []
    with pytest.raises(exc.NoSuchTableError, match=made.name):
        sa.inspect(engine).get_indexes(made.name)


def test_rows_are_not_deleted(engine, metadata):
    table = sa.Table(name("t"), metadata, sa.Column("k", sa.Integer))
    metadata.create_all(engine)
    with engine.connect() as connection, pytest.raises(exc.DatabaseError, match="Delete is not supported"):
        connection.execute(table.delete())


def test_objects_are_stored_and_found(engine):
    class Base(DeclarativeBase):
        pass

    class Bird(Base):
        __tablename__ = name("birds")
        id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
        kind: Mapped[str]
        grams: Mapped[float | None]

    Base.metadata.create_all(engine)
    try:
        with Session(engine) as session:
            session.add_all([Bird(id=1, kind="kea", grams=900.0), Bird(id=2, kind="tui"), Bird(id=3, kind="kea")])
            session.commit()
            found = session.get(Bird, 2)
            assert found is not None
            assert (found.kind, found.grams) == ("tui", None)
            counts = sa.select(Bird.kind, sa.func.count()).group_by(Bird.kind).order_by(Bird.kind)
            assert session.execute(counts).all() == [("kea", 2), ("tui", 1)]
            some = (
                sa.select(Bird.id)
                .where(Bird.id.in_([1, 3]), Bird.kind.ilike("K%"))
                .order_by(Bird.id)
                .limit(1)
                .offset(1)
            )
            assert session.scalars(some).all() == [3]
    finally:
        Base.metadata.drop_all(engine)


def test_pandas_writes_and_reads(engine):
    table = name("frames")
    frame = pd.DataFrame({"k": [1, 2, 3], "name": ["kea", None, "tui"], "grams": [900.5, 500.0, None]})
    try:
        frame.to_sql(table, engine, index=False)
        read = pd.read_sql(f"SELECT * FROM {table} ORDER BY k", engine)
        assert read["k"].tolist() == [1, 2, 3]
        assert read["name"].isna().tolist() == [False, True, False]
        frame.to_sql(table, engine, index=False, if_exists="append")
        assert pd.read_sql_table(table, engine).shape == (6, 3)
        frame.to_sql(table, engine, index=False, if_exists="replace")
        assert (
            pd.read_sql(sa.text(f"SELECT count(*) AS n FROM {table} WHERE k > :k"), engine, params={"k": 1})["n"][0]
            == 2
        )
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))


def test_errors_have_the_class_that_their_code_says(engine):
    with engine.connect() as connection:
        for statement, kind, words in (
            ("SELECT * FROM no_such_table", exc.ProgrammingError, "NOT_FOUND"),
            ("SELEC 1", exc.ProgrammingError, "INVALID_ARGUMENT"),
        ):
            with pytest.raises(kind, match=words):
                connection.execute(sa.text(statement))
        assert connection.execute(sa.text("SELECT 7")).scalar() == 7


def test_an_error_has_the_classes_and_the_sqlstate_of_the_dbapi(engine):
    with engine.connect() as connection, pytest.raises(exc.ProgrammingError) as caught:
        connection.execute(sa.text("SELECT 1 / 0 AS x")).all()
    assert isinstance(caught.value.orig, engine.dialect.dbapi.DataError)
    assert caught.value.orig.sqlstate == "22012"


def test_many_rows_are_one_write_or_none(engine, metadata):
    table = sa.Table(name("many"), metadata, sa.Column("k", sa.BigInteger, primary_key=True), sa.Column("x", sa.Float))
    metadata.create_all(engine)
    count = sa.select(sa.func.count()).select_from(table)
    with engine.connect() as connection:
        rows = [{"k": k, "x": k / 2} for k in range(1000)]
        connection.execute(table.insert(), rows)
        with pytest.raises(exc.DBAPIError, match="NOT NULL"):
            connection.execute(table.insert(), [*rows, {"k": None, "x": 1.0}])
        assert connection.scalar(count) == 1000


def test_a_result_is_streamed(engine):
    numbers = sa.text("SELECT n FROM generate_series(1, 9000000000000000000) t(n)")
    with engine.connect() as connection, connection.execution_options(stream_results=True).execute(numbers) as result:
        assert result.fetchmany(3) == [(1,), (2,), (3,)]


def test_like_takes_any_escape_character(engine, metadata):
    table = sa.Table(name("patterns"), metadata, sa.Column("x", sa.String))
    metadata.create_all(engine)
    x = table.c.x
    with engine.connect() as connection:
        connection.execute(table.insert(), [{"x": "a\\b"}, {"x": "50% #1"}, {"x": "500 #1"}])
        for condition, found in (
            (x.contains("50%", autoescape=True), ["50% #1"]),
            (x.contains("a\\b", autoescape=True), ["a\\b"]),
            (x.icontains("A\\", autoescape=True), ["a\\b"]),
            (x.like("%##1", escape="#"), ["50% #1", "500 #1"]),
            (x.like("50'% %", escape="'"), ["50% #1"]),
            (x.like("a\\\\_", escape="\\"), ["a\\b"]),
            (x.not_like("%0x%%", escape="x"), ["500 #1", "a\\b"]),
            (sa.literal("50").like(x.concat("z%"), escape="z"), []),
        ):
            assert connection.scalars(sa.select(x).where(condition).order_by(x)).all() == found
    with pytest.raises(exc.CompileError, match="one character"):
        sa.select(x).where(x.like("a", escape="ab")).compile(engine)


def test_intervals_are_added_and_subtracted(engine, metadata):
    hour = datetime.timedelta(hours=1)
    at = datetime.datetime(2026, 11, 22, 12, 30, 15, 123456)
    table = sa.Table(
        name("lengths"),
        metadata,
        sa.Column("at", sa.DateTime),
        sa.Column("day", sa.Date),
        sa.Column("lasted", sa.Interval),
    )
    metadata.create_all(engine)
    t = table.c
    midnight = datetime.datetime(2026, 11, 22)
    with engine.connect() as connection:
        connection.execute(table.insert(), {"at": at, "day": at.date(), "lasted": 2 * hour})
        for expression, value in (
            (t.at + hour, at + hour),
            (t.at - 30 * hour, at - 30 * hour),
            (t.at - t.lasted, at - 2 * hour),
            (t.lasted + t.at, at + 2 * hour),
            (t.day + hour, midnight + hour),
            (t.lasted - hour, hour),
            (t.lasted + t.lasted, 4 * hour),
            (t.at - t.at, 0 * hour),
            (t.at - t.at + hour, hour),
            (sa.literal(at) - hour, at - hour),
            (sa.literal(at.date()) + hour, midnight + hour),
        ):
            assert connection.scalar(sa.select(expression)) == value, str(expression)
        later = sa.func.now() + datetime.timedelta(days=30000)
        assert connection.scalar(sa.select(sa.func.count()).where(t.lasted > hour, t.at < later)) == 1


def test_arrays_are_kept_reflected_and_indexed(engine, metadata):
    table = sa.Table(
        name("arrays"),
        metadata,
        sa.Column("one", sa.ARRAY(sa.Integer)),
        sa.Column("two", sa.ARRAY(sa.String, dimensions=2)),
    )
    metadata.create_all(engine)
    t = table.c
    with engine.connect() as connection:
        connection.execute(table.insert(), [{"one": [1, 2, 3], "two": [["a"], ["b", "c"]]}, {"one": [], "two": None}])
        found = connection.execute(sa.select(t.one[1], t.two[2][1], t.one[2:3]).where(sa.any_(t.one) == 3)).all()
        assert found == [(1, "b", [2, 3])]
    one, two = (column["type"] for column in sa.inspect(engine).get_columns(table.name))
    assert (str(one.item_type), one.dimensions) == ("INTEGER", None)
    assert (str(two.item_type), two.dimensions) == ("VARCHAR", 2)


def test_decimals_have_digits(engine):
    for kind, digits in ((sa.Numeric(), "38, 10"), (sa.Numeric(9), "9, 0"), (sa.Numeric(9, 2), "9, 2")):
        assert kind.compile(engine.dialect) == f"DECIMAL({digits})"


def test_integers_divide_to_decimals(engine, metadata):
    table = sa.Table(name("numbers"), metadata, sa.Column("n", sa.Integer), sa.Column("exact", sa.Numeric(10, 2)))
    metadata.create_all(engine)
    t = table.c
    third = decimal.Decimal("0.33333333333333")
    with engine.connect() as connection:
        connection.execute(table.insert(), [{"n": 1, "exact": 1.5}])
        divided = sa.select(t.n / 3, t.n // 3, t.n / 2.0, sa.func.sum(t.n) / sa.func.sum(t.n * 3), sa.literal(1) / 3)
        assert connection.execute(divided.group_by(t.n)).one() == (third, 0, 0.5, third, third)
        assert connection.scalar(sa.select(t.n / t.exact)) == decimal.Decimal("0.66666666666666")
        with pytest.raises(exc.DBAPIError, match="Divide by zero"):
            connection.scalar(sa.select(t.n / (t.n - t.n)))


def test_parameters_among_themselves_have_types(engine):
    many = 1 << 40
    with engine.connect() as connection:
        for expression, value in (
            (sa.literal(many) == many, True),
            (sa.literal(2).between(1, 3), True),
            (sa.literal("b").in_(["a", "b"]), True),
            (sa.literal("a") + "b" + "c", "abc"),
            (sa.literal(1.5) * 2.0, 3.0),
            (sa.try_cast("x", sa.Integer), None),
        ):
            assert connection.scalar(sa.select(expression)) == value, str(expression)


def test_json_is_text(cluster, metadata):
    engine = sa.create_engine(cluster.uri.replace("grpc://", "volary://"), json_deserializer=lambda text: [text])
    table = sa.Table(name("notes"), metadata, sa.Column("note", sa.JSON))
    try:
        with engine.connect() as connection:
            table.create(connection)
            connection.execute(table.insert(), {"note": {"a": 1}})
            assert connection.scalar(sa.select(table.c.note)) == ['{"a": 1}']
            with pytest.raises(exc.CompileError, match="JSON is stored as text"):
                connection.execute(sa.select(table.c.note["a"]))
            table.drop(connection)
    finally:
        engine.dispose()


def test_fetch_is_limit(engine):
    values = sa.values(sa.column("n", sa.Integer), name="numbers").data([(1,), (2,), (3,)])
    query = sa.select(values.c.n).order_by(values.c.n)
    with engine.connect() as connection:
        assert connection.scalars(query.offset(1).fetch(1)).all() == [2]
    with pytest.raises(exc.CompileError, match="WITH TIES"):
        query.fetch(1, with_ties=True).compile(engine)


def test_dbapi_has_what_pep_249_asks_for(cluster):
    from volary import dbapi

    assert (dbapi.apilevel, dbapi.paramstyle) == ("2.0", "qmark")
    with dbapi.connect(cluster.uri) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 7 AS n, ? AS text", ("kea",))
        assert [column[0] for column in cursor.description] == ["n", "text"]
        assert cursor.fetchone() == (7, "kea")
        assert cursor.fetchone() is None
        connection.commit()
        connection.rollback()
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute("SELECT * FROM no_such_table")
    with pytest.raises(volary.InvalidArgumentError, match="password"):
        dbapi.connect(cluster.uri, password="secret")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dbapi.connect(cluster.uri).close()
