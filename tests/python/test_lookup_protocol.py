"""Tests streams of lookups on the wire: answers, refused batches, what ends a stream, rights and limits."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from key_stream import KEYS, KeyStream, lookup_command
from processes import PATIENCE_SECONDS, Processes, until
from pyarrow import flight
from scrape import Operations

import volary

TEN_MILLION = 10_000_000
# More keys than batches that are joined have together.
MANY_KEYS = pa.array([1] * 9_000, pa.int64())
ENDLESS = "SELECT count(*) FROM generate_series(1, 9000000000000000000) t(n) WHERE n % 7 = 3"


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[flight.FlightClient]:
    with flight.connect(cluster.uri) as client:
        yield client


@pytest.fixture
def flock(connection: volary.Connection, empty_table: str) -> str:
    """A table with the keys 1 to 100. The keys 7 and 8 have two rows."""
    connection.sql(f"INSERT INTO {empty_table} (k, name) SELECT value, 'bird ' || value FROM generate_series(1, 100)")
    connection.sql(f"INSERT INTO {empty_table} (k, name) VALUES (7, 'twin'), (8, 'twin')")
    return empty_table


def refusal(answer: tuple[dict[str, Any], list[Any]], sequence: int) -> dict[str, Any]:
    """Returns the error with which a batch was refused."""
    note, rows = answer
    assert rows == []
    assert note["sequence"] == sequence
    error: dict[str, Any] = note["error"]
    return error


# Answers


def test_rows_come_in_the_order_of_their_keys_with_positions(client, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]))
    assert stream.opened.keys() == {"query_id", "max_keys", "window"}
    assert stream.columns.names == ["__position", "name"]
    assert stream.columns.field(0).type == pa.int32()
    stream.send(50, 3, 1000, 50, 7)
    note, rows = stream.answer()
    assert note == {"sequence": 2, "found": 4, "rows": 5}
    # The rows of one key come in any order.
    assert rows[:3] == [(0, "bird 50"), (1, "bird 3"), (3, "bird 50")]
    assert sorted(rows[3:]) == [(4, "bird 7"), (4, "twin")]
    stream.send(-1, -2)
    assert stream.answer() == ({"sequence": 3, "found": 0, "rows": 0}, [])
    stream.close()
    assert stream.answers() == []


def test_all_columns_come_in_the_order_of_the_table_unless_some_are_named(client, flock):
    stream = KeyStream(client, lookup_command(flock))
    assert stream.columns.names == ["__position", "k", "name", "price", "day"]
    stream.send(3)
    assert stream.answer()[1] == [(0, 3, "bird 3", None, None)]
    stream.close()
    stream = KeyStream(client, lookup_command(flock, ["name", "k"], schema="public", catalog="volary"))
    stream.send(3)
    assert stream.answer()[1] == [(0, "bird 3", 3)]


def test_batches_are_answered_in_order_however_many_are_under_way(client, flock):
    stream = KeyStream(client, lookup_command(flock, ["k"]))
    # Small batches are joined, and large ones are not.
    sizes = [1, 2, 5_000, 1, 9_000, 3, 20_000, 1, 0] * 10
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(stream.answers)
        for number, size in enumerate(sizes):
            stream.send(*([number % 100 + 1] * size))
        stream.close()
        answers = read.result()
    assert [note["sequence"] for note, _ in answers] == list(range(2, len(sizes) + 2))
    for number, (size, (note, rows)) in enumerate(zip(sizes, answers, strict=True)):
        twins = 2 if number % 100 + 1 in (7, 8) else 1
        assert note["rows"] == len(rows) == size * twins
        assert note["found"] == size
        assert [position for position, _ in rows] == [at for at in range(size) for _ in range(twins)]
        assert {key for _, key in rows} <= {number % 100 + 1}


def test_a_large_answer_comes_in_several_messages(client, connection, empty_table):
    connection.sql(f"INSERT INTO {empty_table} (k, name) SELECT value, repeat('x', 1000) FROM generate_series(1, 9999)")
    stream = KeyStream(client, lookup_command(empty_table, ["name"]))
    stream.send(*range(9_999, 0, -1))
    notes, batches = stream.messages()
    assert len(batches) > 2
    assert all(batch.nbytes < 4 << 20 for batch in batches)
    assert notes[:-1] == [{"sequence": 2, "more": True}] * (len(batches) - 1)
    assert notes[-1] == {"sequence": 2, "found": 9_999, "rows": 9_999}
    positions = [position for batch in batches for position in batch.column(0).to_pylist()]
    assert positions == list(range(9_999))


def test_each_batch_sees_what_is_committed_unless_the_stream_has_one_snapshot(client, connection, flock):
    newest = KeyStream(client, lookup_command(flock, ["name"]))
    fixed = KeyStream(client, lookup_command(flock, ["name"], one_snapshot=True))
    connection.sql(f"INSERT INTO {flock} (k, name) VALUES (200, 'late')")
    connection.sql(f"OPTIMIZE {flock}")
    for stream in (newest, fixed):
        stream.send(200, 1)
    assert newest.answer()[1] == [(0, "late"), (1, "bird 1")]
    assert fixed.answer()[1] == [(1, "bird 1")]


def test_it_is_listed_with_its_work_and_kill_ends_it(client, connection, flock):
    stream = KeyStream(client, lookup_command(flock))
    for _ in range(3):
        stream.send(1, 2, 3)
        assert stream.answer()[0]["rows"] == 3
    query_id = stream.opened["query_id"]
    listed = connection.sql("SELECT state, statement FROM system.queries WHERE query_id = ?", [query_id]).rows()
    assert listed == [("running", f"LOOKUP STREAM FROM {flock}")]
    connection.sql(f"KILL '{query_id}'")
    answers, error = stream.failure()
    assert answers == []
    assert "KILL has ended it" in str(error)
    assert query_id in str(error)

    stream = KeyStream(client, lookup_command(flock))
    stream.send(1, 2, 3, 7)
    stream.close()
    assert [note["rows"] for note, _ in stream.answers()] == [5]
    logged = "SELECT outcome, rows, workers > 0, shards > 0 FROM system.query_log WHERE query_id = ?"

    def logged_rows() -> list[tuple[Any, ...]]:
        return connection.sql(logged, [stream.opened["query_id"]]).rows()

    assert until(logged_rows, "the stream is remembered") == [("finished", 5, True, True)]


# Batches that are refused, and the stream goes on


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.array([1, None, 3], pa.int64()), "the key at position 1 is NULL"),
        (pa.array([1] * 1_000_001, pa.int64()), "gateway.lookup.max_keys"),
    ],
    ids=["null", "too many"],
)
def test_a_wrong_batch_is_refused_and_the_next_one_is_answered(client, flock, keys, message):
    stream = KeyStream(client, lookup_command(flock, ["name"]))
    stream.send(1)
    stream.send_array(keys)
    stream.send(2)
    assert stream.answer()[1] == [(0, "bird 1")]
    error = refusal(stream.answer(), 3)
    assert error["code"] == "INVALID_ARGUMENT"
    assert message in error["message"]
    assert stream.answer() == ({"sequence": 4, "found": 1, "rows": 1}, [(0, "bird 2")])


def test_ten_million_keys_in_a_batch_are_refused(client, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]), pa.schema({"k": pa.int8()}))
    stream.send_array(pa.nulls(TEN_MILLION, pa.int8()).fill_null(1))
    message = refusal(stream.answer(), 2)["message"]
    assert "a batch may have 1000000 keys" in message
    assert f"this one has {TEN_MILLION}" in message
    stream.send(1)
    assert stream.answer()[1] == [(0, "bird 1")]


def test_texts_are_parsed_and_wrong_ones_are_refused(client, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]), pa.schema({"k": pa.string()}))
    stream.send("1", "02")
    stream.send("3", "kea")
    stream.send("4")
    assert stream.answer()[1] == [(0, "bird 1"), (1, "bird 2")]
    message = refusal(stream.answer(), 3)["message"]
    assert "VARCHAR" in message
    assert f'shard key k of table "{flock}" is BIGINT' in message
    assert stream.answer()[1] == [(0, "bird 4")]


def test_a_number_that_no_key_can_be_has_no_row(client, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]), pa.schema({"k": pa.float64()}))
    stream.send(1.5, 2.0, float("nan"), 1e300)
    assert stream.answer() == ({"sequence": 2, "found": 1, "rows": 1}, [(1, "bird 2")])


# Streams that are not opened


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema({"k": pa.list_(pa.int64())}), "the shard key k of table .* is BIGINT"),
        (pa.schema({"k": pa.int64(), "l": pa.int64()}), "has one column, and this one has 2"),
        (pa.schema([]), "has one column, and this one has 0"),
    ],
    ids=["type", "two", "none"],
)
def test_keys_of_a_wrong_form_open_no_stream(client, flock, schema, message):
    with pytest.raises(pa.ArrowInvalid, match=message):
        KeyStream(client, lookup_command(flock), schema)


def test_what_has_no_shard_key_has_no_lookups(client, connection, name):
    connection.sql(f"CREATE TABLE {name} (k BIGINT, name VARCHAR) WITH (reference = true)")
    connection.sql(f"CREATE TABLE {name}_keyless (k BIGINT, name VARCHAR)")
    connection.sql(f"CREATE VIEW {name}_view AS SELECT * FROM {name}")
    cases = {
        lookup_command(name): "it is a reference table",
        lookup_command(f"{name}_keyless"): "the table has no shard key",
        lookup_command(f"{name}_view"): "it is a view",
        lookup_command("queries", schema="system"): "the tables of this schema have no shard key",
    }
    for command, message in cases.items():
        with pytest.raises(pa.ArrowInvalid, match=f"{message}.*query it with SELECT"):
            KeyStream(client, command)


def test_wrong_names_open_no_stream(client, flock, name):
    with pytest.raises(pa.ArrowException, match=f"NOT_FOUND.*{name}"):
        KeyStream(client, lookup_command(name))
    with pytest.raises(pa.ArrowException, match=r"NOT_FOUND.*moon"):
        KeyStream(client, lookup_command(flock, catalog="moon"))
    with pytest.raises(pa.ArrowException, match=r'NOT_FOUND.*has no column "colour"; it has k, name, price, day'):
        KeyStream(client, lookup_command(flock, ["colour"]))
    with pytest.raises(pa.ArrowInvalid, match='column "k" is asked for twice'):
        KeyStream(client, lookup_command(flock, ["k", "name", "k"]))
    with pytest.raises(pa.ArrowInvalid, match="names no table"):
        KeyStream(client, lookup_command(""))


def test_other_calls_take_no_lookup(client, flock):
    descriptor = flight.FlightDescriptor.for_command(lookup_command(flock))
    with pytest.raises(pa.ArrowNotImplementedError, match="LookupRequest is not supported here"):
        client.get_flight_info(descriptor)
    writer, _ = client.do_put(descriptor, KEYS)
    writer.done_writing()
    with pytest.raises(pa.ArrowNotImplementedError, match="LookupRequest is not supported here"):
        writer.close()


# What happens to the table


def test_a_dropped_table_ends_the_stream(client, connection, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]))
    stream.send(1)
    assert stream.answer()[1] == [(0, "bird 1")]
    connection.sql(f"DROP TABLE {flock}")
    stream.send(1)
    answers, error = stream.failure()
    assert answers == []
    assert "NOT_FOUND" in str(error)
    assert f'table "{flock}" was dropped while keys were looked up in it' in str(error)


def test_a_table_that_is_replaced_or_emptied_is_followed(client, connection, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]))
    connection.sql(f"TRUNCATE TABLE {flock}")
    stream.send(1)
    assert stream.answer() == ({"sequence": 2, "found": 0, "rows": 0}, [])
    columns = "k BIGINT NOT NULL, name VARCHAR, price DOUBLE, day DATE"
    for layout in ("shard_key = 'k', shards = 3", "shard_key = 'k', shards = 8"):
        connection.sql(f"CREATE OR REPLACE TABLE {flock} ({columns}) WITH ({layout})")
        connection.sql(f"INSERT INTO {flock} (k, name) VALUES (1, '{layout[-1]}')")
        stream.send(1)
        assert stream.answer()[1] == [(0, layout[-1])]
    connection.sql(f"CREATE OR REPLACE TABLE {flock} (k INTEGER, name VARCHAR) WITH (shard_key = 'k')")
    stream.send(1)
    _, error = stream.failure()
    assert f'the columns of table "{flock}" have changed' in str(error)


def test_a_table_that_is_emptied_before_the_first_key_is_looked_up_gives_a_newer_snapshot(client, connection, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"], one_snapshot=True))
    connection.sql(f"TRUNCATE TABLE {flock}")
    connection.sql(f"INSERT INTO {flock} (k, name) VALUES (1, 'second'), (2, 'second')")
    stream.send(1)
    assert stream.answer()[1] == [(0, "second")]
    connection.sql(f"INSERT INTO {flock} (k, name) VALUES (1, 'third')")
    stream.send(1)
    assert stream.answer()[1] == [(0, "second")]


@pytest.mark.parametrize("change", ["TRUNCATE TABLE {t}", "CREATE OR REPLACE TABLE {t} AS SELECT * FROM {t}"])
def test_a_snapshot_is_lost_with_the_rows_of_its_table(client, connection, flock, change):
    stream = KeyStream(client, lookup_command(flock, ["name"], one_snapshot=True))
    stream.send(1)
    assert stream.answer()[1] == [(0, "bird 1")]
    connection.sql(change.format(t=flock))
    stream.send(1)
    answers, error = stream.failure()
    assert answers == []
    assert "NOT_FOUND" in str(error)
    assert f'table "{flock}" was replaced or emptied since the stream of lookups took its snapshot' in str(error)
    assert "look the keys up again, in another stream" in str(error)


def test_batches_that_meet_a_truncate_are_looked_up_in_the_new_state(client, connection, flock):
    stream = KeyStream(client, lookup_command(flock, ["name"]))
    for _ in range(30):
        # Batches of this size are not joined, so some of them are under way when the workers drop the rows.
        for _ in range(12):
            stream.send_array(MANY_KEYS)
        connection.sql(f"TRUNCATE TABLE {flock}")
        for _ in range(12):
            note, _ = stream.answer()
            assert "error" not in note, note
        connection.sql(f"INSERT INTO {flock} (k, name) SELECT value, 'again' FROM generate_series(1, 100)")


# Rights and limits


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with users, and with small limits for lookups."""
    settings = {
        **SECURED,
        "VOLARY_GATEWAY__LOOKUP__MAX_STREAMS": "2",
        "VOLARY_GATEWAY__LOOKUP__MAX_KEYS": "3",
        "VOLARY_GATEWAY__LOOKUP__WINDOW": "1KiB",
    }
    with LocalCluster(tmp_path_factory.mktemp("limited"), 1, settings=settings) as cluster:
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}'")
            admin.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
            admin.sql("INSERT INTO nests VALUES (1, 'kea'), (2, 'tui')")
        yield cluster


