"""Tests Connection.ingest with all kinds of rows, with and without a layout."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import PATIENCE_SECONDS, until

import volary

TABLE = pa.table({"k": [1, 2, 3], "name": ["kea", None, "tui"]})
ROWS = [(1, "kea"), (2, None), (3, "tui")]


def ingested_at_last(connection, name: str, data: volary.IngestData) -> int:
    """Ingests rows into a new table. A cancelled statement may still be creating that table, so this is retried."""

    def ingested() -> int | None:
        try:
            return connection.ingest(name, data)
        except volary.AlreadyExistsError:
            return None

    return until(ingested, "the gateway has ended the cancelled statement")


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
    with pytest.raises(ValueError, match="mode must be one of append, create"):
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
    with pytest.raises(volary.InvalidArgumentError, match="column colour does not exist in table"):
        connection.ingest(name, TABLE.append_column("colour", pa.array(["a", "b", "c"])))
    assert stored(connection, name) == ROWS


def test_a_stream_that_fails_keeps_nothing(connection, name):
    def batches():
        yield TABLE.to_batches()[0]
        raise OSError("the disk is gone")

    with pytest.raises((volary.Error, OSError), match="the disk is gone"):
        connection.ingest(name, pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    assert name not in connection.tables()
    assert ingested_at_last(connection, name, TABLE) == 3


NOT_NULL = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("name", pa.string())])
KEA = pa.record_batch([[1], ["kea"]], schema=NOT_NULL)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([KEA, TABLE.to_batches()[0]], r"batch 2 .* column 1 is k: int64, not k: int64 not null; .*cast"),
        ([KEA.rename_columns(["id", "name"])], "batch 1 .* column 1 is id: int64 not null, not k: int64 not null;"),
        ([KEA.select(["name"])], "batch 1 .* it has 1 columns, not 2;"),
        ([KEA.append_column("day", pa.nulls(1, pa.date32()))], "batch 1 .* it has 3 columns, not 2;"),
        (
            [pa.record_batch([[1], [2]], names=["a", "b"])],
            "column 1 is a: int64, not k: int64 not null, column 2 is b: int64, not name: string;",
        ),
    ],
    ids=["nullable", "another name", "too few", "too many", "all of them"],
)
def test_a_batch_that_is_not_of_its_streams_schema_is_named(connection, name, batches, said):
    stream = pa.RecordBatchReader.from_batches(NOT_NULL, iter(batches))
    with pytest.raises(volary.InvalidArgumentError, match=said):
        connection.ingest(name, stream, timeout=5 * PATIENCE_SECONDS)
    assert name not in connection.tables()
    assert ingested_at_last(connection, name, TABLE) == 3


def test_a_batch_may_be_annotated_otherwise_than_its_stream(connection, name):
    stream = pa.RecordBatchReader.from_batches(NOT_NULL.with_metadata({"note": "of a file"}), iter([KEA]))
    assert connection.ingest(name, stream) == 1


DEEP = pa.int64()
for _ in range(80):
    DEEP = pa.list_(DEEP)


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    # Arrow's format allows no larger batch.
    [(1 << 31, pa.null(), "larger than"), (1, DEEP, "recursion depth")],
    ids=["too many rows", "too deep"],
)
def test_a_batch_that_cannot_be_sent_ends_the_write(connection, name, rows, kind, said):
    with pytest.raises(volary.InvalidArgumentError, match=said):
        connection.ingest(name, pa.record_batch({"k": pa.nulls(rows, kind)}), timeout=5 * PATIENCE_SECONDS)
    assert name not in connection.tables()
    assert ingested_at_last(connection, name, TABLE) == 3


def test_a_gateway_that_ends_a_write_before_its_last_row_says_why(connection, name):
    def endless():
        while True:
            yield TABLE.to_batches()[0]

    with pytest.raises(volary.NotFoundError, match=name) as caught:
        connection.ingest(
            name,
            pa.RecordBatchReader.from_batches(TABLE.schema, endless()),
            mode="append",
            timeout=5 * PATIENCE_SECONDS,
        )
    assert "gRPC" not in caught.value.message
