"""Tests streams of batches and batch ids on the wire: answers, windows, refusals, and what happens to a batch that is
sent again.
"""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_stream import BatchStream, committed, ingest_command, outcomes
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import PATIENCE_SECONDS, Processes, until
from pyarrow import flight
from scrape import Operations

import volary

SCHEMA = pa.schema({"k": pa.int64(), "name": pa.string()})


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[flight.FlightClient]:
    with flight.connect(cluster.uri) as client:
        yield client


def birds(*keys: int | None, name: str | None = "kea") -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "name": pa.array([name] * len(keys), pa.string())})


def keys(connection: volary.Connection, table: str) -> list[int]:
    return [key for (key,) in connection.sql(f"SELECT k FROM {table} ORDER BY k").rows()]


def headers(**named: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(
        headers=[(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    )


def status(client: flight.FlightClient, **body: Any) -> dict[str, Any]:
    (result,) = client.do_action(flight.Action("volary.batch_status", json.dumps(body).encode()))
    answer: dict[str, Any] = json.loads(result.body.to_pybytes())
    return answer


# Answers


def test_batches_are_answered_in_order_and_visible_when_they_are(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA)
    assert stream.opened.keys() == {"query_id", "producer", "last_sequence", "window"}
    assert stream.opened["producer"] is None
    assert stream.opened["last_sequence"] == 0
    for sequence in range(1, 4):
        stream.send(sequence, birds(sequence))
        note = stream.note()
        assert outcomes([note]) == committed([sequence])
        assert note["window"] == stream.opened["window"]
        assert keys(connection, empty_table) == list(range(1, sequence + 1))
    for sequence in range(4, 100):
        stream.send(sequence, birds(sequence, sequence + 1000))
    stream.close()
    assert outcomes(stream.notes()) == committed(range(4, 100), rows=2)
    logged = "SELECT outcome, rows FROM system.query_log WHERE query_id = ?"
    assert connection.sql(logged, [stream.opened["query_id"]]).rows() == [("finished", 3 + 2 * 96)]


def test_a_stream_without_batches_and_an_empty_batch_are_fine(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.close()
    assert stream.notes() == []
    stream = BatchStream(client, empty_table, SCHEMA, producer="kea")
    stream.send(1, birds())
    stream.close()
    assert outcomes(stream.notes()) == committed([1], rows=0)
    assert status(client, table=empty_table, producer="kea")["last_sequence"] == 1


def test_messages_of_one_batch_are_committed_together(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.send(1, birds(1), more=True)
    stream.send(1, birds(2, 3), more=True)
    stream.send(1, birds(4), more=False)
    stream.send(2, birds(5))
    stream.close()
    assert outcomes(stream.notes()) == [(1, "committed", 4), (2, "committed", 1)]
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.send(1, birds(6), more=True)
    stream.close()
    notes, error = stream.failure()
    assert notes == []
    assert "closed within batch 1" in str(error)
    assert keys(connection, empty_table) == [1, 2, 3, 4, 5]


def test_large_and_small_batches_commit_in_order(client, connection, empty_table):
    # A batch of a few MiB has a commit of its own, and a small one is committed together with others.
    large = [birds(*range(number * 20_000, (number + 1) * 20_000), name="x" * 100) for number in range(4)]
    stream = BatchStream(client, empty_table, SCHEMA, producer="mixed")
    batches = [birds(-1), large[0], birds(-2), birds(-3), large[1], large[2], large[3], birds(-4)]
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(stream.notes)
        for sequence, batch in enumerate(batches, 1):
            stream.send(sequence, batch)
        stream.close()
        rows = [batch.num_rows for batch in batches]
        assert outcomes(read.result()) == [(at, "committed", count) for at, count in enumerate(rows, 1)]
    assert len(keys(connection, empty_table)) == sum(rows)
    assert status(client, table=empty_table, producer="mixed")["last_sequence"] == len(batches)


def test_it_is_listed_and_kill_ends_it(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.send(1, birds(1))
    assert outcomes([stream.note()]) == committed([1])
    query_id = stream.opened["query_id"]
    listed = connection.sql("SELECT state, statement FROM system.queries WHERE query_id = ?", [query_id]).rows()
    assert listed == [("running", f"INGEST STREAM INTO {empty_table}")]
    connection.sql(f"KILL '{query_id}'")
    notes, error = stream.failure()
    assert notes == []
    assert "KILL has ended it" in str(error)
    assert keys(connection, empty_table) == [1]


# Batches that are sent again


def test_a_batch_that_is_sent_again_is_not_applied_again(client, connection, empty_table):
    producer = str(uuid.uuid4())
    stream = BatchStream(client, empty_table, SCHEMA, producer=producer)
    assert stream.opened["producer"] == producer
    stream.send(1, birds(1))
    stream.send(2, birds(2, 3))
    assert outcomes([stream.note(), stream.note()]) == [(1, "committed", 1), (2, "committed", 2)]
    stream.cancel()

    stream = BatchStream(client, empty_table, SCHEMA, producer=producer)
    assert stream.opened["last_sequence"] == 2
    # The same rows are recognised however they are cut into messages.
    stream.send(2, birds(2), more=True)
    stream.send(2, birds(3))
    stream.send(3, birds(4))
    stream.close()
    assert outcomes(stream.notes()) == [(2, "duplicate", 2), (3, "committed", 1)]
    assert keys(connection, empty_table) == [1, 2, 3, 4]
    shown = "SELECT producer, kind, last_sequence, last_rows FROM system.producers WHERE table_name = ?"
    assert connection.sql(shown, [empty_table]).rows() == [(producer, "stream", 3, 1)]


def test_other_rows_under_a_number_are_refused(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA, producer="kea")
    stream.send(1, birds(1))
    stream.send(1, birds(7))
    notes, error = stream.failure()
    assert outcomes(notes) == [(1, "committed", 1), (1, "refused", None)]
    assert notes[1]["error"]["code"] == "ALREADY_EXISTS"
    assert "was sent before with other rows" in notes[1]["error"]["message"]
    assert "ALREADY_EXISTS" in str(error)
    assert keys(connection, empty_table) == [1]


def test_a_gap_is_refused_and_says_what_is_expected(client, connection, empty_table):
    for producer in ({"producer": "kea"}, {}):
        stream = BatchStream(client, empty_table, SCHEMA, **producer)
        stream.send(1, birds(1))
        stream.send(3, birds(3))
        notes, error = stream.failure()
        assert outcomes(notes) == committed([1])
        assert "INVALID_ARGUMENT" in str(error)
        assert "batch 2 must come next" in str(error)
    assert keys(connection, empty_table) == [1, 1]


def test_a_new_stream_of_a_producer_ends_the_one_before(client, connection, empty_table):
    first = BatchStream(client, empty_table, SCHEMA, producer="kea")
    first.send(1, birds(1))
    assert outcomes([first.note()]) == committed([1])
    second = BatchStream(client, empty_table, SCHEMA, producer="kea")
    assert second.opened["last_sequence"] == 1
    notes, error = first.failure()
    assert notes == []
    assert "another stream of producer kea was opened" in str(error)
    second.send(2, birds(2))
    second.close()
    assert outcomes(second.notes()) == committed([2])


def test_a_table_that_is_created_again_knows_no_producer(client, connection, empty_table):
    for _ in range(2):
        stream = BatchStream(client, empty_table, SCHEMA, producer="kea")
        assert stream.opened["last_sequence"] == 0
        stream.send(1, birds(1))
        stream.close()
        assert outcomes(stream.notes()) == committed([1])
        connection.sql(f"DROP TABLE {empty_table}")
        connection.sql(f"CREATE TABLE {empty_table} (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 2)")


# Refusals


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema({"k": pa.int64(), "colour": pa.string()}), "colour"),
        (pa.schema({"k": pa.int64(), "K": pa.int64()}), "both match column k"),
    ],
)
def test_wrong_columns_are_refused_when_the_stream_opens(client, empty_table, schema, message):
    with pytest.raises(pa.ArrowInvalid, match=message):
        BatchStream(client, empty_table, schema)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (birds(1, None), "column k"),
        (pa.record_batch({"k": pa.array(["kea"]), "name": ["kea"]}), "column k"),
        (pa.record_batch({"k": pa.array([2**63], pa.uint64()), "name": ["kea"]}), "column k"),
        (pa.record_batch({"name": ["kea"]}), "column k"),
    ],
    ids=["null", "type", "range", "missing"],
)
def test_wrong_rows_refuse_their_batch_and_end_the_stream(client, connection, empty_table, batch, message):
    stream = BatchStream(client, empty_table, batch.schema, producer="kea")
    stream.send(1, batch)
    notes, error = stream.failure()
    assert outcomes(notes) == [(1, "refused", None)]
    refusal = notes[0]["error"]
    assert refusal["code"] == "INVALID_ARGUMENT"
    assert len(refusal["sqlstate"]) == 5
    assert message in refusal["message"]
    assert message in str(error)
    assert keys(connection, empty_table) == []


def test_a_stream_that_continues_goes_on_after_wrong_rows(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA, producer="kea", **{"continue": "true"})
    for sequence, batch in enumerate([birds(1), birds(None), birds(None), birds(4)], 1):
        stream.send(sequence, batch)
    answers = [stream.note() for _ in range(4)]
    expected = [(1, "committed", 1), (2, "refused", None), (3, "refused", None), (4, "committed", 1)]
    assert outcomes(answers) == expected
    stream.cancel()
    # The refused batches have used their numbers up, and stay refused.
    stream = BatchStream(client, empty_table, SCHEMA, producer="kea", **{"continue": "true"})
    assert stream.opened["last_sequence"] == 4
    stream.send(3, birds(None))
    stream.send(4, birds(4))
    stream.close()
    assert outcomes(stream.notes()) == [(3, "refused", None), (4, "duplicate", 1)]
    assert status(client, table=empty_table, producer="kea", sequence=3)["status"] == "refused"
    assert keys(connection, empty_table) == [1, 4]


def test_a_check_refuses_a_batch(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.send(1, birds(-1))
    assert outcomes([stream.note()]) == committed([1])
    # The stream learns of what is declared while it is open.
    connection.sql(f"ALTER TABLE {empty_table} ADD CONSTRAINT positive CHECK (k > 0) NOT VALID")
    stream.send(2, birds(-2))
    notes, error = stream.failure()
    assert notes[0]["error"]["sqlstate"] == "23514"
    assert "positive" in str(error)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (b"", "app_metadata"),
        (b"{}", "app_metadata"),
        (b'{"sequence": "1"}', "app_metadata"),
        (b'{"sequence": 1, "last": true}', "app_metadata"),
        (b'{"sequence": 0}', "numbered from 1"),
        (b"\xff\xfe", "app_metadata"),
    ],
)
def test_a_message_without_its_number_is_refused(client, empty_table, metadata, message):
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.send_raw(birds(1), metadata)
    notes, error = stream.failure()
    assert notes == []
    assert message in str(error)