@contextmanager
def logged_in(
    cluster: LocalCluster, user: str, password: str, options: Sequence[tuple[str, int]] = ()
) -> Iterator[tuple[flight.FlightClient, Any]]:
    with flight.connect(cluster.uri, generic_options=list(options)) as client:
        header = client.authenticate_basic_token(user, password)
        yield client, flight.FlightCallOptions(headers=[header])


def run(client: flight.FlightClient, statement: str, call: flight.FlightCallOptions) -> None:
    """Runs a statement in the session of the call."""
    info = client.get_flight_info(flight.FlightDescriptor.for_command(statement.encode()), call)
    for endpoint in info.endpoints:
        client.do_get(endpoint.ticket, call).read_all()


def test_a_right_that_is_missing_or_revoked(limited):
    with (
        volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin,
        logged_in(limited, "kea", PASSWORD) as (client, call),
    ):
        with pytest.raises(pa.ArrowException, match=r"NOT_FOUND.*nests"):
            KeyStream(client, lookup_command("nests"), call=call)
        admin.sql("GRANT INSERT ON nests TO kea")
        with pytest.raises(pa.ArrowException, match=r"PERMISSION_DENIED.*nests"):
            KeyStream(client, lookup_command("nests"), call=call)
        admin.sql("GRANT SELECT ON nests TO kea")
        stream = KeyStream(client, lookup_command("nests"), call=call)
        stream.send(1)
        assert stream.answer()[1] == [(0, 1, "kea")]
        admin.sql("REVOKE SELECT ON nests FROM kea")
        stream.send(1)
        answers, error = stream.failure()
        assert answers == []
        assert "PERMISSION_DENIED" in str(error)
        assert "nests" in str(error)


