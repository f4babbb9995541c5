"""Tests the error messages that users read when a statement fails, with each driver. All drivers must show the words of
a case.

To add a driver, add an entry to DRIVERS. To add a case, add an entry to CASES. JDBC has its own tests: ErrorsTest and
FailuresTest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from adbc_driver_flightsql import dbapi as adbc_dbapi
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from flight_sql import Options, bound, prepared, prepared_command, rows, statement
from processes import IMPATIENT, HeldPort, Processes, run, until
from pyarrow import flight

import volary
from volary import dbapi as volary_dbapi

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Gateway:
    """The address that a driver connects to, and the user. Without a user, the driver shows no login."""

    uri: str
    user: str | None = None
    password: str = PASSWORD

    def login(self) -> dict[str, str]:
        return {} if self.user is None else {"username": self.user, "password": self.password}

    def url(self) -> sa.URL:
        url = sa.make_url(self.uri.replace("grpc://", "volary://"))
        return url if self.user is None else url.set(username=self.user, password=self.password)


# Drivers. Each of them runs statements on one connection. The last statement gets values for its parameters, and its
# rows are read.

Run = Callable[[Gateway, tuple[str, ...], tuple[object, ...]], None]


def by_adbc(gateway: Gateway, statements: tuple[str, ...], values: tuple[object, ...]) -> None:
    with adbc_dbapi.connect(gateway.uri, db_kwargs=gateway.login(), autocommit=True) as connection:
        in_cursors(connection, statements, values)


def by_volary_dbapi(gateway: Gateway, statements: tuple[str, ...], values: tuple[object, ...]) -> None:
    with volary_dbapi.connect(gateway.uri, **gateway.login()) as connection:
        in_cursors(connection, statements, values)


def in_cursors(connection, statements: tuple[str, ...], values: tuple[object, ...]) -> None:
    *before, last = statements
    for query in before:
        with connection.cursor() as cursor:
            cursor.execute(query)
    with connection.cursor() as cursor:
        cursor.execute(last, values)
        cursor.fetchall()


def by_volary(gateway: Gateway, statements: tuple[str, ...], values: tuple[object, ...]) -> None:
    *before, last = statements
    with volary.connect(gateway.uri, **gateway.login()) as connection:
        for query in before:
            connection.sql(query)
        connection.sql(last, list(values)).rows()


def by_sqlalchemy(gateway: Gateway, statements: tuple[str, ...], values: tuple[object, ...]) -> None:
    *before, last = statements
    engine = sa.create_engine(gateway.url())
    try:
        with engine.connect() as connection:
            for query in before:
                connection.exec_driver_sql(query)
            connection.exec_driver_sql(last, values).fetchall()
    finally:
        engine.dispose()


def by_pyarrow(gateway: Gateway, statements: tuple[str, ...], values: tuple[object, ...]) -> None:
    *before, last = statements
    with flight.connect(gateway.uri) as client:
        login = [] if gateway.user is None else [client.authenticate_basic_token(gateway.user, gateway.password)]
        options = Options(headers=login)
        for query in before:
            client.get_flight_info(statement(query), options)
        if values:
            handle = prepared(client, last, options)[1]
            rows(client, prepared_command(bound(client, handle, values, options)), options)
        else:
            rows(client, statement(last), options)


class ShellError(Exception):
    """The message of `volary sql` on standard error."""


def by_the_shell(gateway: Gateway, statements: tuple[str, ...], _: tuple[object, ...]) -> None:
    login = {} if gateway.user is None else {"VOLARY_USER": gateway.user, "VOLARY_PASSWORD": gateway.password}
    ended = run("volary", "sql", "--output=csv", "; ".join(statements), settings={"VOLARY_URI": gateway.uri} | login)
    if ended.code != 0:
        raise ShellError(ended.err)


DRIVERS: dict[str, Run] = {
    "ADBC": by_adbc,
    "pyarrow.flight": by_pyarrow,
    "volary": by_volary,
    "volary.dbapi": by_volary_dbapi,
    "SQLAlchemy": by_sqlalchemy,
    "volary sql": by_the_shell,
}
WITHOUT_PARAMETERS = {"volary sql"}


# Gateways


@pytest.fixture(scope="module")
def aviary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A cluster with users and tables."""
    with LocalCluster(tmp_path_factory.mktemp("aviary"), workers=2, settings=SECURED) as cluster:
        admin = Gateway(cluster.uri, "admin", ADMIN_PASSWORD)
        with volary.connect(cluster.uri, **admin.login()) as connection:
            connection.sql("CREATE TABLE birds (k SMALLINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
            connection.sql("INSERT INTO birds VALUES (1, 'kea'), (2, 'tui')")
            connection.sql(f"CREATE USER kaka PASSWORD '{PASSWORD}'")
        yield admin


@pytest.fixture
def a_visitor(aviary: Gateway) -> Gateway:
    """Connects a user without rights to the cluster of `aviary`."""
    return Gateway(aviary.uri, "kaka")


@pytest.fixture(scope="module")
def a_full_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose only place is taken, and where no statement may wait."""
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_GATEWAY__QUERY__MAX_WAITING": "0"}
    with Processes(tmp_path_factory.mktemp("full"), settings) as processes, processes.connect() as connection:
        batches = connection.sql("SELECT n FROM generate_series(1, 9000000000000000000) t(n)").batches()
        next(batches)
        yield Gateway(processes.gateway.uri)


@pytest.fixture(scope="module")
def a_broken_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A cluster with a killed worker that the gateway knows to be lost."""
    with Processes(tmp_path_factory.mktemp("broken"), IMPATIENT) as processes:
        _, killed = (processes.add_worker() for _ in range(2))
        processes.sql("CREATE TABLE birds AS SELECT value AS k FROM generate_series(1, 100)")
        killed.kill()
        until(lambda: "lost" in processes.nodes("state").values(), "the worker is lost")
        yield Gateway(processes.gateway.uri)


@pytest.fixture
def nowhere() -> Iterator[Gateway]:
    """An address at which nobody listens."""
    with HeldPort() as port:
        yield Gateway(f"grpc://{port.address}")


# Cases


@dataclass(frozen=True)
class Case:
    """Statements, of which the last one fails. `words` are in the error: what is wrong, where, and what to do."""

    gateway: str
    statements: tuple[str, ...]
    words: tuple[str, ...]
    values: tuple[object, ...] = ()


BY_KEY = "SELECT name FROM birds WHERE k = ?"
# This query runs without end and never returns a row.
FRUITLESS = "SELECT a.n FROM generate_series(1, 10000000) a(n), generate_series(1, 10000000) b(n) WHERE a.n + b.n < 0"
CASES = {
    "bad SQL": Case(
        "aviary",
        ("SELECT name\nFORM birds",),
        ("INVALID_ARGUMENT: query ", "Expected: end of statement, found: birds at Line: 2, Column: 6"),
    ),
    "a table that is not there": Case(
        "aviary", ("SELECT * FROM brids",), ("NOT_FOUND: query ", 'table "brids" does not exist; did you mean "birds"?')
    ),
    "a column that is not there": Case(
        "aviary", ("SELECT nme FROM birds",), ("NOT_FOUND: query ", "there is no column nme: did you mean name?")
    ),
    "no values for parameters": Case(
        "aviary", (BY_KEY,), ("INVALID_ARGUMENT: query ", "the statement has 1 parameter, but 0 values were given")
    ),
    "more values than parameters": Case(
        "aviary",
        (BY_KEY,),
        ("INVALID_ARGUMENT: query ", "the statement has 1 parameter, but 2 values were given"),
        values=(1, 2),
    ),
    "a value of another type": Case(
        "aviary",
        (BY_KEY,),
        (
            "INVALID_ARGUMENT: query ",
            "parameter 1 is VARCHAR, but the statement needs SMALLINT",
            "Cannot cast string 'one'",
        ),
        values=("one",),
    ),
    "a value out of range": Case(
        "aviary",
        ("INSERT INTO birds (k) VALUES (?)",),
        ("INVALID_ARGUMENT: query ", "column k", "70000"),
        values=(70_000,),
    ),
    "a number out of range": Case(
        "aviary", ("INSERT INTO birds (k) VALUES (70000)",), ("INVALID_ARGUMENT: query ", "column k", "70000")
    ),
    "a right that was not granted": Case(
        "a_visitor",
        ("SELECT * FROM birds",),
        (
            "NOT_FOUND: query ",
            'table "birds" does not exist, or user "kaka" may not see it (its owner or an administrator can '
            'run: GRANT SELECT ON "birds" TO "kaka")',
        ),
    ),
    "no place": Case(
        "a_full_gateway",
        ("SELECT count(*) FROM generate_series(1, 10) t(n)",),
        ("RESOURCE_EXHAUSTED: query ", "too many statements: 1 running, 0 waiting; retry in about "),
    ),
    "no time": Case(
        "aviary",
        ("SET statement_timeout = '1s'", FRUITLESS),
        (
            "DEADLINE_EXCEEDED: query ",
            "the statement was ended after 1s, the session's statement_timeout; set a longer one",
        ),
    ),
    "a worker that is lost": Case(
        "a_broken_cluster",
        ("SELECT sum(k) FROM birds",),
        (
            "UNAVAILABLE: query ",
            "worker w2 at 127.0.0.1:",
            "the connection to the worker is lost; run the statement again",
        ),
    ),
    "no gateway": Case("nowhere", ("SELECT 1",), ("127.0.0.1:", "connect")),
}

# Matches Rust's debug output: options, results and structs, paths of modules, positions in sources.
DEBUGGING = re.compile(
    r"Some\(|\bNone\b|Ok\(|Err\(|Error\(|\b[A-Z]\w+ \{|\w::\w|\.rs\b|DataFusionError|source: |panicked|backtrace"
)
PAIRS = [
    (case, driver) for case in CASES for driver in DRIVERS if not CASES[case].values or driver not in WITHOUT_PARAMETERS
]


@pytest.mark.parametrize(("case", "driver"), PAIRS)
def test_an_error_says_what_is_wrong_where_and_what_to_do(request, case, driver):
    failing = CASES[case]
    gateway = request.getfixturevalue(failing.gateway)
    # Each driver has its own class for the error. Only the message matters here.
    with pytest.raises(Exception) as caught:  # noqa: PT011
        DRIVERS[driver](gateway, failing.statements, failing.values)
    said = str(caught.value)
    assert [word for word in failing.words if word not in said] == [], said
    assert DEBUGGING.search(said) is None, said


@pytest.mark.parametrize(
    "printed",
    [
        "Some(3)",
        'Status { code: Internal, message: "x" }',
        "datafusion::error",
        "at gateway/src/engine/mod.rs:12",
        "source: hyper_util::client::legacy::Error(Connect)",
        'ParserError("x")',
    ],
)
def test_what_is_printed_for_debugging_is_told_from_text(printed):
    assert DEBUGGING.search(f"INVALID_ARGUMENT: it failed: {printed}")
    assert not DEBUGGING.search('NOT_FOUND: query 01a2: table "brids" does not exist; did you mean "birds"? Line: 1')