def test_messages_of_two_batches_do_not_mix(client, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA)
    stream.send(1, birds(1), more=True)
    stream.send(2, birds(2))
    _, error = stream.failure()
    assert "came within batch 1" in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "perhaps"}, "volary-ingest-stream"),
        ({"producer": "x" * 65}, "volary-ingest-producer"),
        ({"producer": ""}, "volary-ingest-producer"),
        ({"continue": "2"}, "volary-ingest-continue"),
        ({"shards": "8"}, 'no option "shards"'),
    ],
)
def test_wrong_options_are_refused(client, empty_table, options, message):
    with pytest.raises(pa.ArrowInvalid, match=message):
        BatchStream(client, empty_table, SCHEMA, **options)


def test_a_stream_creates_no_table_and_needs_a_doexchange(client, empty_table, name):
    with pytest.raises(pa.ArrowException, match=f"NOT_FOUND.*{name}"):
        BatchStream(client, name, SCHEMA)
    with pytest.raises(pa.ArrowInvalid, match="create the table first"):
        BatchStream(client, name, SCHEMA, if_not_exist=1)
    put = flight.FlightDescriptor.for_command(ingest_command(empty_table, {"stream": "true"}))
    writer, _ = client.do_put(put, SCHEMA)
    writer.done_writing()
    with pytest.raises(pa.ArrowInvalid, match="needs a DoExchange"):
        writer.close()


