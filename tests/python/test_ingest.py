"""Tests bulk ingestion: whole tables of Arrow, pandas and polars, as the ADBC driver sends them."""

import datetime
import decimal

import adbc_driver_manager as adbc
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from processes import until

import volary


def rows(connection, query: str) -> list[tuple]:
    return connection.sql(query).rows()


def birds(count: int = 3) -> pa.Table:
    return pa.table(
        {"k": pa.array(range(count)), "name": pa.array([f"bird {k}" for k in range(count)], pa.large_string())}
    )


def test_every_mode_with_and_without_the_table(cursor, connection, name):
    count = f"SELECT count(*) FROM {name}"
    with pytest.raises(dbapi.ProgrammingError, match=f"NOT_FOUND: .*{name}"):
        cursor.adbc_ingest(name, birds(), mode="append")
    assert cursor.adbc_ingest(name, birds(), mode="create") == 3
    with pytest.raises(dbapi.ProgrammingError, match=f"ALREADY_EXISTS: .*{name}") as caught:
        cursor.adbc_ingest(name, birds(), mode="create")
    assert caught.value.status_code == adbc.AdbcStatusCode.ALREADY_EXISTS
    assert cursor.adbc_ingest(name, birds(2), mode="append") == 2
    assert rows(connection, count) == [(5,)]
    assert cursor.adbc_ingest(name, birds(4), mode="replace") == 4
    assert rows(connection, count) == [(4,)]
    assert cursor.adbc_ingest(name, birds(1), mode="create_append") == 1
    assert rows(connection, count) == [(5,)]
    other = f"{name}_other"
    for mode in ("create_append", "replace"):
        assert cursor.adbc_ingest(other, birds(), mode=mode) == 3
        assert rows(connection, f"SELECT k, name FROM {other} ORDER BY k") == [
            (0, "bird 0"),
            (1, "bird 1"),
            (2, "bird 2"),
        ]
        connection.sql(f"DROP TABLE {other}")


def test_8_mb_ingest_batch(cursor, connection, name):
    # The driver sends a batch unchanged, so this is one message.
    batch = pa.table({"text": pa.array(["x" * (8 << 20)])})
    cursor.adbc_ingest(name, batch, mode="create")
    assert rows(connection, f"SELECT length(text) FROM {name}") == [(8 << 20,)]


def test_a_table_without_rows_has_its_columns(cursor, connection, name):
    # If there is no batch at all, not even an empty one, the driver sends nothing that names the table.
    with pytest.raises(dbapi.ProgrammingError, match="stream of a DoPut is empty"):
        cursor.adbc_ingest(name, birds().slice(0, 0), mode="create")
    empty = birds().to_batches()[0].slice(0, 0)
    reader = pa.RecordBatchReader.from_batches(empty.schema, [empty])
    assert cursor.adbc_ingest(name, reader, mode="create") == 0
    assert rows(connection, f"SELECT * FROM {name}") == []
    columns = f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{name}'"
    assert [column for column, _ in rows(connection, columns)] == ["k", "name"]


def beyond(of_type: pa.DataType, raw: pa.Array) -> pa.Table:
    """Returns a column with these numbers as its values, even if the type does not allow them."""
    return pa.table({"beyond": pa.Array.from_buffers(of_type, len(raw), raw.buffers())})


@pytest.mark.parametrize(
    "table",
    [
        beyond(pa.decimal128(3, 0), pa.array([decimal.Decimal(1234)], pa.decimal128(10, 0))),
        beyond(pa.time64("us"), pa.array([24 * 60 * 60 * 1_000_000])),
        beyond(pa.time32("s"), pa.array([-1], pa.int32())),
    ],
    ids=["decimal", "time64", "time32"],
)
def test_values_beyond_their_type_are_refused(connection, name, table):
    with pytest.raises(volary.InvalidArgumentError, match=r"column beyond: .* is beyond the range of"):
        connection.ingest(name, table, mode="create")
    with pytest.raises(volary.NotFoundError):
        connection.sql(f"SELECT * FROM {name}")


