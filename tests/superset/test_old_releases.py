"""Tests the client and the dialect with the old releases of pyarrow and SQLAlchemy that Superset needs."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa

import volary


@pytest.fixture
def engine(uri):
    engine = sa.create_engine(uri)
    yield engine
    engine.dispose()


@pytest.fixture
def metadata(engine):
    metadata = sa.MetaData()
    yield metadata
    metadata.drop_all(engine)


def test_the_releases_are_old():
    assert sa.__version__.startswith("1.4.")
    assert int(pa.__version__.split(".")[0]) < 19


def test_values_of_all_types_come_back_as_they_were(engine, metadata):
    moment = datetime.datetime(2026, 11, 22, 12, 30, 15, 123456)
    values = {
        "id": 1 << 40,
        "real": 1.5,
        "exact": decimal.Decimal("12.345"),
        "yes": True,
        "text": "kea's äpple",
        "bytes": b"\x00\xff",
        "day": moment.date(),
        "time": moment.time(),
        "at": moment,
        "at_utc": moment.replace(tzinfo=datetime.timezone.utc),  # noqa: UP017
        "note": {"a": [1, None]},
        "lasted": datetime.timedelta(hours=3),
        "many": [1, 2],
    }
    types = [
        *(sa.BigInteger, sa.Float, sa.Numeric(10, 3), sa.Boolean, sa.Text, sa.LargeBinary, sa.Date, sa.Time),
        *(sa.DateTime, sa.DateTime(timezone=True), sa.JSON, sa.Interval, sa.ARRAY(sa.BigInteger)),
    ]
    columns = [sa.Column(name, kind) for name, kind in zip(values, types, strict=True)]
    table = sa.Table("old_types", metadata, *columns, volary_shard_key="id")
    metadata.create_all(engine)
    with engine.connect() as connection:
        connection.execute(table.insert(), [values, {**dict.fromkeys(values), "id": 8}])
        second, first = connection.execute(table.select().order_by(table.c.id)).mappings()
    assert dict(first) == values
    assert set(second.values()) == {8, None}


def test_expressions_mean_the_same(engine, metadata):
    table = sa.Table("old_expressions", metadata, sa.Column("n", sa.Integer), sa.Column("at", sa.DateTime))
    metadata.create_all(engine)
    at = datetime.datetime(2026, 11, 22)
    t = table.c
    with engine.connect() as connection:
        connection.execute(table.insert(), {"n": 1, "at": at})
        rolling = sa.func.sum(t.n).over(order_by=t.n, rows=(-1, 1))
        found = sa.select(
            t.n / 3,
            t.at + datetime.timedelta(hours=1),
            t.at - t.at,
            sa.literal("50%").like("50#%", escape="#"),
            rolling,
        )
        assert connection.execute(found).all() == [
            (decimal.Decimal("0.33333333333333"), at + datetime.timedelta(hours=1), datetime.timedelta(0), True, 1)
        ]
        assert connection.execute(sa.select(t.n).where(t.n.in_([]))).all() == []


def test_all_that_a_table_declares_is_reflected(engine, metadata):
    sa.Table(
        "old_nests",
        metadata,
        sa.Column("id", sa.BigInteger, primary_key=True, comment="a number"),
        sa.Column("eggs", sa.Integer, server_default="2"),
        sa.Column("parent", sa.ForeignKey("old_nests.id", name="of_parent")),
        sa.UniqueConstraint("eggs", name="different"),
        sa.CheckConstraint("eggs >= 0", name="some_eggs"),
        comment="where they live",
    )
    metadata.create_all(engine)
    table = sa.Table("old_nests", sa.MetaData(), autoload_with=engine)
    assert [(c.name, c.comment, c.server_default is not None) for c in table.columns] == [
        ("id", "a number", False),
        ("eggs", None, True),
        ("parent", None, False),
    ]
    assert {c.name for c in table.constraints} == {"old_nests_pkey", "of_parent", "different", "some_eggs"}
    assert table.comment == "where they live"
    with engine.connect() as connection, pytest.raises(sa.exc.StatementError, match='needs a value for "id"'):
        connection.execute(table.insert(), {"eggs": 1})


def test_the_client_writes_and_reads_arrow_data(cluster):
    rows = pa.table({"k": [1, 2, 3], "name": ["kea", None, "tui"], "at": pa.array([0, 1, None], pa.timestamp("us"))})
    with volary.connect(cluster.uri) as connection:
        assert connection.ingest("old_rows", rows, shard_key="k") == 3
        assert connection.sql("SELECT * FROM old_rows ORDER BY k").to_arrow().to_pylist() == rows.to_pylist()
        assert connection.read_table("old_rows").num_rows == 3
        assert connection.sql("SELECT name FROM old_rows WHERE k = ?", [3]).rows() == [("tui",)]
        with pytest.raises(volary.NotFoundError) as caught:
            connection.sql("SELECT * FROM no_such_table")
        assert caught.value.sqlstate == "42P01"
        connection.sql("DROP TABLE old_rows")
