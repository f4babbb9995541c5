"""Connection.ingest: every kind of rows, with and without a layout."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import volary

TABLE = pa.table({"k": [1, 2, 3], "name": ["kea", None, "tui"]})
ROWS = [(1, "kea"), (2, None), (3, "tui")]


def stored(connection, name: str) -> list[tuple]:
    return connection.sql(f"SELECT k, name FROM {name} ORDER BY k").rows()


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        pd.DataFrame({"k": [1, 2, 3], "name": ["kea", None, "tui"]}),
        pd.DataFrame({"name": ["kea", None, "tui"]}, index=pd.Index([1, 2, 3], name="k")),
        pl.DataFrame({"k": [1, 2, 3], "name": ["kea", None, "tui"]}),
    ],
    ids=["table", "batch", "reader", "pandas", "pandas with an index", "polars"],
)
def test_rows_in_memory(connection, name, data):
    assert connection.ingest(name, data) == 3
    assert stored(connection, name) == ROWS


def test_parquet_files(connection, name, tmp_path):
    for number in range(3):
        pq.write_table(TABLE.slice(number, 1), tmp_path / f"part-{number}.parquet")
    parts = sorted(tmp_path.iterdir())
    for mode, data, count in (
        ("create", parts[0], 1),
        ("append", [str(part) for part in parts[1:]], 2),
        ("replace", tmp_path, 3),
    ):
        assert connection.ingest(name, data, mode=mode) == count
    assert stored(connection, name) == ROWS


def test_a_table_is_made_with_the_layout_that_is_named(connection, name):
    connection.ingest(name, TABLE, shard_key="k", shards=16, sort_key=["name", "k"])
    layout = f"SELECT kind, shard_key, shards, sort_key FROM system.tables WHERE name = '{name}'"
    assert connection.sql(layout).rows() == [("sharded", "k", 16, "name, k")]
    assert connection.ingest(name, TABLE, mode="replace", reference=True) == 3
    assert connection.sql(layout).rows() == [("reference", None, 1, None)]
    assert connection.ingest(name, TABLE.slice(0, 0), mode="replace") == 0
    assert connection.sql(layout).rows() == [("sharded", None, 64, None)]


def test_what_is_wrong_is_said(connection, name, tmp_path):
    with pytest.raises(volary.NotFoundError, match=name):
        connection.ingest(name, TABLE, mode="append")
    with pytest.raises(volary.NotFoundError, match="names column nest"):
        connection.ingest(name, TABLE, shard_key="nest")
    with pytest.raises(ValueError, match="mode is one of append, create"):
        connection.ingest(name, TABLE, mode="overwrite")
    with pytest.raises(volary.NotFoundError, match="names column tūī"):
        connection.ingest(name, TABLE, shard_key="tūī")
    for data in (7, [7]):
        with pytest.raises(TypeError, match="int"):
            connection.ingest(name, data)
    with pytest.raises(FileNotFoundError):
        connection.ingest(name, tmp_path / "nothing.parquet")
    connection.ingest(name, TABLE)
    with pytest.raises(volary.AlreadyExistsError, match=name):
        connection.ingest(name, TABLE, mode="create")
    with pytest.raises(volary.InvalidArgumentError, match="column colour is none of table"):
        connection.ingest(name, TABLE.append_column("colour", pa.array(["a", "b", "c"])))
    assert stored(connection, name) == ROWS


def test_a_stream_that_fails_keeps_nothing(connection, name):
    def batches():
        yield TABLE.to_batches()[0]
        raise OSError("the disk is gone")

    with pytest.raises((volary.Error, OSError), match="the disk is gone"):
        connection.ingest(name, pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    assert name not in connection.tables()
    assert connection.ingest(name, TABLE) == 3