def test_many_rows_are_spread_over_the_workers(cursor, connection, name):
    count = 100_000
    cursor.adbc_ingest(name, pa.table({"k": pa.array(range(count))}), mode="create")
    assert rows(connection, f"SELECT count(*), sum(k) FROM {name}") == [(count, count * (count - 1) // 2)]
    of_workers = rows(
        connection, f"SELECT worker_id, sum(rows) FROM system.shards WHERE table_name = '{name}' GROUP BY worker_id"
    )
    assert len(of_workers) == 3
    assert min(held for _, held in of_workers) > count / 6


def test_a_table_without_a_shard_key_is_read_and_joined_as_any(cursor, connection, name, empty_table):
    cursor.adbc_ingest(name, birds(), mode="create")
    connection.sql(f"INSERT INTO {name} VALUES (7, 'moa')")
    connection.sql(f"INSERT INTO {empty_table} (k, price) VALUES (2, 2.5), (7, 7.5)")
    joined = f"SELECT a.k, a.name, b.price FROM {name} a JOIN {empty_table} b ON a.k = b.k ORDER BY a.k"
    assert rows(connection, joined) == [(2, "bird 2", 2.5), (7, "moa", 7.5)]
    itself = f"SELECT count(*) FROM {name} a JOIN {name} b ON a.k = b.k"
    assert rows(connection, itself) == [(4,)]
    assert rows(connection, f"SELECT name FROM {name} WHERE k = 1") == [("bird 1",)]
    assert rows(connection, f"SELECT k % 2, count(*) FROM {name} GROUP BY 1 ORDER BY 1") == [(0, 2), (1, 2)]
    assert rows(connection, f"SELECT shard_key, kind FROM system.tables WHERE name = '{name}'") == [(None, "sharded")]


def test_columns_are_found_by_name_and_others_are_null(cursor, connection, empty_table):
    sent = pa.table({"name": ["kea"], "K": [1]})
    assert cursor.adbc_ingest(empty_table, sent, mode="append") == 1
    assert rows(connection, f"SELECT k, name, price FROM {empty_table}") == [(1, "kea", None)]


@pytest.mark.parametrize(
    ("sent", "parts"),
    [
        ({"k": [1], "colour": ["green"]}, ["column colour does not exist in table", "which has k, name, price, day"]),
        ({"k": [1.5]}, ["column k: 1.5 does not fit BIGINT"]),
        ({"k": ["kea"]}, ["column k", "kea"]),
        ({"k": [None]}, ["column k: a NULL in a column that is NOT NULL"]),
        ({"name": ["kea"]}, ["column k: a NULL in a column that is NOT NULL"]),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_none_is_kept(cursor, connection, empty_table, sent, parts):
    with pytest.raises(dbapi.ProgrammingError) as caught:
        cursor.adbc_ingest(empty_table, pa.table(sent), mode="append")
    assert caught.value.status_code == adbc.AdbcStatusCode.INVALID_ARGUMENT
    for part in parts:
        assert part in str(caught.value)
    assert rows(connection, f"SELECT count(*) FROM {empty_table}") == [(0,)]


def test_types_come_back_as_they_were(cursor, name):
    moment = datetime.datetime(2026, 11, 22, 13, 14, 15, 678901)
    sent = pa.table(
        {
            "flag": pa.array([True, None]),
            "tiny": pa.array([-5, None], pa.int8()),
            "large": pa.array([2**63 - 1, None], pa.int64()),
            "unsigned": pa.array([2**31, None], pa.uint32()),
            "real": pa.array([1.5, None], pa.float32()),
            "price": pa.array([decimal.Decimal("12.34"), None], pa.decimal128(10, 2)),
            "text": pa.array(["tūī", None], pa.large_string()),
            "category": pa.array(["kea", None]).dictionary_encode(),
            "bytes": pa.array([b"\x00\xff", None], pa.large_binary()),
            "day": pa.array([moment.date(), None], pa.date32()),
            "at": pa.array([moment, None], pa.timestamp("us")),
            "at_ns": pa.array([moment, None], pa.timestamp("ns")),
            "at_zone": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "many": pa.array([[1, 2, None], None], pa.list_(pa.int64())),
            "parts": pa.array([{"a": 1, "b": "x"}, None], pa.struct({"a": pa.int64(), "b": pa.string()})),
            "nothing": pa.nulls(2),
        }
    )
    cursor.adbc_ingest(name, sent, mode="create")
    cursor.execute(f"SELECT * FROM {name} ORDER BY tiny NULLS LAST")
    assert cursor.fetch_arrow_table().to_pylist() == sent.to_pylist()


def test_a_type_that_is_not_stored_is_named(cursor, name):
    took = pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval()))
    with pytest.raises(dbapi.ProgrammingError, match=r"column took: type List.* cannot be stored; cast it"):
        cursor.adbc_ingest(name, pa.table({"took": took}), mode="create")


def test_batches_that_come_one_after_the_other_are_one_write(cursor, connection, name):
    schema = pa.schema({"k": pa.int64()})

    def batches(last):
        for first in range(5):
            assert rows(connection, f"SELECT name FROM system.tables WHERE name = '{name}'") == []
            yield pa.record_batch([pa.array(range(first * 10, first * 10 + 10))], schema=schema)
        yield last

    wrong = pa.record_batch([pa.array(["kea"])], names=["k"])
    with pytest.raises((dbapi.Error, pa.ArrowInvalid, TypeError)):
        cursor.adbc_ingest(name, pa.RecordBatchReader.from_batches(schema, batches(wrong)), mode="create")
    assert rows(connection, f"SELECT name FROM system.tables WHERE name = '{name}'") == []
    right = pa.record_batch([pa.array([99])], schema=schema)

    def is_created() -> bool:
        try:
            cursor.adbc_ingest(name, pa.RecordBatchReader.from_batches(schema, batches(right)), mode="create")
        except dbapi.Error as error:
            # The driver has aborted the first call, and the gateway may not have noticed it yet.
            if "is being created by another statement" not in str(error):
                raise
            return False
        return True

    until(is_created, "the name is free")
    assert rows(connection, f"SELECT count(*), max(k) FROM {name}") == [(51, 99)]


def test_what_a_query_reads_is_replaced_in_one_step(cursor, connection, name):
    cursor.adbc_ingest(name, birds(10), mode="create")
    for _ in range(5):
        cursor.adbc_ingest(name, birds(10), mode="replace")
        assert rows(connection, f"SELECT count(*) FROM {name}") == [(10,)]
    connection.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT k + 1 AS k FROM {name} WHERE k < 5")
    assert rows(connection, f"SELECT min(k), max(k) FROM {name}") == [(1, 5)]
    connection.sql(f"CREATE OR REPLACE TABLE {name} (other BIGINT)")
    assert rows(connection, f"SELECT * FROM {name}") == []
    with pytest.raises(Exception, match="Divide by zero"):
        connection.sql(
            f"CREATE OR REPLACE TABLE {name} AS SELECT 1 / (value - 5) AS k FROM generate_series(1, 9) t(value)"
        ).rows()
    assert rows(connection, f"SELECT count(other) FROM {name}") == [(0,)]


def test_pandas_writes_and_reads(driver, connection, name):
    frame = pd.DataFrame(
        {
            "k": [1, 2, 3],
            "name": ["kea", None, "tui"],
            "price": [1.5, np.nan, 3.5],
            "at": pd.Timestamp("2026-11-22 13:14"),
        }
    )
    assert frame.to_sql(name, driver, index=False) == 3
    with pytest.raises(Exception, match="exists"):
        frame.to_sql(name, driver, index=False)
    assert frame.to_sql(name, driver, index=False, if_exists="append") == 3
    assert frame.to_sql(name, driver, index=False, if_exists="replace") == 3
    read = pd.read_sql(f"SELECT * FROM {name} ORDER BY k", driver)
    assert read["k"].tolist() == [1, 2, 3]
    assert read["name"].tolist()[0] == "kea"
    assert read["at"].tolist() == frame["at"].tolist()
    assert pd.read_sql(f"SELECT count(price) AS n FROM {name}", driver)["n"].tolist() == [2]


def test_polars_writes_and_reads(driver, name):
    frame = pl.DataFrame({"k": [1, 2], "name": ["kea", None]})
    assert frame.write_database(name, driver, engine="adbc") == 2
    assert frame.write_database(name, driver, engine="adbc", if_table_exists="append") == 2
    assert frame.write_database(name, driver, engine="adbc", if_table_exists="replace") == 2
    assert pl.read_database(f"SELECT * FROM {name} ORDER BY k", driver).equals(frame)


def test_what_cannot_be_ingested_into_is_said(driver, cursor, connection, name):
    connection.sql(f"CREATE VIEW {name}_view AS SELECT 1 AS k")
    for mode, match in (("append", "view"), ("create", "view"), ("replace", "view")):
        with pytest.raises(dbapi.ProgrammingError, match=match):
            cursor.adbc_ingest(f"{name}_view", birds(), mode=mode)
    connection.sql(f"DROP VIEW {name}_view")
    for options, match in (
        ({"db_schema_name": "nests"}, "there is no schema nests"),
        ({"catalog_name": "nests"}, "there is no catalog nests"),
    ):
        with pytest.raises(dbapi.ProgrammingError, match=match):
            cursor.adbc_ingest(name, birds(), mode="create", **options)


def test_an_upload_that_is_broken_off_keeps_nothing(cluster, connection, name, empty_table):
    # A stream that is reset is not a stream that has ended. Neither its rows nor the replacement of an old table may be
    # visible.
    connection.sql(f"INSERT INTO {empty_table} (k) VALUES (1), (2)")
    schema = pa.schema({"k": pa.int64()})

    def batches():
        for first in range(3):
            yield pa.record_batch([pa.array(range(first * 1000, first * 1000 + 1000))], schema=schema)
        raise OSError("the disk is gone")

    for attempt in range(10):
        # The name of a table that could not be created is free again as soon as the gateway has noticed the abort.
        for table, mode in ((f"{name}_{attempt}", "create"), (empty_table, "append"), (empty_table, "replace")):
            with (
                dbapi.connect(cluster.uri, autocommit=True) as driver,
                driver.cursor() as cursor,
                pytest.raises((dbapi.Error, OSError), match="the disk is gone"),
            ):
                cursor.adbc_ingest(table, pa.RecordBatchReader.from_batches(schema, batches()), mode=mode)
    assert rows(connection, f"SELECT count(*) FROM {empty_table}") == [(2,)]
    assert rows(connection, f"SELECT name FROM system.tables WHERE name LIKE '{name}%'") == []
    # Each of them has failed by itself. They do not wait for each other.
    running = "SELECT count(*) FROM system.queries WHERE statement LIKE 'INGEST%'"
    until(lambda: rows(connection, running) == [(0,)], "all of them have ended")
