"""Tests system.queries and system.query_log: what a gateway runs and has run, and how a query is ended."""

import threading

import adbc_driver_manager as adbc
import protobuf as pb
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from processes import PATIENCE_SECONDS, until
from pyarrow import flight

import volary

ENDLESS = "SELECT count(*) FROM generate_series(1, 9000000000000000000) t(value) WHERE value % 7 = {}"


def rows(connection, query: str) -> list[tuple]:
    return connection.sql(query).rows()


def running(connection, statement: str) -> list[tuple]:
    quoted = statement.replace("'", "''")
    # Drivers prepare a statement before they run it. For a moment, this is another statement with the same text.
    return rows(connection, f"SELECT query_id FROM system.queries WHERE statement = '{quoted}' AND state = 'running'")


def logged(connection, statement: str, columns: str) -> list[tuple]:
    quoted = statement.replace("'", "''")
    query = f"SELECT {columns} FROM system.query_log WHERE statement = '{quoted}' ORDER BY started"
    return rows(connection, query)


class Asked:
    """A query that another thread waits for."""

    def __init__(self, cluster, statement: str) -> None:
        self.error: Exception | None = None

        def ask() -> None:
            try:
                with cluster.connect() as connection:
                    connection.sql(statement).rows()
            except volary.Error as error:
                self.error = error

        self._thread = threading.Thread(target=ask)
        self._thread.start()

    def end(self) -> Exception | None:
        self._thread.join(timeout=PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self.error


def test_kill_ends_a_query_and_its_client_is_told(cluster, connection):
    statement = ENDLESS.format(1)
    asked = Asked(cluster, statement)
    ((query_id,),) = until(lambda: running(connection, statement), "the query runs")
    connection.sql(f"KILL QUERY '{query_id}'")
    error = asked.end()
    assert isinstance(error, volary.CancelledError)
    assert "KILL has ended it" in str(error)
    assert str(error).count(query_id) == 1
    assert running(connection, statement) == []
    assert logged(connection, statement, "outcome, error_code, query_id") == [("cancelled", "CANCELLED", query_id)]
    with pytest.raises(volary.NotFoundError, match="does not run here"):
        connection.sql(f"KILL '{query_id}'")


def test_cancel_flight_info_ends_a_query(cluster, connection):
    statement = ENDLESS.format(2)
    with flight.connect(cluster.uri) as client:
        info = client.get_flight_info(
            flight.FlightDescriptor.for_command(pb.command("CommandStatementQuery", pb.field(1, statement)))
        )
        reader = client.do_get(info.endpoints[0].ticket)
        until(lambda: running(connection, statement), "the query runs")
        body = pb.field(1, info.serialize())
        (result,) = client.do_action(flight.Action("CancelFlightInfo", body))
        # CANCEL_STATUS_CANCELLED
        assert result.body.to_pybytes() == b"\x08\x01"
        # If the error comes while a whole result is read, pyarrow turns it into a KeyboardInterrupt.
        with pytest.raises((KeyboardInterrupt, flight.FlightCancelledError)):
            reader.read_all()


def test_kill_ends_an_insert_and_none_of_its_rows_is_kept(cluster, connection, empty_table):
    statement = f"INSERT INTO {empty_table} (k) SELECT value FROM generate_series(1, 9000000000000000000) t(value)"
    asked = Asked(cluster, statement)
    ((query_id,),) = until(lambda: running(connection, statement), "the statement runs")
    connection.sql(f"KILL '{query_id}'")
    assert isinstance(asked.end(), volary.CancelledError)
    assert rows(connection, f"SELECT count(*) FROM {empty_table}") == [(0,)]


def test_the_log_says_what_a_query_took(connection, birds):
    statement = f"SELECT k, name FROM {birds} WHERE price > 2"
    assert len(rows(connection, statement)) == 3
    columns = "outcome, rows, workers, shards, scanned_rows, error_code"
    ((outcome, count, workers, shards, scanned, error),) = logged(connection, statement, columns)
    assert (outcome, count, error) == ("finished", 3, None)
    assert (workers, shards) == (3, 8)
    assert 3 <= scanned <= 5
    ((planning, queued, ran, sent),) = logged(connection, statement, "planning_us, queued_us, running_us, sent_bytes")
    assert planning > 0
    assert queued >= 0
    assert ran > 0
    assert sent > 0


def test_a_lookup_by_key_asks_one_worker(connection, birds):
    statement = f"SELECT name FROM {birds} WHERE k = 4"
    # The first executions are planned individually, and the later ones use a generic plan.
    for _ in range(4):
        assert rows(connection, statement) == [("tui",)]
    assert set(logged(connection, statement, "workers, shards, rows")) == {(1, 1, 1)}


def test_a_row_of_constants_asks_nobody(connection):
    statement = "SELECT 1 AS row_of_constants, 'kea' AS name"
    for _ in range(4):
        assert rows(connection, statement) == [(1, "kea")]
    assert set(logged(connection, statement, "outcome, workers, shards, rows")) == {("finished", 0, 0, 1)}


def test_statements_that_write_or_fail_are_logged_once(cluster, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k) VALUES (1), (2), (3)"
    wrong = f"SELECT nothing FROM {empty_table}"
    connection.sql(insert)
    with pytest.raises(volary.NotFoundError):
        connection.sql(wrong)
    assert logged(connection, insert, "outcome, rows") == [("finished", 3)]
    ((outcome, code, error),) = logged(connection, wrong, "outcome, error_code, error")
    assert (outcome, code) == ("failed", "NOT_FOUND")
    assert "there is no column nothing" in error
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        many = f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)"
        cursor.executemany(many, [(4, "kea"), (5, "tui")])
        assert logged(connection, many, "outcome, rows") == [("finished", 2)]