def test_a_dropped_table_ends_the_stream(client, connection, empty_table):
    stream = BatchStream(client, empty_table, SCHEMA, producer="kea")
    stream.send(1, birds(1))
    assert outcomes([stream.note()]) == committed([1])
    connection.sql(f"DROP TABLE {empty_table}")
    stream.send(2, birds(2))
    notes, error = stream.failure()
    assert notes == []
    assert "NOT_FOUND" in str(error)
    assert f'table "{empty_table}" was dropped while a stream wrote to it' in str(error)


# Rights and limits


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with users, and with small limits for streams."""
    settings = {
        **SECURED,
        "VOLARY_GATEWAY__INGEST__STREAM_WINDOW": "64KiB",
        "VOLARY_GATEWAY__INGEST__MAX_STREAMS": "2",
        "VOLARY_GATEWAY__INGEST__MAX_PRODUCERS": "3",
    }
    with LocalCluster(tmp_path_factory.mktemp("limited"), 1, settings=settings) as cluster:
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}'")
            admin.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        yield cluster


@contextmanager
def logged_in(cluster: LocalCluster, user: str, password: str) -> Iterator[tuple[flight.FlightClient, Any]]:
    with flight.connect(cluster.uri) as client:
        header = client.authenticate_basic_token(user, password)
        yield client, flight.FlightCallOptions(headers=[header])


def test_a_right_that_is_revoked_ends_the_stream(limited):
    with (
        volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin,
        logged_in(limited, "kea", PASSWORD) as (client, call),
    ):
        with pytest.raises(pa.ArrowException, match=r"NOT_FOUND|PERMISSION_DENIED"):
            BatchStream(client, "nests", SCHEMA, call)
        admin.sql("GRANT INSERT ON nests TO kea")
        stream = BatchStream(client, "nests", SCHEMA, call, producer="kea")
        stream.send(1, birds(1))
        assert outcomes([stream.note()]) == committed([1])
        admin.sql("REVOKE INSERT ON nests FROM kea")
        stream.send(2, birds(2))
        notes, error = stream.failure()
        assert notes == []
        assert "nests" in str(error)
        assert "NOT_FOUND" in str(error) or "PERMISSION_DENIED" in str(error)
        action = flight.Action("volary.batch_status", json.dumps({"table": "nests", "producer": "kea"}).encode())
        with pytest.raises(pa.ArrowException, match="nests"):
            list(client.do_action(action, call))
        assert admin.sql("SELECT count(*) FROM nests").rows() == [(1,)]


def test_a_stream_ends_with_the_token_that_has_opened_it(limited):
    with (
        volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin,
        flight.connect(limited.uri) as client,
    ):
        admin.sql("CREATE TABLE tokens (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        (row,) = admin.sql("CREATE TOKEN of_a_stream").to_arrow().to_pylist()
        stream = BatchStream(client, "tokens", SCHEMA, headers(authorization=f"Bearer {row['token']}"))
        stream.send(1, birds(1))
        assert outcomes([stream.note()]) == committed([1])
        admin.sql("DROP TOKEN of_a_stream")
        stream.send(2, birds(2))
        stream.close()
        notes, error = stream.failure()
        assert notes == []
        assert isinstance(error, flight.FlightUnauthenticatedError)
        assert "dropped" in str(error)
        assert admin.sql("SELECT k FROM tokens").rows() == [(1,)]


def test_a_stream_ends_with_the_session_that_has_opened_it(limited):
    with (
        volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin,
        logged_in(limited, "admin", ADMIN_PASSWORD) as (client, call),
    ):
        admin.sql("CREATE TABLE sessions (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        stream = BatchStream(client, "sessions", SCHEMA, call)
        stream.send(1, birds(1))
        assert outcomes([stream.note()]) == committed([1])
        list(client.do_action(flight.Action("CloseSession", b""), call))
        stream.send(2, birds(2))
        stream.close()
        notes, error = stream.failure()
        assert notes == []
        assert isinstance(error, flight.FlightUnauthenticatedError)
        assert "the session was closed" in str(error)
        assert admin.sql("SELECT k FROM sessions").rows() == [(1,)]


def test_a_stream_goes_on_when_the_token_of_its_session_has_expired(tmp_path: Path) -> None:
    settings = SECURED | {"VOLARY_GATEWAY__SECURITY__TOKEN_LIFETIME": "3s"}
    with (
        LocalCluster(tmp_path, 1, settings=settings) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        with logged_in(cluster, "admin", ADMIN_PASSWORD) as (client, call):
            stream, sequence = BatchStream(client, "nests", SCHEMA, call), 0

            def failure() -> BaseException | None:
                nonlocal sequence
                sequence += 1
                stream.send(sequence, birds(sequence))
                try:
                    assert outcomes([stream.note()]) == committed([sequence])
                except pa.ArrowException as error:
                    return error
                return None

            error = until(failure, "the stream has ended with its token")
            assert isinstance(error, flight.FlightUnavailableError)
            assert "the session's token with which the stream was opened has expired" in str(error)
        with (
            volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as connection,
            connection.stream("nests") as written,
        ):
            written.write(birds(0)).result(timeout=PATIENCE_SECONDS)
            first, rows = written.query_id, 1

            def goes_on() -> bool:
                nonlocal rows
                written.write(birds(0)).result(timeout=PATIENCE_SECONDS)
                rows += 1
                return written.query_id != first

            until(goes_on, "the client has opened another stream")
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as connection:
            assert connection.sql("SELECT count(*) FROM nests WHERE k = 0").rows() == [(rows,)]


def test_a_batch_that_is_larger_than_the_window_is_refused(limited):
    with logged_in(limited, "admin", ADMIN_PASSWORD) as (client, call):
        stream = BatchStream(client, "nests", SCHEMA, call, producer="large", **{"continue": "true"})
        assert stream.opened["window"] == 64 << 10
        text = "x" * (40 << 10)
        stream.send(1, birds(1, name=text))
        # The second one is sent again before it was answered, and is noted only once.
        large = (2, 2, 3)
        for sequence in large:
            stream.send(sequence, birds(1, name=text), more=True)
            stream.send(sequence, birds(2, name=text))
        stream.send(4, birds(4))
        stream.close()
        notes = stream.notes()
        refused = [(sequence, "refused", None) for sequence in large]
        assert outcomes(notes) == [(1, "committed", 1), *refused, (4, "committed", 1)]
        assert "gateway.ingest.stream_window" in notes[1]["error"]["message"]


def test_there_is_a_limit_on_streams_and_on_producers(limited):
    with logged_in(limited, "admin", ADMIN_PASSWORD) as (client, call):
        streams = [BatchStream(client, "nests", SCHEMA, call) for _ in range(2)]
        with pytest.raises(pa.ArrowException, match=r"RESOURCE_EXHAUSTED.*gateway\.ingest\.max_streams"):
            BatchStream(client, "nests", SCHEMA, call)
        for stream in streams:
            stream.close()
            assert stream.notes() == []
        with volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql("CREATE TABLE few (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        for number in range(3):
            stream = BatchStream(client, "few", SCHEMA, call, producer=str(number))
            stream.send(1, birds(number))
            stream.close()
            assert outcomes(stream.notes()) == committed([1])
        with pytest.raises(pa.ArrowException, match=r"RESOURCE_EXHAUSTED.*gateway\.ingest\.max_producers"):
            BatchStream(client, "few", SCHEMA, call, producer="another")
        stream = BatchStream(client, "few", SCHEMA, call, producer="2")
        assert stream.opened["last_sequence"] == 1
        stream.close()


def test_an_idle_stream_ends_and_names_the_setting(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_GATEWAY__INGEST__STREAM_IDLE_TIMEOUT": "1s"}) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        with flight.connect(processes.gateway.uri) as client:
            stream = BatchStream(client, "nests", SCHEMA)
            stream.send(1, birds(1))
            notes, error = stream.failure()
            assert outcomes(notes) == committed([1])
            assert "DEADLINE_EXCEEDED" in str(error)
            assert "gateway.ingest.stream_idle_timeout" in str(error)


# Restarts


def test_batches_survive_the_gateway_and_are_sent_again_without_doubles(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        applied = 0
        for _ in range(3):
            with flight.connect(processes.gateway.uri) as client:
                stream = BatchStream(client, "nests", SCHEMA, producer="kea")
                # Whatever was acknowledged is there, and what was not may be.
                assert stream.opened["last_sequence"] >= applied
                for sequence in range(applied + 1, applied + 11):
                    stream.send(sequence, birds(sequence))
                for _ in range(5):
                    note = stream.note()
                    assert note["outcome"] in ("committed", "duplicate")
                    applied = note["sequence"]
                processes.gateway.kill()
            processes.gateway.start()
        with flight.connect(processes.gateway.uri) as client:
            stream = BatchStream(client, "nests", SCHEMA, producer="kea")
            last = stream.opened["last_sequence"]
            stream.close()
        rows = [key for (key,) in processes.sql("SELECT k FROM nests ORDER BY k")]
        assert rows == list(range(1, last + 1))
        assert last >= applied


def test_a_gateway_that_stops_answers_what_it_has_read_and_says_so(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        with flight.connect(processes.gateway.uri) as client:
            stream = BatchStream(client, "nests", SCHEMA)
            stream.send(1, birds(1))
            assert outcomes([stream.note()]) == committed([1])
            processes.gateway.running().signal(signal.SIGTERM)
            notes, error = stream.failure()
            assert notes == []
            assert isinstance(error, flight.FlightUnavailableError)
            assert "shutting down" in str(error)
            processes.gateway.running().await_end()


def test_a_gateway_that_stops_waits_for_the_batches_that_it_commits(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}) as processes:
        worker = processes.add_worker()
        gateway = processes.gateway.running()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        with flight.connect(processes.gateway.uri) as client:
            stream = BatchStream(client, "nests", SCHEMA)
            stream.send(1, birds(1))
            assert outcomes([stream.note()]) == committed([1])
            worker.running().signal(signal.SIGSTOP)
            stream.send(2, birds(2))
            operations = Operations(gateway.output())
            until(lambda: operations.values()["volary_ingest_stream_bytes"] > 0, "the gateway has read the batch")
            gateway.signal(signal.SIGTERM)
            until(lambda: " stopping" in gateway.log(), "the gateway stops")
            worker.running().signal(signal.SIGCONT)
            notes, error = stream.failure()
            assert outcomes(notes) == committed([2])
            assert isinstance(error, flight.FlightUnavailableError)
            assert "shutting down" in str(error)
            gateway.await_end()
            assert "panicked" not in gateway.log(), gateway.tail()


# Groups


def test_small_writes_that_wait_share_a_commit(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO nests VALUES (0, 'kea')")
        operations = Operations(processes.gateway.running().output())
        groups = "volary_write_groups_total"
        members = "volary_write_group_members_total"
        queued = "volary_write_queue_bytes"
        before = operations.values()
        count = 20

        def insert(key: int) -> int:
            with processes.connect() as connection:
                return connection.sql(f"INSERT INTO nests VALUES ({key}, 'tui')").rows_affected

        worker.running().signal(signal.SIGSTOP)
        with ThreadPoolExecutor(count) as threads:
            first = threads.submit(insert, 1)
            held = operations.values
            until(lambda: held()[queued] > 0, "the first group is in flight")
            single = held()[queued]
            others = [threads.submit(insert, key) for key in range(2, count + 1)]
            until(lambda: held()[queued] >= count * single, "all others wait")
            worker.running().signal(signal.SIGCONT)
            assert [first.result(), *(other.result() for other in others)] == [1] * count
        after = operations.values()
        assert after[members] - before[members] == count
        assert after[groups] - before[groups] == 2
        assert processes.sql("SELECT count(*), sum(k) FROM nests") == [(count + 1, sum(range(count + 1)))]
        logged = "SELECT count(*) FROM system.query_log WHERE statement LIKE 'INSERT INTO nests%tui%' AND rows = 1"
        assert processes.sql(logged) == [(count,)]


def test_a_write_that_waits_can_be_ended_and_does_not_fail_the_others(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO nests VALUES (0, 'kea')")
        held = Operations(processes.gateway.running().output()).values
        queued = "volary_write_queue_bytes"

        def insert(key: int) -> None:
            with processes.connect() as connection:
                connection.sql(f"INSERT INTO nests VALUES ({key}, 'tui')")

        worker.running().signal(signal.SIGSTOP)
        with ThreadPoolExecutor(3) as threads:
            first = threads.submit(insert, 1)
            until(lambda: held()[queued] > 0, "the first group is in flight")
            single = held()[queued]
            others = [threads.submit(insert, key) for key in (2, 3)]
            until(lambda: held()[queued] >= 3 * single, "the others wait")
            with pytest.raises(volary.InvalidArgumentError, match="column k"):
                processes.sql("INSERT INTO nests VALUES (NULL, 'wrong')")
            find = "SELECT query_id FROM system.queries WHERE statement = 'INSERT INTO nests VALUES (2, ''tui'')'"
            ((query_id,),) = processes.sql(find)
            processes.sql(f"KILL '{query_id}'")
            with pytest.raises(volary.CancelledError, match="KILL"):
                others[0].result()
            worker.running().signal(signal.SIGCONT)
            first.result()
            others[1].result()
        assert processes.sql("SELECT k FROM nests ORDER BY k") == [(0,), (1,), (3,)]


# Batch ids


def affected(client: flight.FlightClient, statement: str, batch_id: str) -> int:
    descriptor = flight.FlightDescriptor.for_command(statement)
    writer, reader = client.do_exchange(descriptor, headers(volary_batch_id=batch_id))
    writer.begin(pa.schema([]))
    writer.done_writing()
    note = json.loads(reader.read_chunk().app_metadata.to_pybytes())
    return int(note["rows_affected"])


def test_a_statement_with_an_id_is_applied_once(client, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, name) VALUES (1, 'kea'), (2, 'kaka')"
    for _ in range(3):
        assert affected(client, insert, "one") == 2
    with pytest.raises(pa.ArrowException, match=r"ALREADY_EXISTS.*batch id one belongs to another statement"):
        affected(client, insert.replace("kea", "tui"), "one")
    assert affected(client, insert, "another") == 2
    assert keys(connection, empty_table) == [1, 1, 2, 2]
    known = status(client, table=empty_table, producer="one")
    assert (known["status"], known["rows"], known["last_sequence"]) == ("committed", 2, 1)
    assert status(client, table=empty_table, producer="other")["status"] == "unknown"
    shown = "SELECT producer FROM system.producers WHERE table_name = ? AND kind = 'statement' ORDER BY producer"
    assert connection.sql(shown, [empty_table]).rows() == [("another",), ("one",)]


def test_a_large_insert_with_an_id_is_applied_once(client, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, name) SELECT value, repeat('x', 100) FROM generate_series(1, 50000)"
    for _ in range(2):
        assert affected(client, insert, "large") == 50_000
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(50_000,)]


def test_rows_that_are_ingested_with_an_id_are_applied_once(client, connection, empty_table):
    def ingest(*batches: pa.RecordBatch) -> None:
        descriptor = flight.FlightDescriptor.for_command(ingest_command(empty_table, {}))
        writer, reader = client.do_put(descriptor, SCHEMA, headers(volary_batch_id="ingest"))
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        reader.read()
        writer.close()

    ingest(birds(1, 2), birds(3))
    ingest(birds(1), birds(2, 3))
    with pytest.raises(pa.ArrowException, match="ALREADY_EXISTS"):
        ingest(birds(1, 2, 4))
    assert keys(connection, empty_table) == [1, 2, 3]


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1", "CREATE TABLE not_created (k BIGINT)", "SET timezone = 'UTC'", "CREATE VIEW v AS SELECT 1 AS one"],
)
def test_other_statements_take_no_id(client, statement):
    with pytest.raises(pa.ArrowInvalid, match="volary-batch-id"):
        affected(client, statement, "id")


def test_an_id_is_a_short_text(client, empty_table):
    with pytest.raises(pa.ArrowInvalid, match="volary-batch-id must be a text of 1 to 64 characters"):
        affected(client, f"INSERT INTO {empty_table} (k) VALUES (1)", "x" * 65)
    with pytest.raises(pa.ArrowInvalid, match=r"the body of volary\.batch_status must be JSON"):
        list(client.do_action(flight.Action("volary.batch_status", b"{}")))