def test_a_stream_ends_with_the_token_that_has_opened_it(limited):
    with (
        volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin,
        flight.connect(limited.uri) as client,
    ):
        (row,) = admin.sql("CREATE TOKEN of_lookups").to_arrow().to_pylist()
        call = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {row['token']}".encode())])
        stream = KeyStream(client, lookup_command("nests"), call=call)
        stream.send(1)
        assert stream.answer()[1] == [(0, 1, "kea")]
        admin.sql("DROP TOKEN of_lookups")
        stream.send(1)
        stream.close()
        answers, error = stream.failure()
        assert answers == []
        assert isinstance(error, flight.FlightUnauthenticatedError)
        assert "dropped" in str(error)


def test_a_stream_ends_with_the_session_that_has_opened_it(limited):
    with logged_in(limited, "admin", ADMIN_PASSWORD) as (client, call):
        stream = KeyStream(client, lookup_command("nests"), call=call)
        stream.send(1)
        assert stream.answer()[1] == [(0, 1, "kea")]
        list(client.do_action(flight.Action("CloseSession", b""), call))
        stream.send(1)
        stream.close()
        answers, error = stream.failure()
        assert answers == []
        assert isinstance(error, flight.FlightUnauthenticatedError)
        assert "the session was closed" in str(error)