def test_a_client_that_goes_away_is_logged(cluster, connection):
    statement = "SELECT value FROM generate_series(1, 9000000000000000001) t(value)"
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute(statement)
        assert cursor.fetchone() is not None
        assert len(running(connection, statement)) == 1
    until(lambda: logged(connection, statement, "outcome"), "it has ended")
    ((outcome, code, error),) = logged(connection, statement, "outcome, error_code, error")
    assert (outcome, code, error) == ("cancelled", "CANCELLED", "the client went away")


def test_a_running_query_shows_how_far_its_workers_are(cluster, connection, birds):
    # The query reads all rows of the table, but never all numbers of the series.
    series = "generate_series(1, 9000000000000000000) t(value)"
    statement = f"SELECT count(*) FROM {birds} b CROSS JOIN {series} WHERE value + k < 0"
    asked = Asked(cluster, statement)
    until(lambda: running(connection, statement), "the query runs")
    progress = (
        f"SELECT query_id, workers, workers_done, scanned_rows FROM system.queries WHERE statement = '{statement}'"
    )
    until(lambda: rows(connection, progress)[0][1:] == (3, 3, 5), "all workers have sent their rows")
    connection.sql(f"KILL '{rows(connection, progress)[0][0]}'")
    assert asked.end() is not None


def test_a_query_runs_while_it_is_polled_and_its_rows_are_read_then(cluster, connection, birds):
    statement = (
        f"SELECT count(*) AS n FROM {birds} b CROSS JOIN generate_series(1, 3000000) t(value) WHERE value % 2 = 0"
    )
    with (
        dbapi.connect(cluster.uri, autocommit=True) as driver,
        adbc.AdbcStatement(driver.adbc_connection) as asked,
    ):
        asked.set_options(**{"adbc.statement.exec.incremental": "true"})
        asked.set_sql_query(statement)
        partitions = []
        while True:
            found, _, _ = asked.execute_partitions()
            if not found:
                break
            partitions.extend(found)
        (partition,) = partitions
        handle = driver.adbc_connection.read_partition(partition)
        assert pa.RecordBatchReader.from_stream(handle).read_all()["n"].to_pylist() == [5 * 1_500_000]
    assert logged(connection, statement, "outcome, rows") == [("finished", 1)]


def test_an_error_of_a_query_that_is_polled_is_told(cluster, birds):
    with (
        dbapi.connect(cluster.uri, autocommit=True) as driver,
        adbc.AdbcStatement(driver.adbc_connection) as asked,
    ):
        asked.set_options(**{"adbc.statement.exec.incremental": "true"})
        asked.set_sql_query(f"SELECT 1 / (k - 3) AS q FROM {birds}")
        ((partition,), _, _) = asked.execute_partitions()
        handle = driver.adbc_connection.read_partition(partition)
        with pytest.raises(OSError, match="Divide by zero"):
            pa.RecordBatchReader.from_stream(handle).read_all()
        asked.set_sql_query("SELECT nothing")
        with pytest.raises(dbapi.ProgrammingError, match="nothing"):
            asked.execute_partitions()
