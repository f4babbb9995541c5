"""Tests wrong statements, files, tickets and messages. Errors have a code and name the place, and no node ends."""

from __future__ import annotations

import datetime
import gzip
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import protobuf as pb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_flightsql import dbapi
from cluster import LocalCluster
from flight_sql import prepared
from processes import until
from pyarrow import flight
from raw_flight import Node, command

import volary

pytestmark = pytest.mark.server

INVALID = volary.InvalidArgumentError
NOT_FOUND = volary.NotFoundError
DENIED = volary.PermissionDeniedError
DATA_LOSS = volary.DataLossError


def refused(connection: volary.Connection, statement: str, error: type[volary.Error], *parts: str) -> str:
    """Returns the message of the statement's error, which must be of this class and contain these parts."""
    with pytest.raises(volary.Error) as caught:
        connection.sql(statement).rows()
    message = caught.value.message
    assert type(caught.value) is error, str(caught.value)
    for part in parts:
        assert part in message, message
    assert "bug report" not in message
    return message


# Statements that try to reach the gateway's files, or to run other statements within EXPLAIN.


@pytest.mark.parametrize("explain", ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE", "EXPLAIN ANALYZE VERBOSE"])
@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1 AS a) TO '{file}' STORED AS CSV",
        "COPY {t} TO '{file}' STORED AS PARQUET",
        "INSERT INTO {t} (k) VALUES (6)",
        "CREATE VIEW {t}_made AS SELECT 1 AS a",
        "CREATE TABLE {t}_made AS SELECT 1 AS a",
        "CREATE EXTERNAL TABLE {t}_made (a VARCHAR) STORED AS CSV LOCATION '/etc/passwd'",
        "DROP TABLE {t}",
        "SELECT 1 AS a INTO {t}_made",
        "SET timezone = '+02:00'",
        "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{file}' STORED AS CSV",
        "EXPLAIN ANALYZE INSERT INTO {t} (k) VALUES (6)",
    ],
)
def test_only_queries_are_explained(connection, birds, tmp_path, explain, statement):
    file = tmp_path / "written"
    with pytest.raises((INVALID, NOT_FOUND)):
        connection.sql(f"{explain} {statement.format(t=birds, file=file)}").rows()
    assert not file.exists()
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(5,)]
    refused(connection, f"SELECT * FROM {birds}_made", NOT_FOUND)
    assert connection.sql("SHOW timezone").rows() != [("volary.time_zone", "+02:00")]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM '{file}'",
        'SELECT * FROM "{file}"',
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM parquet_metadata('{file}')",
        "SELECT * FROM (VALUES (1)) v JOIN '{file}' ON true",
        "INSERT INTO '{file}' VALUES (1)",
        "SELECT * INTO '{file}' FROM {t}",
        "SELECT * FROM (SELECT 1 AS a INTO made) x",
        "UNLOAD (SELECT 1) TO '{file}' WITH (format = 'CSV')",
        "UNLOAD ('SELECT 1') TO '{file}'",
        "COPY INTO '{file}' FROM {t}",
        "LOAD DATA INPATH '{file}' INTO TABLE {t}",
        "CREATE OR REPLACE EXTERNAL TABLE e STORED AS CSV LOCATION '{file}'",
        "CREATE UNBOUNDED EXTERNAL TABLE e STORED AS CSV LOCATION '{file}'",
        "ATTACH '{file}' AS other",
        "INSTALL '{file}'",
    ],
)
def test_no_statement_but_copy_from_reaches_a_file(connection, birds, tmp_path, statement):
    file = tmp_path / "rows.csv"
    file.write_text("secret\n1\n")
    with pytest.raises(volary.Error) as caught:
        connection.sql(statement.format(t=birds, file=file)).rows()
    assert type(caught.value) in (INVALID, NOT_FOUND), str(caught.value)
    assert "secret" not in str(caught.value)
    assert file.read_text() == "secret\n1\n"
    assert list(tmp_path.iterdir()) == [file]


def test_another_number_of_parameters_is_refused(cluster, connection, birds):
    query = f"SELECT * FROM {birds} WHERE k = ? AND name = ?"
    with pytest.raises(INVALID, match=r"has 2 parameters, but 0 values"):
        connection.sql(query).rows()
    with pytest.raises(INVALID, match=r"has 2 parameters, but 3 values"):
        connection.sql(query, [1, "x", 2]).rows()
    with pytest.raises(INVALID, match=r"parameter 1 is .*, but the statement needs BIGINT"):
        connection.sql(query, ["one", "x"]).rows()
    with pytest.raises(INVALID, match="takes no parameters"):
        connection.sql("CREATE TABLE wrong (k BIGINT) WITH (shard_key = 'k')", [1])
    with (
        dbapi.connect(cluster.uri, autocommit=True) as driver,
        driver.cursor() as cursor,
        pytest.raises(dbapi.ProgrammingError, match="has 2 parameters, but 1 value was"),
    ):
        cursor.execute(query, [1])