def test_a_stream_outlives_the_token_of_its_session_only_as_another_one(tmp_path: Path) -> None:
    settings = SECURED | {"VOLARY_GATEWAY__SECURITY__TOKEN_LIFETIME": "3s"}
    with (
        LocalCluster(tmp_path, 1, settings=settings) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        admin.sql("INSERT INTO nests VALUES (1, 'kea')")
        with logged_in(cluster, "admin", ADMIN_PASSWORD) as (client, call):
            stream = KeyStream(client, lookup_command("nests"), call=call)

            def failure() -> BaseException | None:
                stream.send(1)
                try:
                    assert stream.answer()[1] == [(0, 1, "kea")]
                except pa.ArrowException as error:
                    return error
                return None

            error = until(failure, "the stream has ended with its token")
            assert isinstance(error, flight.FlightUnavailableError)
            assert "the session's token with which the stream was opened has expired" in str(error)
        with (
            volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as connection,
            connection.lookups("nests") as lookup,
        ):
            row = {"k": 1, "name": "kea"}
            assert lookup.one(1) == row
            first = lookup.query_ids

            def goes_on() -> bool:
                assert lookup.one(1) == row
                return lookup.query_ids != first

            until(goes_on, "the client has opened another stream")


def test_there_are_limits_on_streams_and_batches(limited):
    with logged_in(limited, "admin", ADMIN_PASSWORD) as (client, call):
        streams = [KeyStream(client, lookup_command("nests"), call=call) for _ in range(2)]
        assert streams[0].opened["max_keys"] == 3
        assert streams[0].opened["window"] == 1 << 10
        with pytest.raises(pa.ArrowException, match=r"RESOURCE_EXHAUSTED.*gateway\.lookup\.max_streams"):
            KeyStream(client, lookup_command("nests"), call=call)
        streams[0].send(1, 2, 3, 4)
        assert "a batch may have 3 keys" in refusal(streams[0].answer(), 2)["message"]
        # The window is smaller than these batches together, so the gateway reads on when some are answered.
        with ThreadPoolExecutor(1) as reader:
            read = reader.submit(streams[0].answers)
            for _ in range(500):
                streams[0].send(1, 2, 3)
            streams[0].close()
            assert [note["found"] for note, _ in read.result()] == [2] * 500
        streams[1].close()
        assert streams[1].answers() == []
        used = "SELECT allowed, in_use FROM system.limits WHERE name = 'streams of lookups'"
        with volary.connect(limited.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            until(lambda: admin.sql(used).rows() == [(2, 0)], "the streams are closed")


def test_an_idle_stream_ends_and_names_the_setting(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_GATEWAY__LOOKUP__IDLE_TIMEOUT": "1s"}) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        with flight.connect(processes.gateway.uri) as client:
            stream = KeyStream(client, lookup_command("nests"))
            stream.send(1)
            answers, error = stream.failure()
            assert [note["found"] for note, _ in answers] == [0]
            assert "DEADLINE_EXCEEDED" in str(error)
            assert "gateway.lookup.idle_timeout" in str(error)


@contextmanager
def flood(stream: KeyStream) -> Iterator[None]:
    """Sends large batches over a stream in the background, until the stream is cancelled. Nobody reads the answers."""

    def send() -> None:
        with suppress(pa.ArrowException, OSError):
            while True:
                stream.send_array(MANY_KEYS)

    with ThreadPoolExecutor(1) as sender:
        sent = sender.submit(send)
        try:
            yield
        finally:
            stream.cancel()
            sent.result()


def test_a_stream_that_is_not_read_gives_its_place_back(tmp_path: Path) -> None:
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}
    with LocalCluster(tmp_path, 1, settings=settings) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        connection.sql("INSERT INTO nests VALUES (1, repeat('x', 100))")

        def looked_up() -> float:
            return Operations(cluster.output()).values()["volary_lookup_batches_total"]

        def has_stopped() -> bool:
            before = looked_up()
            assert connection.sql("SELECT count(*) FROM nests", timeout=PATIENCE_SECONDS).rows() == [(1,)]
            # The stream had its turn meanwhile. So it has begun nothing because too many answers wait.
            return before == looked_up() > 1

        with flight.connect(cluster.uri) as client:
            stream = KeyStream(client, lookup_command("nests"))
            with flood(stream):
                until(has_stopped, "no lookup begins any more")
                listed = "SELECT state FROM system.queries WHERE query_id = ?"
                assert connection.sql(listed, [stream.opened["query_id"]]).rows() == [("running",)]
                # It goes on when its answers are read.
                stopped_at = looked_up()

                def goes_on() -> bool:
                    stream.messages()
                    return looked_up() > stopped_at

                until(goes_on, "another lookup has begun")


def test_a_stream_that_is_not_read_ends_also_if_its_batches_are_refused(tmp_path: Path) -> None:
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_GATEWAY__QUERY__UNREAD_TIMEOUT": "1s"}
    with (
        LocalCluster(tmp_path, 1, settings=settings) as cluster,
        cluster.connect() as connection,
        # With a larger window, the network would take all answers for a minute.
        logged_in(cluster, "kea", "", [("grpc.http2.bdp_probe", 0)]) as (client, call),
        ThreadPoolExecutor(2) as others,
    ):
        connection.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        run(client, "SET statement_timeout = '1s'", call)
        stream = KeyStream(client, lookup_command("nests"), call=call)
        # One of these statements has the only place, and the other one waits for it.
        endless = [cluster.connect() for _ in range(2)]
        results = [others.submit(other.sql, ENDLESS) for other in endless]
        try:
            states = "SELECT state FROM system.queries WHERE statement = ? ORDER BY 1"
            both = [("queued",), ("running",)]
            until(lambda: connection.sql(states, [ENDLESS]).rows() == both, "one of the statements waits")
            with flood(stream):
                ended = "SELECT outcome FROM system.query_log WHERE query_id = ?"

                def outcome() -> list[tuple[Any, ...]]:
                    return connection.sql(ended, [stream.opened["query_id"]]).rows()

                assert until(outcome, "the stream has ended") == [("failed",)]
                answers, error = stream.failure()
                assert {refusal(answer, answer[0]["sequence"])["code"] for answer in answers} == {"DEADLINE_EXCEEDED"}
                assert "the client has read no answer for 1s" in str(error)
                assert "gateway.query.unread_timeout" in str(error)
        finally:
            for other in endless:
                other.close()
            wait(results)


def test_a_stream_with_one_snapshot_has_the_time_limit_of_a_statement(tmp_path: Path) -> None:
    settings = {"VOLARY_GATEWAY__LOOKUP__IDLE_TIMEOUT": "30s"}
    with (
        LocalCluster(tmp_path, 1, settings=settings) as cluster,
        cluster.connect() as connection,
        logged_in(cluster, "kea", "") as (client, call),
    ):
        connection.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        run(client, "SET statement_timeout = '3s'", call)
        newest = KeyStream(client, lookup_command("nests"), call=call)
        fixed = KeyStream(client, lookup_command("nests", one_snapshot=True), call=call)
        answers, error = fixed.failure()
        assert answers == []
        assert "DEADLINE_EXCEEDED" in str(error)
        assert "a stream of lookups in one snapshot" in str(error)
        assert "statement_timeout" in str(error)
        newest.send(1)
        assert newest.answer() == ({"sequence": 2, "found": 0, "rows": 0}, [])


def test_a_gateway_that_stops_says_so(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO nests VALUES (1, 'kea')")
        with flight.connect(processes.gateway.uri) as client:
            stream = KeyStream(client, lookup_command("nests"))
            stream.send(1, 2)
            assert stream.answer()[1] == [(0, 1, "kea")]
            values = Operations(processes.gateway.running().output()).values()
            assert values["volary_lookup_streams"] == 1
            assert values["volary_lookup_keys_total"] == 2
            processes.gateway.running().signal(signal.SIGTERM)
            answers, error = stream.failure()
            assert answers == []
            assert isinstance(error, flight.FlightUnavailableError)
            assert "shutting down" in str(error)
            processes.gateway.running().await_end()


def test_a_worker_that_is_gone_refuses_batches_until_it_is_back(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO nests VALUES (1, 'kea')")

        def looked_up() -> float:
            return Operations(processes.gateway.running().output()).values()["volary_lookup_keys_total"]

        with flight.connect(processes.gateway.uri) as client:
            stream = KeyStream(client, lookup_command("nests", ["name"]))
            stream.send(1)
            assert stream.answer()[1] == [(0, "kea")]
            worker.kill()
            stream.send(1)
            error = refusal(stream.answer(), 3)
            assert error["code"] == "UNAVAILABLE"
            assert "worker" in error["message"]
            assert looked_up() == 1
            worker.start()
            stream.send(1)
            assert stream.answer()[1] == [(0, "kea")]
            assert looked_up() == 2
