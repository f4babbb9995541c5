"""Tests that keys and rows of lookups count for the memory of a query, however small their messages are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from cluster import LocalCluster
from key_stream import KeyStream, lookup_command
from pyarrow import flight

import volary

SETTINGS = {"VOLARY_GATEWAY__QUERY__MEMORY": "64MiB"}
# The size of the only large row and of a large key, in bytes.
LARGE = 1_000_000


@pytest.fixture
def connection(tmp_path) -> Iterator[volary.Connection]:
    with LocalCluster(tmp_path, workers=2, settings=SETTINGS) as cluster, volary.connect(cluster.uri) as connection:
        yield connection


def assert_refused(stream: KeyStream, what: str) -> None:
    """Checks that the next batch is refused, because there is too little memory for `what`."""
    note, rows = stream.answer()
    assert rows == []
    assert note["error"]["code"] == "RESOURCE_EXHAUSTED"
    assert f"allocation failed for {what}" in note["error"]["message"]


def test_keys_that_are_stored_once_count_as_often_as_they_are_asked_for(connection):
    connection.sql("CREATE TABLE texts (k VARCHAR, n BIGINT) WITH (shard_key = 'k')")
    connection.sql("INSERT INTO texts VALUES ('kea', 1)")
    count = 10_000
    large = pa.array(["x" * LARGE, "kea"], pa.large_string())
    indices = pa.array([0] * count, pa.int8())
    ends = pa.array([count, count + 1], pa.int32())
    for keys, small in (
        (pa.DictionaryArray.from_arrays(indices, large), pa.DictionaryArray.from_arrays(indices[:1], large[1:])),
        (pa.RunEndEncodedArray.from_arrays(ends, large), pa.RunEndEncodedArray.from_arrays(ends[:1], large[1:])),
    ):
        with flight.connect(connection.uri) as client:
            stream = KeyStream(client, lookup_command("texts", ["n"]), pa.schema([("k", keys.type)]))
            stream.send_array(keys)
            assert_refused(stream, "keys of lookups")
            stream.send_array(small[:1])
            assert stream.answer()[1] == [(0, 1)]


def test_a_large_row_counts_as_often_as_its_key_is_asked_for(connection):
    connection.sql("CREATE TABLE rows (k BIGINT, s VARCHAR) WITH (shard_key = 'k')")
    connection.sql("INSERT INTO rows SELECT n, 'small' FROM generate_series(2, 9000) g(n)")
    connection.sql("INSERT INTO rows SELECT 1, repeat('x', 1000000)")
    with flight.connect(connection.uri) as client:
        stream = KeyStream(client, lookup_command("rows", ["s"]))
        many = list(range(2, 9_001))
        stream.send(*many, *[1] * 200)
        assert_refused(stream, "rows of lookups")
        stream.send(*many, *[2] * 200, 1)
        note, rows = stream.answer()
        assert note["rows"] == len(rows) == 9_200
        assert len(rows[-1][1]) == LARGE