# Files


@pytest.fixture
def inbox(tmp_path) -> Path:
    """A directory that COPY may read."""
    return tmp_path


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that COPY may not read, with a file that could be loaded."""
    directory = Path(os.environ.get("TMPDIR", "/tmp")) / f"volary-outside-{os.getpid()}"
    directory.mkdir()
    (directory / "rows.csv").write_text("k\n1\n")
    yield directory
    (directory / "rows.csv").unlink()
    directory.rmdir()


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"k": pa.array(range(1000), pa.int64()), "name": [f"name {n}" for n in range(1000)]})
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def overwritten(data: bytes, start: int, length: int) -> bytes:
    return data[:start] + b"\xff" * length + data[start + length :]


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lambda data: data[: len(data) // 2], ["Corrupt footer"]),
        (lambda data: data[:-1], ["Corrupt footer"]),
        (lambda data: data[:6], ["at least 8 bytes long"]),
        (lambda data: overwritten(data, len(data) - 40, 30), ["Parquet error"]),
        (lambda data: overwritten(data, len(data) // 4, 300), ["Parquet"]),
        (lambda _: b"k,name\n1,not Parquet at all\n", ["Corrupt footer"]),
    ],
    ids=["half of it", "all but a byte", "its head", "a damaged footer", "damaged pages", "another format"],
)
def test_a_damaged_parquet_file_is_named_and_loads_nothing(connection, birds, inbox, damage, parts):
    file = inbox / "rows.parquet"
    file.write_bytes(damage(parquet_bytes()))
    refused(connection, f"COPY {birds} FROM '{file}'", DATA_LOSS, f"file {file}: ", *parts)
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(5,)]


def test_one_damaged_file_of_many_keeps_all_rows_out(connection, birds, inbox):
    for name in ("a", "b", "c"):
        (inbox / f"{name}.parquet").write_bytes(parquet_bytes())
    (inbox / "b.parquet").write_bytes(parquet_bytes()[:500])
    refused(connection, f"COPY {birds} FROM '{inbox}'", DATA_LOSS, f"file {inbox}/b.parquet: ")
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(5,)]


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (pa.table({"k": [1], "tag": ["x"]}), ["column tag does not exist in table", "k, name, price, day"]),
        (pa.table({"k": ["a"]}), ["column k: 'a' is not a valid Int64"]),
        (pa.table({"k": [1.0, 1.7]}), ["column k: 1.7 does not fit BIGINT without loss"]),
        (pa.table({"k": [1], "day": [datetime.datetime(2026, 1, 1, 10)]}), ["column day: 2026-01-01T10:00:00"]),
        (pa.table({"k": [1], "K": [2]}), ["columns k and K of the rows both match column k"]),
        (pa.table({"k": pa.array([1, None], pa.int64())}), ["column k", "NOT NULL"]),
        (pa.table({"name": ["x"]}), ["column k", "NOT NULL"]),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_named_with_the_column(connection, birds, inbox, table, parts):
    file = inbox / "rows.parquet"
    pq.write_table(table, file)
    refused(connection, f"COPY {birds} FROM '{file}'", INVALID, f"file {file}: ", *parts)
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(5,)]


CSV_LINES = ["k,name,price,day", *(f"{n},name {n},{n / 2},2026-01-01" for n in range(20_000))]


@pytest.mark.parametrize(
    ("line", "text", "parts"),
    [
        (7, "2005,x,cheap,2026-01-01", ["line 7, column price: 'cheap' is not a valid Float64"]),
        (15_001, "2005,x,1.0,2026-13-45", ["line 15001, column day: '2026-13-45' is not a valid Date32"]),
        (15_001, "2005,x,1.0,2026-01-01T10:00:00", ["line 15001, column day: '2026-01-01T10:00:00' does not"]),
        (20_001, "k,x,1.0,2026-01-01", ["line 20001, column k: 'k' is not a valid Int64"]),
        (3, "2005,x", ["Expected 4 records, found 2", "line 3"]),
        (3, "2005,x,1.0,2026-01-01,more", ["Expected 4 records, found 5", "line 3"]),
        (3, ",x,1.0,2026-01-01", ["line 3", "column k", "NOT NULL"]),
        (15_001, ",x,1.0,2026-01-01", ["line 15001", "column k", "NOT NULL"]),
        (1, "k,name,cost,day", ["column cost does not exist in table", "k, name, price, day"]),
        (1, "k,name,K,day", ["columns k and K of the rows both match column k"]),
    ],
)
def test_a_bad_line_of_a_csv_file_is_named(connection, birds, inbox, line, text, parts):
    file = inbox / "rows.csv"
    lines = CSV_LINES.copy()
    lines[line - 1] = text
    file.write_text("\n".join(lines) + "\n")
    refused(connection, f"COPY {birds} FROM '{file}'", INVALID, f"file {file}: ", *parts)
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(5,)]


def test_a_bad_first_line_without_a_header_is_line_1(connection, birds, inbox):
    file = inbox / "rows.csv"
    file.write_text("x,2.5\n1,2.5\n")
    refused(connection, f"COPY {birds} (k, price) FROM '{file}'", INVALID, "line 1, column k: 'x' is not a valid Int64")


def test_a_csv_file_that_is_not_utf8_is_named(connection, birds, inbox):
    file = inbox / "rows.csv"
    file.write_bytes(b"k,name\n1,caf\xe9\n")
    refused(connection, f"COPY {birds} FROM '{file}'", INVALID, f"file {file}: ", "UTF-8", "line 2")


def test_a_compressed_file_that_is_cut_short_is_damaged(connection, birds, inbox):
    file = inbox / "rows.csv.gz"
    file.write_bytes(gzip.compress("\n".join(CSV_LINES).encode())[:2000])
    refused(connection, f"COPY {birds} FROM '{file}'", DATA_LOSS, f"file {file}: ", "cut short")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"k": 1}\n{"k": "x"}\n', ["line 2, column k: 'x' is not a valid Int64"]),
        ('{"k": 1}\n' * 15_000 + '{"k": "x"}\n', ["line 15001, column k: 'x' is not a valid Int64"]),
        ('{"k": 1}\n{"k": 1.7}\n', ["line 2, column k: '1.7' does not fit BIGINT without loss"]),
        ('{"k": 1}\n{"k": 1, "price": "x"}\n', ["line 2: ", "field 'price'", '"x" as Float64']),
        ('{"k": 1}\n' * 15_000 + '{"k": 1, "price": "x"}\n', ["line 15001: ", "field 'price'", '"x" as Float64']),
        ('{"k": 1}\n{"k": 2,\n', ["line 2: "]),
        ('{"k": 1}\n{"k": null}\n', ["line 2, column k", "NOT NULL"]),
        ('{"k": 1, "name": "x"}\n' * 15_000 + '{"name": "x"}\n', ["line 15001, column k", "NOT NULL"]),
        ('{"k": 1, "tag": 1}\n', ["column tag does not exist in table"]),
        ('{"k": 1}\n' * 15_000 + '{"k": 1, "tag": 1}\n', ["line 15001: column tag does not exist in table"]),
        ('{"k": 1, "K": 2}\n', ["columns K and k of the rows both match column k"]),
    ],
)
def test_a_bad_json_file_is_named(connection, birds, inbox, text, parts):
    file = inbox / "rows.json"
    file.write_text(text)
    refused(connection, f"COPY {birds} FROM '{file}'", INVALID, f"file {file}: ", *parts)


def test_a_file_of_no_known_format_is_refused(connection, birds, inbox):
    file = inbox / "rows.xyz"
    file.write_text("k\n1\n")
    refused(connection, f"COPY {birds} FROM '{file}'", INVALID, 'format "xyz" is not known', "FORMAT parquet")
    stated = f"COPY {birds} FROM '{file}' WITH (FORMAT xml)"
    refused(connection, stated, INVALID, 'format "xml" is not known')


@pytest.mark.parametrize(
    ("file", "columns", "options", "parts"),
    [
        ("rows.parquet", "", "HEADER true", ["HEADER is an option of CSV files"]),
        ("rows.json", "", "NULL 'x'", ["NULL is an option of CSV files"]),
        ("rows.parquet", "(k, price)", "FORMAT parquet", ["the file has no column price; it has k, name"]),
        ("rows.csv", "(k, price)", "HEADER true", ["the file has no column price; it has k, name"]),
        ("rows.csv", "(k, cost)", "HEADER true", ["column cost does not exist in table"]),
        ("rows.csv", "(k, k)", "HEADER true", ["column k is listed twice"]),
    ],
)
def test_copy_refuses_what_it_is_told_and_cannot_do(connection, birds, inbox, file, columns, options, parts):
    (inbox / "rows.parquet").write_bytes(parquet_bytes())
    (inbox / "rows.csv").write_text("k,name\n1,x\n")
    (inbox / "rows.json").write_text('{"k": 1, "name": "x"}\n')
    refused(connection, f"COPY {birds} {columns} FROM '{inbox}/{file}' WITH ({options})", INVALID, *parts)


def test_a_location_that_is_no_path_is_refused(connection, birds, inbox):
    for location in ("", f"{inbox}/[.csv", f"file://{inbox}/..%2F..%2Frows.csv"):
        refused(connection, f"COPY {birds} FROM '{location}'", INVALID, "it is not a path, glob or URL")


def test_a_file_that_is_not_there_is_not_found(connection, birds, inbox):
    for location in ("no.parquet", "no/such/folder/", "*.parquet"):
        refused(connection, f"COPY {birds} FROM '{inbox}/{location}'", NOT_FOUND, f"there is no file at {inbox}/")
    (inbox / "empty.parquet").touch()
    refused(connection, f"COPY {birds} FROM '{inbox}/empty.parquet'", NOT_FOUND, "or it is empty")


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "/etc/no_such_file",
        "{outside}/rows.csv",
        "file://{outside}/rows.csv",
        "FILE://{outside}/rows.csv",
        "{inbox}/{up}/rows.csv",
        "{inbox}/{up}/*.csv",
        "file://{inbox}/{up}/rows.csv",
        "file://{inbox}/{encoded}/rows.csv",
        "{inbox}/link.csv",
        "{inbox}/*.csv",
        "{inbox}/linked/rows.csv",
        "{inbox}/linked/",
        "file:{outside}/rows.csv",
        "rows.csv",
        "~/rows.csv",
        "http://127.0.0.1:1/rows.csv",
        "https://example.org/rows.csv",
        "https:/example.org/rows.csv",
        "HTTPS:example.org/rows.csv",
        "s3://bucket/rows.csv",
        "s3:/bucket/rows.csv",
    ],
)
def test_a_file_outside_of_the_allowed_roots_is_not_read(connection, empty_table, inbox, outside, location):
    (inbox / "link.csv").symlink_to(outside / "rows.csv")
    (inbox / "linked").symlink_to(outside)
    up = os.path.relpath(outside, inbox)
    named = location.format(inbox=inbox, outside=outside, up=up, encoded=up.replace("..", "%2e%2e"))
    refused(connection, f"COPY {empty_table} FROM '{named}'", DENIED, "COPY may not read", "allowed_roots")
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


def test_files_whose_values_nest_without_end_are_refused(connection, empty_table, inbox):
    (inbox / "arrays.json").write_text('{"k": ' + "[" * 20_000 + "]" * 20_000 + "}\n")
    (inbox / "objects.json").write_text('{"k": ' * 20_000 + "1" + "}" * 20_000 + "\n")
    (inbox / "unfinished.json").write_text('{"k": ' * 20_000)
    for name in ("arrays", "objects", "unfinished"):
        refused(connection, f"COPY {empty_table} FROM '{inbox}/{name}.json'", INVALID, f"{name}.json")
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes([number])
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def _group(children: int) -> bytes:
    """Encodes an optional group in the list of a Parquet file's columns, in Thrift's compact protocol."""
    return b"\x35\x02\x18\x01g\x15" + _varint(2 * children) + b"\0"


def _parquet(columns: list[bytes], row_groups: int = 0) -> bytes:
    """Returns a Parquet file that is only a footer. The footer announces row groups that do not exist."""
    listed = b"\x19\xfc" + _varint(len(columns)) + b"".join(columns)
    footer = b"\x15\x02" + listed + b"\x16\0" + b"\x19\xfc" + _varint(row_groups) + b"\0"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_parquet_files_whose_footers_would_end_the_reader_are_refused(tmp_path):
    leaf = b"\x15\x02\x25\x02\x18\x01k\0"
    footers = {
        "deep": (_parquet([*[_group(1)] * 20_000, leaf]), INVALID, "nested too deeply"),
        "childless": (_parquet([_group(2**31 - 1), leaf]), DATA_LOSS, "the footer is damaged"),
        "groupless": (_parquet([_group(1), leaf], row_groups=2**31 - 1), DATA_LOSS, "the footer is damaged"),
    }
    (inbox := tmp_path / "inbox").mkdir()
    with LocalCluster(tmp_path, workers=1, allow_roots=[inbox]) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 2)")
        for name, (data, error, part) in footers.items():
            (inbox / f"{name}.parquet").write_bytes(data)
            refused(connection, f"COPY t FROM '{inbox}/{name}.parquet'", error, f"{name}.parquet: ", part)
        # Nesting as deep as programs write it is accepted.
        (inbox / "chain.parquet").write_bytes(_parquet([*[_group(1)] * 100, leaf]))
        refused(connection, f"COPY t FROM '{inbox}/chain.parquet'", INVALID, "column g does not exist in table t")
        assert connection.sql("SELECT count(*) FROM t").rows() == [(0,)]


def test_without_allowed_roots_copy_reads_nothing(tmp_path):
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k')")
        refused(connection, f"COPY t FROM '{tmp_path}/x.csv'", DENIED, "no location is allowed", "--allow-root")


def test_an_allowed_root_that_is_away_fails_only_what_is_below_it(tmp_path):
    (inbox := tmp_path / "inbox").mkdir()
    (inbox / "rows.csv").write_text("k\n1\n")
    roots = [tmp_path / "away", inbox]
    with LocalCluster(tmp_path, workers=1, allow_roots=roots) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k')")
        assert connection.sql(f"COPY t FROM '{inbox}/rows.csv'").rows_affected == 1
        refused(connection, f"COPY t FROM '{tmp_path}/away/rows.csv'", NOT_FOUND, "away of gateway.load.allowed_roots")
        refused(connection, "COPY t FROM '/etc/passwd'", DENIED, "outside gateway.load.allowed_roots")


# Tickets, and messages without a known sender


@pytest.fixture
def client(cluster) -> Iterator[flight.FlightClient]:
    with flight.connect(cluster.uri) as client:
        yield client


def ticket_of(client: flight.FlightClient, query: str) -> bytes:
    info = client.get_flight_info(flight.FlightDescriptor.for_command(query))
    return info.endpoints[0].ticket.ticket


def redeem(client: flight.FlightClient, ticket: bytes) -> pa.Table:
    return client.do_get(flight.Ticket(ticket)).read_all()


UNSEALED = (flight.FlightUnauthorizedError, "PERMISSION_DENIED: .*not sealed by this cluster, or it was altered")
NO_TICKET = (pa.ArrowInvalid, "INVALID_ARGUMENT: this is not a ticket of Volary, or it is truncated")


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda ticket: ticket[:-1], UNSEALED),
        (lambda ticket: ticket[:60], UNSEALED),
        (lambda ticket: ticket[:20], NO_TICKET),
        (lambda ticket: b"", NO_TICKET),
        (lambda ticket: b"SELECT 1", NO_TICKET),
        (lambda ticket: os.urandom(200), NO_TICKET),
        (lambda ticket: ticket + b"\0", UNSEALED),
        (lambda ticket: ticket[:3] + bytes([ticket[3] ^ 1]) + ticket[4:], UNSEALED),
        (lambda ticket: ticket[:4] + b"\xff" * 8 + ticket[12:], UNSEALED),
        (lambda ticket: ticket[:20] + bytes([ticket[20] ^ 1]) + ticket[21:], UNSEALED),
        (lambda ticket: ticket[:-1] + bytes([ticket[-1] ^ 1]), UNSEALED),
        (
            lambda ticket: ticket[:2] + b"\x09" + ticket[3:],
            (pa.ArrowInvalid, "version 9, but this node reads version 2"),
        ),
    ],
    ids=[
        "a byte short",
        "cut",
        "its head",
        "empty",
        "SQL",
        "random",
        "a byte more",
        "for another purpose",
        "valid for ever",
        "a bit of its content",
        "a bit of its seal",
        "of another version",
    ],
)
def test_a_ticket_that_is_not_as_it_was_handed_out_is_refused(client, birds, damage, error):
    kind, message = error
    with pytest.raises(kind, match=message):
        redeem(client, damage(ticket_of(client, f"SELECT * FROM {birds}")))


def test_a_ticket_of_another_cluster_is_refused(client, tmp_path):
    with LocalCluster(tmp_path, workers=1) as other, flight.connect(other.uri) as stranger:
        ticket = ticket_of(stranger, "SELECT 1")
        assert redeem(stranger, ticket).num_rows == 1
        with pytest.raises(flight.FlightUnauthorizedError, match="not sealed by this cluster"):
            redeem(client, ticket)


def test_the_handle_of_a_prepared_statement_is_no_ticket(client):
    body = pb.command("ActionCreatePreparedStatementRequest", pb.field(1, "SELECT 1"))
    (answer,) = client.do_action(flight.Action("CreatePreparedStatement", body))
    handle = pb.fields(pb.fields(answer.body.to_pybytes())[2])[1]
    with pytest.raises(flight.FlightUnauthorizedError, match="message of another kind was presented as a ticket"):
        redeem(client, handle)


def test_a_ticket_expires(tmp_path):
    settings = {"VOLARY_GATEWAY__QUERY__TICKET_LIFETIME": "1s"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, flight.connect(cluster.uri) as client:

        def taken_in_time() -> bytes:
            """Returns a ticket, if it could be redeemed before it expired."""
            ticket = ticket_of(client, "SELECT 1")
            try:
                assert redeem(client, ticket).num_rows == 1
            except flight.FlightTimedOutError:
                return b""
            return ticket

        ticket = until(taken_in_time, "a ticket is good")

        def refusal() -> str:
            try:
                redeem(client, ticket)
            except flight.FlightTimedOutError as error:
                return str(error)
            return ""

        refused = until(refusal, "the ticket has expired")
        assert re.search(r"DEADLINE_EXCEEDED: .*the ticket expired \d+ s ago; run the statement again", refused), (
            refused
        )
        until(taken_in_time, "the statement gets a new ticket when it is run again")


def send_nonsense(client: flight.FlightClient) -> Iterator[Callable[[], object]]:
    """Yields calls that no node can understand."""
    schema = pa.schema([("k", pa.int64())])

    def put(descriptor: flight.FlightDescriptor) -> None:
        writer, reader = client.do_put(descriptor, schema)
        with writer:
            writer.write_batch(pa.record_batch([[1, 2, 3]], schema=schema))
            writer.done_writing()
            reader.read()

    def exchange() -> None:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"\xff"))
        with writer:
            writer.done_writing()
            reader.read_all()

    for junk in (b"", b"\x00", b"\xff" * 100, os.urandom(1000), b"VL\x01\x01" + os.urandom(100)):
        yield lambda junk=junk: redeem(client, junk)
        yield lambda junk=junk: put(flight.FlightDescriptor.for_command(junk))
        yield lambda junk=junk: list(client.do_action(flight.Action("volary.control", junk)))
        yield lambda junk=junk: list(client.do_action(flight.Action("CreatePreparedStatement", junk)))
        yield lambda junk=junk: client.get_flight_info(flight.FlightDescriptor.for_command(junk))
        yield lambda junk=junk: client.get_schema(flight.FlightDescriptor.for_command(junk))
    yield lambda: put(flight.FlightDescriptor.for_path("no", "such", "path"))
    yield lambda: list(client.do_action(flight.Action("no such action", b"")))
    yield exchange


def _deep_schema(levels: int) -> bytes:
    """Encodes an Arrow schema with one column of nested lists, which no library would write."""

    def numbers(*values: int, size: int = 4) -> bytes:
        return b"".join(value.to_bytes(size, "little") for value in values)

    # The position of the message's table, and that table (version 5, a schema, and its position). Then follows the
    # table of the schema, with one field.
    message = numbers(16) + numbers(10, 12, 4, 6, 8, 0, size=2) + numbers(12) + numbers(4, 1, size=2) + numbers(12)
    schema = numbers(8, 8, 0, 4, size=2) + numbers(8, 4, 1, 20)

    def column(type_id: int, children: int) -> bytes:
        """Encodes a field, its empty type, and the position of its child, which follows directly."""
        table = numbers(16, 16, 0, 0, 4, 8, 0, 12, size=2) + numbers(16, type_id, 12, 12)
        return table + numbers(4, 4, size=2) + numbers(4, children, 20)

    null, a_list = 1, 12
    return message + schema + column(a_list, 1) * levels + column(null, 0)


def test_schemas_that_nest_without_end_are_refused_wherever_clients_send_them(tmp_path):
    definition = pb.field(1, pb.field(1, 1) + pb.field(2, 2))
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection, Node(cluster.uri) as node:
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 2)")
        with flight.connect(cluster.uri) as client:
            query = prepared(client, "SELECT ? AS k")[1]
            insert = prepared(client, "INSERT INTO t VALUES (?)")[1]
        descriptors = [
            command("CommandStatementIngest", definition + pb.field(2, "t")),
            command("CommandStatementIngest", definition + pb.field(2, "made")),
            command("CommandStatementUpdate", pb.field(1, "INSERT INTO t VALUES (?)")),
            command("CommandPreparedStatementQuery", pb.field(1, query)),
            command("CommandPreparedStatementUpdate", pb.field(1, insert)),
        ]
        for levels in (100, 20_000):
            for descriptor in descriptors:
                answer = node.call("DoPut", pb.field(1, descriptor) + pb.field(2, _deep_schema(levels)))
                assert answer.code is grpc.StatusCode.INVALID_ARGUMENT, answer
        # A schema with fewer levels can be read, and is refused because of another limit.
        ingest = pb.field(1, descriptors[1])
        answer = node.call("DoPut", ingest + pb.field(2, _deep_schema(40)))
        assert answer.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "max_type_depth" in answer.text
        assert node.call("DoPut", ingest + pb.field(2, _deep_schema(20))).code is grpc.StatusCode.OK
        assert connection.sql("SELECT count(*) FROM t").rows() == [(0,)]


def test_nonsense_is_refused_by_the_gateway_and_by_a_worker(cluster, connection, client, birds):
    workers = connection.sql("SELECT address FROM system.nodes WHERE role = 'worker' ORDER BY id").rows()
    assert len(workers) == 3
    with flight.connect(f"grpc://{workers[0][0]}") as worker:
        for node in (client, worker):
            for call in send_nonsense(node):
                with pytest.raises((pa.ArrowException, KeyError)) as caught:
                    call()
                assert re.search("INVALID_ARGUMENT|PERMISSION_DENIED|UNIMPLEMENTED|NOT_FOUND", str(caught.value))
    assert connection.sql(f"SELECT count(*) FROM {birds} WHERE price > 0").rows() == [(4,)]
    states = "SELECT address FROM system.nodes WHERE role = 'worker' AND state = 'alive' ORDER BY id"
    assert connection.sql(states).rows() == workers


def test_a_worker_speaks_to_gateways_only(connection, client, birds):
    ((address,), *_) = connection.sql("SELECT address FROM system.nodes WHERE role = 'worker'").rows()
    query = flight.FlightDescriptor.for_command("SELECT 1")
    with flight.connect(f"grpc://{address}") as worker:
        with pytest.raises(
            pa.ArrowNotImplementedError, match="UNIMPLEMENTED: a worker has no SQL; connect to a gateway"
        ):
            worker.get_flight_info(query)
        with pytest.raises(pa.ArrowNotImplementedError, match="UNIMPLEMENTED: a worker has no list of flights"):
            list(worker.list_flights())
        with pytest.raises(pa.ArrowNotImplementedError, match="UNIMPLEMENTED: a worker has no action nonsense"):
            list(worker.do_action(flight.Action("nonsense", b"")))
        with pytest.raises(flight.FlightUnauthorizedError, match="the fragment ticket was not sealed by this cluster"):
            redeem(worker, ticket_of(client, f"SELECT * FROM {birds}"))


# Statements that need too much


def _balanced(term: str, operator: str, levels: int) -> str:
    """Returns 2 ** levels terms, in a tree of the smallest possible depth."""
    for _ in range(levels):
        term = f"({term} {operator} {term})"
    return term


def _steps(last: int, step: str) -> str:
    """Returns CTEs from s0 to s<last>. Each of them reads the one before it, `{before}`."""
    steps = ", ".join(f"s{n} AS ({step.format(before=f's{n - 1}')})" for n in range(1, last + 1))
    return f"WITH s0 AS (SELECT k FROM t), {steps} "


DEEP = {
    "parentheses": "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "brackets": "SELECT " + "[" * 1_000 + "]" * 1_000,
    "signs": "SELECT " + "- " * 5_000 + "1",
    "sums": "SELECT " + "+".join(["1"] * 20_000),
    "and": "SELECT 1 WHERE " + " AND ".join(["1 = 1"] * 20_000),
    "or": "SELECT * FROM t WHERE " + " OR ".join(f"k = {n}" for n in range(20_000)),
    "casts": "SELECT 1" + "::BIGINT" * 20_000,
    "concatenations": "SELECT " + " || ".join(["'a'"] * 20_000),
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 500 + "t" + ") x" * 500,
    "unions": " UNION ALL ".join(["SELECT 1"] * 5_000),
    "joins": "SELECT 1 FROM t t0" + "".join(f" CROSS JOIN t t{n}" for n in range(1, 5_000)),
    "tables": "SELECT 1 FROM t t0" + "".join(f", t t{n}" for n in range(1, 5_000)),
    "casts around an error": "SELECT " + "CAST(" * 60 + "1 1" + " AS INT)" * 60,
    "cases around an error": "SELECT " + "CASE WHEN true THEN " * 60 + "1 1" + " END" * 60,
    "sums in parentheses": "SELECT " + "(" + "1+" * 1_500 + "(" + "1+" * 1_500 + "1))",
    "columns named FROM": "SELECT * FROM t WHERE " + " AND ".join(["t.from"] * 200_000),
    "names that look like clauses": "SELECT " + " XOR ".join(["window"] * 200_000),
    "intervals": "SELECT " + "INTERVAL " * 200_000 + "1",
    "names that are keywords": "SELECT " + "+".join(["window"] * 100_000) + " FROM (SELECT 1 AS window)",
    "cases": "SELECT " + "+".join(["CASE WHEN true THEN 1 ELSE 2 END"] * 50_000),
    "time zones": "SELECT now()" + " AT TIME ZONE 'UTC'" * 50_000,
    "subscripts": "SELECT make_array(1)" + "[1]" * 100_000,
    "explains": "EXPLAIN " * 50_000 + "SELECT 1",
    "types": "SELECT CAST(1 AS " + "STRUCT<a INT, b " * 50_000,
    "types in parentheses": "SELECT CAST(1 AS " + "Nullable(" * 50_000,
    "merged projections": f"SELECT k{'+1' * 480} AS k FROM (SELECT k{'+1' * 480} AS k FROM t) x",
    "merged steps": _steps(9, f"SELECT k{'+1' * 480} AS k FROM {{before}}") + "SELECT * FROM s9",
    "steps": _steps(1_999, "SELECT * FROM {before}") + "SELECT * FROM s1999",
    "very many steps": _steps(49_999, "SELECT * FROM {before}") + "SELECT * FROM s49999",
    "unions in steps": _steps(9, "SELECT * FROM {before}" + " UNION ALL SELECT 1" * 300) + "SELECT * FROM s9",
    "steps that double": _steps(30, "SELECT a.k FROM {before} a JOIN {before} b ON a.k = b.k") + "SELECT * FROM s30",
    "balanced conditions": "SELECT * FROM t WHERE " + _balanced("k = 1", "AND", 13),
    "types in texts": "SELECT arrow_cast(1, '" + "List(" * 20_000 + "Int64" + ")" * 20_000 + "')",
    "types in texts whose names close what is open": "SELECT arrow_cast(1, '" + 'Struct(")": ' * 20_000 + "')",
    "types in texts to be tried": "SELECT arrow_try_cast(k, '" + "LargeList(" * 20_000 + "Int64" + "') FROM t",
}


def test_statements_that_are_nested_too_deeply_are_refused_and_end_nothing(tmp_path):
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 2)")
        for kind, statement in DEEP.items():
            with pytest.raises(INVALID, match=r"nested too deeply|recursion limit") as caught:
                connection.sql(statement).rows()
            assert len(str(caught.value)) < 4096, kind
        deep = "List(" * 20_000 + "Int64" + ")" * 20_000
        refused_types = ["SELECT arrow_cast(1, ?)", "SELECT arrow_cast(1, concat('List(', ?))"]
        for statement in refused_types:
            with pytest.raises(INVALID):
                connection.sql(statement, [deep]).rows()
        assert connection.sql("SELECT count(*) FROM t").rows() == [(0,)]


def test_views_upon_views_that_are_too_deep_together_are_refused_and_end_nothing(tmp_path):
    longer = f"SELECT k{'+1' * 250} AS k FROM"
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("CREATE VIEW v0 AS SELECT 1 AS k")
        connection.sql(f"CREATE VIEW v1 AS {longer} v0")
        connection.sql(f"CREATE VIEW v2 AS {longer} v1")
        assert connection.sql("SELECT k FROM v2").rows() == [(501,)]
        for statement in (f"CREATE VIEW v3 AS {longer} v2", f"{longer} v2"):
            refused(connection, statement, INVALID, "nested too deeply", "views and CTEs")
        connection.sql(f"CREATE OR REPLACE VIEW v0 AS {longer} (SELECT 1 AS k)")
        refused(connection, "SELECT k FROM v2", INVALID, "view v2", "nested too deeply", "views and CTEs")
        assert connection.sql("SELECT k FROM v1").rows() == [(501,)]


def test_long_statements_run(tmp_path):
    ors = " OR ".join(f"k = {n}" for n in range(1_900))
    values = ", ".join(f"({n})" for n in range(5_000))
    keys = ", ".join(map(str, range(20_000)))
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 2)")
        assert connection.sql(f"INSERT INTO t VALUES {values}").rows_affected == 5_000
        assert connection.sql(f"SELECT count(*) FROM t WHERE {ors}").rows() == [(1_900,)]
        assert connection.sql(f"SELECT count(*) FROM t WHERE k IN ({keys})").rows() == [(5_000,)]
        sums = f"SELECT k{'+1' * 300} AS n FROM t WHERE k{'+1' * 300} = 300"
        assert connection.sql(sums).rows() == [(300,)]
        unions = " UNION ALL ".join(["SELECT 1 AS n"] * 300)
        assert connection.sql(f"SELECT sum(n) FROM ({unions})").rows() == [(300,)]
        longest = _steps(100, "SELECT k + 1 AS k FROM {before} WHERE k >= 0") + "SELECT min(k) FROM s100"
        assert connection.sql(longest).rows() == [(100,)]


def test_a_query_that_needs_more_memory_than_there_is_ends_alone(tmp_path):
    settings = {"VOLARY_LOCAL__MEMORY": "64MiB"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, cluster.connect() as connection:
        # The query has one group, whose state cannot be spilled.
        large = "SELECT array_agg(value) FROM generate_series(1, 50000000) t(value)"
        with pytest.raises(
            volary.ResourceExhaustedError, match=r"(?s)memory or disk limit is reached.*raise the limit"
        ) as caught:
            connection.sql(large).rows()
        assert caught.value.retryable
        assert connection.sql("SELECT sum(value) FROM generate_series(1, 1000) t(value)").rows() == [(500_500,)]


def test_copy_refuses_a_null_text_that_the_reader_does_not_know(connection, tmp_path):
    (tmp_path / "rows.csv").write_text("k\n\\N\n")
    connection.sql("CREATE TABLE null_text (k BIGINT) WITH (shard_key = 'k', shards = 2)")
    with pytest.raises(volary.InvalidArgumentError, match="a field without text is NULL"):
        connection.sql(f"COPY null_text FROM '{tmp_path}/rows.csv' WITH (NULL 'N/A')")
    connection.sql("DROP TABLE null_text")
