"""Tests the ADBC driver apart from its cursors: login, sessions, transactions, timeouts, cancellation, partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import adbc_driver_manager as adbc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, StatementOptions, dbapi
from cluster import ADMIN_PASSWORD, SECURED, LocalCluster
from processes import until

import volary

pytestmark = pytest.mark.server

ADMIN = {"username": "admin", "password": ADMIN_PASSWORD}
# A query that counts without end. Each test uses another number of rows.
ENDLESS = "SELECT count(*) FROM generate_series(1, {}) t(value) WHERE value % 7 = 3"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("secured"), workers=1, settings=SECURED) as cluster:
        yield cluster


def user_of(cluster: LocalCluster, options: dict[str, str]) -> str:
    with dbapi.connect(cluster.uri, db_kwargs=options, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute("SELECT user_name FROM system.queries")
        return cursor.fetchone()[0]


def bearer(token: str) -> dict[str, str]:
    return {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}


# Logging in


def test_a_password_is_exchanged_for_a_token_when_it_connects(secured):
    assert user_of(secured, ADMIN) == "admin"
    with pytest.raises(dbapi.ProgrammingError, match="the user name or the password is wrong; check both"):
        dbapi.connect(secured.uri, db_kwargs=ADMIN | {"password": "another"}, autocommit=True)


def test_a_token_is_shown_with_every_call(secured):
    with dbapi.connect(secured.uri, db_kwargs=ADMIN, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute("CREATE TOKEN adbc VALID FOR '1 day'")
        token = cursor.fetch_arrow_table()["token"].to_pylist()[0]
    assert user_of(secured, bearer(token)) == "admin"


@pytest.mark.parametrize(
    ("options", "said"), [({}, "log in: this cluster has users"), (bearer("wrong"), "was not issued by this cluster")]
)
def test_what_is_missing_or_wrong_is_said_by_the_first_statement(secured, options, said):
    with pytest.raises(dbapi.ProgrammingError, match=f"UNAUTHENTICATED: .*{said}"):
        user_of(secured, options)


# Sessions and transactions


def test_the_catalog_and_the_schema_are_set_to_what_they_are(driver):
    driver.adbc_current_catalog = "volary"
    driver.adbc_current_db_schema = "public"
    with pytest.raises(dbapi.ProgrammingError, match="'catalog'"):
        driver.adbc_current_catalog = "other"
    with pytest.raises(dbapi.ProgrammingError, match="'schema'"):
        driver.adbc_current_db_schema = "system"
    assert (driver.adbc_current_catalog, driver.adbc_current_db_schema) == ("volary", "public")


def test_commit_and_rollback_have_nothing_to_do(cluster, connection, empty_table):
    with pytest.warns(adbc.Warning, match="Cannot disable autocommit"):
        driver = dbapi.connect(cluster.uri)
    with driver, driver.cursor() as cursor:
        cursor.execute(f"INSERT INTO {empty_table} (k) VALUES (1)")
        driver.commit()
        cursor.execute(f"INSERT INTO {empty_table} (k) VALUES (2)")
        driver.rollback()
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(2,)]


# Statements


def test_a_query_for_many_rows_of_parameters_runs_for_each_and_has_no_count(cursor, birds):
    cursor.executemany(f"SELECT k FROM {birds} WHERE k = ?", [(1,), (2,)])
    assert cursor.rowcount == -1


def ended(connection: volary.Connection, statement: str) -> str:
    """Returns the outcome of a statement that no longer runs."""
    asked = f"SELECT outcome FROM system.query_log WHERE statement = '{statement}'"
    ((outcome,),) = until(lambda: connection.sql(asked).rows(), "it has ended")
    return outcome


def test_a_statement_is_cancelled_by_another_thread(driver, connection, background):
    statement = ENDLESS.format(9_000_000_000_000_000_003)
    running = f"SELECT query_id FROM system.queries WHERE statement = '{statement}' AND state = 'running'"

    def ask(cursor: dbapi.Cursor) -> list[tuple]:
        cursor.execute(statement)
        return cursor.fetchall()

    with driver.cursor() as cursor:
        asked = background(ask, cursor)
        until(lambda: connection.sql(running).rows(), "the query runs")
        cursor.adbc_cancel()
        with pytest.raises(dbapi.OperationalError, match="CANCELLED"):
            asked.result()
    assert ended(connection, statement) == "cancelled"


def as_a_query(statement: adbc.AdbcStatement) -> None:
    statement.prepare()
    stream, _ = statement.execute_query()
    pa.RecordBatchReader.from_stream(stream).read_all()


def as_a_query_that_writes(statement: adbc.AdbcStatement) -> None:
    statement.execute_query()


def as_an_update(statement: adbc.AdbcStatement) -> None:
    statement.execute_update()


@pytest.mark.parametrize(
    ("option", "query", "run"),
    [
        (StatementOptions.TIMEOUT_FETCH, ENDLESS.format(9_000_000_000_000_000_004), as_a_query),
        (
            StatementOptions.TIMEOUT_QUERY,
            "INSERT INTO {t} (k) " + ENDLESS.format(9_000_000_000_000_000_005),
            as_a_query_that_writes,
        ),
        (
            StatementOptions.TIMEOUT_UPDATE,
            "INSERT INTO {t} (k) " + ENDLESS.format(9_000_000_000_000_000_006),
            as_an_update,
        ),
    ],
    ids=["of rows", "of a query", "of an update"],
)
def test_a_timeout_of_the_driver_ends_the_statement_everywhere(
    driver, connection, empty_table, option: StatementOptions, query: str, run: Callable[[adbc.AdbcStatement], None]
):
    query = query.format(t=empty_table)
    with adbc.AdbcStatement(driver.adbc_connection) as statement:
        statement.set_options(**{option.value: "1"})
        statement.set_sql_query(query)
        with pytest.raises((dbapi.OperationalError, pa.ArrowException, OSError), match=r"(?i)deadline.?exceeded"):
            run(statement)
    assert ended(connection, query) in ("cancelled", "failed")
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


# Partitions


def test_a_partition_is_read_on_another_connection_as_often_as_one_likes(cluster, driver, birds):
    with driver.cursor() as cursor:
        (partition,), schema = cursor.adbc_execute_partitions(f"SELECT k FROM {birds} ORDER BY k")
    assert schema.names == ["k"]
    for _ in range(2):
        with dbapi.connect(cluster.uri, autocommit=True) as other, other.cursor() as cursor:
            cursor.adbc_read_partition(partition)
            assert cursor.fetchall() == [(1,), (2,), (3,), (4,), (5,)]
