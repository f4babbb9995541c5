"""Tests limits of places, time, memory and open files. What exceeds a limit waits, spills or is refused with advice."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from socket import create_connection

import grpc
import protobuf as pb
import pyarrow as pa
import pytest
from cluster import ADMIN_PASSWORD, PASSWORD, LocalCluster
from processes import PATIENCE_SECONDS, Gateway, Node, Processes, binary, until, within
from pyarrow import flight

import volary

pytestmark = pytest.mark.server

# The rows of this query never end, and need almost no memory.
ENDLESS = "SELECT n FROM generate_series(1, 9000000000000000000) t(n)"
# This query runs without end and never returns a row.
FRUITLESS = "SELECT a.n FROM generate_series(1, 10000000) a(n), generate_series(1, 10000000) b(n) WHERE a.n + b.n < 0"


@contextmanager
def a_place_taken(processes: Processes) -> Iterator[None]:
    """Takes a place with a query whose rows are not read."""
    with processes.connect() as connection:
        batches = connection.sql(ENDLESS).batches()
        next(batches)
        yield


# Processors


def test_a_short_query_does_not_wait_for_what_computes_without_end(tmp_path):
    """Runs one endless statement more than the machine has processors, both on the gateway and on a worker."""
    hogs = (os.cpu_count() or 1) + 1
    with Processes(tmp_path) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 2)")
        processes.sql("INSERT INTO nests SELECT value % 2, value FROM generate_series(1, 1000000)")
        joins = "JOIN nests b ON a.k = b.k JOIN nests c ON b.k = c.k AND a.v + b.v + c.v < 0"
        on_worker = f"SELECT a.k FROM nests a {joins} WHERE a.k = 1"
        with ThreadPoolExecutor(2 * hogs) as threads, processes.connect() as connection:
            asked = [threads.submit(_failure, processes, query) for query in [FRUITLESS, on_worker] * hogs]
            try:
                until(lambda: len(_running(connection)) == 2 * hogs, "all of them run")
                for key in range(20):
                    assert connection.sql("SELECT v FROM nests WHERE k = 1 AND v = ?", [2 * key + 1]).rows() == [
                        (2 * key + 1,)
                    ]
            finally:
                for (query_id,) in _running(connection):
                    connection.sql(f"KILL QUERY '{query_id}'")
            assert all("KILL" in (failure.result() or "") for failure in asked)


def _running(connection: volary.Connection) -> list[tuple[str]]:
    listed = "SELECT query_id FROM system.queries WHERE state = 'running' AND statement LIKE 'SELECT a.%'"
    return connection.sql(listed).rows()


def _failure(processes: Processes, query: str) -> str | None:
    try:
        processes.sql(query)
    except volary.Error as error:
        return str(error)
    return None


# Listed limits


def test_limits_are_listed_with_what_is_in_use(tmp_path):
    settings = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
    sections = re.findall(r"^## `\[([\w.]+)\]`(.*?)(?=^## |\Z)", settings.read_text(), re.MULTILINE | re.DOTALL)
    known = {f"{section}.{key}" for section, text in sections for key in re.findall(r"^\| `(\w+)`", text, re.MULTILINE)}
    with Processes(tmp_path, {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "3"}) as processes:
        query = "SELECT scope, name, setting, allowed, in_use, beyond FROM system.limits"
        with a_place_taken(processes):
            limits = processes.sql(query)
        assert {setting for _, _, setting, *_ in limits if setting is not None} <= known
        assert all(allowed > 0 and beyond for *_, allowed, _, beyond in limits)
        in_use = {(scope, name): in_use for scope, name, _, _, in_use, _ in limits}
        allowed = {(scope, name): allowed for scope, name, _, allowed, *_ in limits}
        assert allowed["node", "running statements"] == 3
        # The statement that lists the limits does not have a place yet.
        assert in_use["node", "running statements"] == 1
        assert in_use["node", "memory of the process"] > 1 << 20
        assert allowed["node", "memory of the process"] == (256 + 512) << 20
    settings = {
        "VOLARY_SECRET": "the secret of the nodes",
        "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD,
    }
    of_users = (
        "SELECT user_name, setting, allowed, in_use FROM system.limits"
        " WHERE name = 'running statements' AND user_name IS NOT NULL ORDER BY 1"
    )
    directory = tmp_path / "users"
    directory.mkdir()
    with Processes(directory, settings) as processes, ExitStack() as opened:
        logged_in = logging_in(processes, opened)
        admin = logged_in("admin", ADMIN_PASSWORD)
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}' MAX_QUERIES 2")
        opened.enter_context(unread(logged_in("kea")))
        kea = logged_in("kea")
        of_kea = ("kea", "MAX_QUERIES", 2, 1)
        of_admin = ("admin", "gateway.query.max_running_per_user", 192, 0)
        until(lambda: kea.sql(of_users).rows() == [of_kea], "kea is told of itself")
        until(lambda: admin.sql(of_users).rows() == [of_admin, of_kea], "an administrator is told of all")


def _shown(allowed: int, unit: str) -> str:
    """Returns a limit as docs/limits.md shows it."""
    steps = {"bytes": [(1 << 20, "MiB"), (1 << 10, "KiB")], "ms": [(3_600_000, "h"), (60_000, "min"), (1000, "s")]}
    for size, name in steps.get(unit, []):
        if allowed % size == 0:
            return f"{allowed // size} {name}"
    return str(allowed)


def test_the_page_of_limits_has_what_a_gateway_lists(tmp_path):
    page = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
    of_gateway = page.read_text().partition("## A gateway")[2].partition("## A worker")[0]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\|.*\|$", of_gateway, re.M)]
    documented = {(scope, name): tuple(rest) for scope, name, *rest in cells[2:]}
    with Processes(tmp_path, {"VOLARY_GATEWAY__QUERY__MAX_VALUE": "256MiB"}) as processes:
        rows = processes.sql("SELECT scope, name, allowed, unit, setting, beyond FROM system.limits")
    listed = {}
    for scope, name, allowed, unit, setting, beyond in rows:
        # This limit is a share of the machine's memory.
        of_machine = setting in ("gateway.memory.limit", "gateway.query.memory")
        shown = documented[scope, name][0] if of_machine else _shown(allowed, unit)
        listed[scope, name] = (shown, f"`{setting}`" if setting else "fixed", beyond)
    assert documented == listed


# Places

QUEUED = 10
# The statement takes a part of a second, which is long enough to see in which order statements end.
SLOW = "SELECT count(*) FROM generate_series(1, 20000000) t(n) WHERE n % 7 = 3"


class Session:
    """A session in which several threads ask at the same time."""

    def __init__(self, client: flight.FlightClient) -> None:
        self._client = client
        self._headers = [(b"cookie", f"volary-session=volary-session-{uuid.uuid4().hex}".encode())]

    def failure(self, query: str, timeout: float | None = None) -> str | None:
        """Returns why a query is not answered, or None if it is answered."""
        options = flight.FlightCallOptions(timeout=timeout, headers=self._headers)
        try:
            info = self._client.get_flight_info(flight.FlightDescriptor.for_command(query.encode()), options)
            self._client.do_get(info.endpoints[0].ticket, options).read_all()
        except (pa.ArrowException, OSError) as error:
            return str(error)
        return None

    def is_answered(self, query: str) -> bool:
        """Returns whether the query was accepted and answered. It may be refused, but must not fail."""
        failure = self.failure(query)
        assert failure is None or "RESOURCE_EXHAUSTED" in failure
        return failure is None

    def until_refused(self) -> str:
        """Asks until there is no more room, and returns the error."""

        def refused() -> str | None:
            failure = self.failure("SELECT 1", timeout=0.5)
            assert failure is not None
            return failure if "RESOURCE_EXHAUSTED" in failure else None

        return until(refused, "there is no room") or ""


def test_a_session_that_queues_many_statements_makes_others_wait_for_few_of_them(tmp_path: Path) -> None:
    settings = {
        "VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1",
        "VOLARY_GATEWAY__QUERY__MAX_WAITING": str(QUEUED + 1),
        "VOLARY_GATEWAY__QUERY__MAX_WAITING_PER_SESSION": str(QUEUED),
        # The query that takes the place keeps it, however long the others wait.
        "VOLARY_GATEWAY__QUERY__UNREAD_TIMEOUT": "10m",
    }
    answered: list[str] = []

    def ask(session: Session, name: str) -> None:
        # The statement may be refused, because callers that test whether there is room take it for a moment.
        until(lambda: session.is_answered(SLOW), "the statement is taken")
        answered.append(name)

    with (
        Processes(tmp_path, settings) as processes,
        flight.connect(processes.gateway.uri) as client,
        ThreadPoolExecutor(QUEUED + 1) as threads,
    ):
        many, single = Session(client), Session(client)
        with a_place_taken(processes):
            asked = [threads.submit(ask, many, "many") for _ in range(QUEUED)]
            text = many.until_refused()
            assert f"too many statements of this session: {QUEUED} waiting; retry in about" in text
            asked.append(threads.submit(ask, single, "single"))
            text = Session(client).until_refused()
            assert f"too many statements: 1 running, {QUEUED + 1} waiting; retry in about" in text
        for statement in asked:
            statement.result()
    assert sorted(answered) == ["many"] * QUEUED + ["single"]
    assert answered.index("single") < QUEUED // 2


def test_a_refusal_because_no_place_is_free_tells_grpc_clients_when_to_retry(tmp_path: Path) -> None:
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_GATEWAY__QUERY__MAX_WAITING": "0"}
    with Processes(tmp_path, settings) as processes, flight.connect(processes.gateway.uri) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 1"))
        with a_place_taken(processes), grpc.insecure_channel(processes.gateway.address) as channel:
            get = channel.unary_stream("/arrow.flight.protocol.FlightService/DoGet")
            with pytest.raises(grpc.RpcError) as caught:
                list(get(pb.field(1, info.endpoints[0].ticket.ticket)))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert re.search(r"0 waiting; retry in about \d+ m?s$", caught.value.details())
        after_ms = dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]
        assert 100 <= int(after_ms) <= 60_000
        # Soon the place must be free again.
        until(lambda: Session(client).is_answered("SELECT 1"), "there is a place")


def test_a_statement_has_given_back_its_place_when_its_client_sees_its_end(tmp_path: Path) -> None:
    settings = {
        "VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1",
        "VOLARY_GATEWAY__QUERY__MAX_WAITING": "0",
        "VOLARY_WORKER__EXECUTION__MAX_RUNNING": "1",
    }
    statements = {
        "SELECT count(*) FROM birds": True,
        "SELECT k FROM birds": True,
        "SELECT 1 / (k - 7) FROM birds": False,
        "SELECT 1 / (n - 7) FROM generate_series(1, 10) t(n)": False,
        "INSERT INTO birds VALUES (7)": True,
    }
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE birds AS SELECT value AS k FROM generate_series(1, 100)")
        with processes.connect() as connection:
            for _ in range(50):
                for statement, succeeds in statements.items():
                    with nullcontext() if succeeds else pytest.raises(volary.InvalidArgumentError, match="zero"):
                        connection.sql(statement).rows()


# Time


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A gateway with a worker and the table `numbers`."""
    settings = {"VOLARY_GATEWAY__QUERY__TARGET_PARTITIONS": "1"}
    with Processes(tmp_path_factory.mktemp("limits"), settings) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE numbers (n BIGINT) WITH (shard_key = 'n', shards = 2)")
        yield processes


@pytest.fixture
def connection(gateway: Processes) -> Iterator[volary.Connection]:
    """A session with the default settings."""
    with gateway.connect() as connection:
        yield connection


def shown(connection: volary.Connection, setting: str) -> str:
    ((_, value),) = connection.sql(f"SHOW {setting}").rows()
    return value


@pytest.mark.parametrize(("value", "limit"), [("'700ms'", "700ms"), ("650", "650ms"), ("'0.6s'", "600ms")])
@pytest.mark.parametrize("before", ["", "EXPLAIN ANALYZE ", "INSERT INTO numbers "])
def test_a_statement_ends_after_the_sessions_timeout(
    connection: volary.Connection, before: str, value: str, limit: str
) -> None:
    connection.sql(f"SET statement_timeout = {value}")
    assert shown(connection, "statement_timeout") == limit
    with (
        within(),
        pytest.raises(volary.DeadlineExceededError, match=f"{limit}, the session's statement_timeout"),
    ):
        connection.sql(before + FRUITLESS).rows()
    connection.sql("RESET statement_timeout")
    assert connection.sql("SELECT count(*) FROM numbers").rows() == [(0,)]


def test_rows_that_never_end_do_after_the_sessions_timeout(connection: volary.Connection) -> None:
    connection.sql("SET statement_timeout = '700ms'")
    with within(), pytest.raises(volary.DeadlineExceededError, match="statement_timeout"):
        for _ in connection.sql(ENDLESS).batches():
            pass


def test_the_gateways_timeout_holds_for_a_session_that_wants_a_longer_one(tmp_path: Path) -> None:
    with (
        Processes(tmp_path, {"VOLARY_GATEWAY__QUERY__TIMEOUT": "700ms"}) as processes,
        processes.connect() as connection,
    ):
        connection.sql("SET statement_timeout = '1h'")
        with within(), pytest.raises(volary.DeadlineExceededError, match=r"gateway\.query\.timeout"):
            connection.sql(FRUITLESS).rows()


# Memory

LIMIT_MIB = 32
# Sorts and joins compute for a second or two. Only one that waits for memory that never becomes free takes longer.
MEMORY_SECONDS = 5 * PATIENCE_SECONDS
ROWS = 400_000


def wide(rows: int) -> str:
    """Returns a query for this number of rows of about 200 bytes, which are all different."""
    text = "repeat(lpad(CAST(n * 7919 % 1000003 AS VARCHAR), 8, '0'), 24)"
    return f"SELECT n, {text} AS w FROM generate_series(1, {rows}) t(n)"


SORTED = f"{wide(ROWS)} ORDER BY w"
# One side of the join is kept as a hash table, which cannot spill.
JOINED = f"SELECT count(*) FROM ({wide(ROWS // 2)}) a JOIN ({wide(ROWS // 2)}) b ON a.w = b.w AND a.n <> b.n"
# The rows of neither query fit into the limit.
assert ROWS // 2 * 200 > LIMIT_MIB << 20


def spills(connection: volary.Connection, query: str) -> float:
    """Returns how often the sorts of a query spilled."""
    ((_, plan),) = connection.sql(f"EXPLAIN ANALYZE {query}").rows()
    return sum(map(float, re.findall(r"SortExec.*\bspill_count=([\d.]+)", plan)))


def assert_nothing_is_held(processes: Processes) -> None:
    held = "SELECT memory_reserved_bytes FROM system.nodes WHERE role = 'gateway'"
    until(lambda: processes.sql(held) == [(0,)], "all memory is free again")


def test_a_sort_spills_what_is_more_than_the_sessions_memory(gateway: Processes, connection: volary.Connection) -> None:
    connection.sql(f"SET query_memory = '{LIMIT_MIB}MiB'")
    assert shown(connection, "query_memory") == f"{LIMIT_MIB}.0 MiB"
    with within(MEMORY_SECONDS):
        texts = connection.sql(SORTED).to_arrow().column("w").to_pylist()
    assert len(texts) == ROWS
    assert texts == sorted(texts)
    assert spills(connection, SORTED) > 0
    assert_nothing_is_held(gateway)


def test_what_cannot_spill_fails_with_the_name_of_the_sessions_setting_and_alone(
    gateway: Processes, connection: volary.Connection
) -> None:
    connection.sql(f"SET query_memory = '{LIMIT_MIB}MiB'")
    limit = rf"the query may hold {LIMIT_MIB}\.0 MiB \(the session's query_memory\)"
    with within(MEMORY_SECONDS), pytest.raises(volary.ResourceExhaustedError, match=limit) as caught:
        connection.sql(JOINED).rows()
    assert "HashJoin" in caught.value.message
    assert_nothing_is_held(gateway)
    # The same query in another session has all the memory of the gateway.
    with gateway.connect() as other, within(MEMORY_SECONDS):
        assert other.sql(JOINED).rows() == [(0,)]
    connection.sql("RESET query_memory")
    with within(MEMORY_SECONDS):
        assert connection.sql(JOINED).rows() == [(0,)]


def test_a_session_cannot_have_more_memory_than_the_gateway_lets_it(tmp_path: Path) -> None:
    settings = {"VOLARY_GATEWAY__QUERY__MEMORY": f"{LIMIT_MIB}MiB"}
    with Processes(tmp_path, settings) as processes, processes.connect() as connection:
        connection.sql("SET query_memory = '1GiB'")
        assert shown(connection, "query_memory") == f"{LIMIT_MIB}.0 MiB"
        limit = rf"the query may hold {LIMIT_MIB}\.0 MiB \(gateway\.query\.memory\)"
        with within(MEMORY_SECONDS), pytest.raises(volary.ResourceExhaustedError, match=limit):
            connection.sql(JOINED).rows()
        with pytest.raises(volary.InvalidArgumentError, match=r"volary\.query_memory: \"much\" is not a size"):
            connection.sql("SET query_memory = 'much'")


# Open files

# The state in /proc/net/tcp.
ESTABLISHED = "01"


def run_limited(limits: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Starts `volary` with limits of the shell, such as `ulimit -n 256`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("VOLARY_")}
    return subprocess.Popen(
        ["sh", "-c", f'{limits} && exec "$0" "$@"', binary("volary"), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
    )


def open_files(node: Node) -> tuple[int, int]:
    """Returns the process id of a node and the number of files that the process has open."""
    pid = node.running()._process.pid
    return pid, len(os.listdir(f"/proc/{pid}/fd"))


def test_more_workers_than_a_process_may_open_files_for_are_refused_at_the_start(tmp_path: Path) -> None:
    command = ["local", "--workers=64", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}"]
    with run_limited("ulimit -n 256", *command) as process:
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    last = said.splitlines()[-1]
    assert last.startswith("volary: RESOURCE_EXHAUSTED: this process may open 256 files, and 64 workers need 740")
    assert "ulimit -n" in last
    assert not (tmp_path / "data").exists()


def test_a_process_raises_its_limit_as_far_as_it_may(tmp_path: Path) -> None:
    command = ["local", "--workers=8", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}"]
    with run_limited("ulimit -Sn 64 && ulimit -Hn 512", *command) as process:
        try:
            assert process.stdout is not None
            assert "listening on grpc://" in process.stdout.readline()
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (512, 512)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


def test_a_gateway_refuses_a_worker_that_it_has_no_files_for(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        pid, _ = open_files(processes.gateway)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (105, 105))
        first, second = processes.add_worker(), processes.new_worker()
        second.launch()
        refusal = "RESOURCE_EXHAUSTED: gateway at .*: this gateway may open 105 files, and 2 workers need 108: raise"
        until(lambda: re.search(refusal, second.running().tail()), "the second worker is refused")
        assert list(processes.nodes("state")) == [first.id]


def connections_to(gateway: Gateway) -> int:
    """Returns the number of open connections from clients and workers."""
    port = int(gateway.address.rsplit(":", 1)[1])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(local.endswith(f":{port:04X}") and state == ESTABLISHED for _, local, _, state, *_ in rows)


def test_workers_that_have_joined_keep_no_connection_to_their_gateway(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        for _ in range(3):
            processes.add_worker()
        until(lambda: connections_to(processes.gateway) == 0, "what they have joined on is closed")
        # The gateway asks the workers over its own connections.
        until(lambda: None not in processes.nodes("rows").values(), "all workers have reported")
        assert set(processes.nodes("state").values()) == {"alive"}


def test_connections_wait_for_a_gateway_that_may_open_no_more_files(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        pid, files = open_files(processes.gateway)
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (files + 2, hard))
        host, port = processes.gateway.address.rsplit(":", 1)
        connections = [create_connection((host, int(port))) for _ in range(30)]
        warning = "may open no more files"
        log = processes.gateway.running()
        until(lambda: warning in log.tail(), "the gateway says what it needs")
        for connection in connections:
            with suppress(OSError):
                connection.close()
        with within():
            assert processes.sql("SELECT 1") == [(1,)]
        # The warning is logged once, however often it was tried.
        assert log.tail().count(warning) == 1


@contextmanager
def unread(connection: volary.Connection) -> Iterator[Iterator[pa.RecordBatch]]:
    """Starts a query that takes a place. Only its first rows are read."""
    batches = connection.sql(ENDLESS).batches()
    next(batches)
    yield batches


def logging_in(processes: Processes, opened: ExitStack) -> Callable[..., volary.Connection]:
    """Returns a function that connects users by name and password. The connections end with `opened`."""

    def logged_in(user: str, password: str = PASSWORD) -> volary.Connection:
        connection = volary.connect(processes.gateway.uri, username=user, password=password)
        return opened.enter_context(connection)

    return logged_in


def test_a_user_leaves_places_to_others_and_some_are_kept_for_who_looks_after_the_gateway(tmp_path):
    settings = {
        "VOLARY_SECRET": "the secret of the nodes",
        "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD,
        "VOLARY_GATEWAY__QUERY__MAX_RUNNING": "4",
        "VOLARY_GATEWAY__QUERY__UNREAD_TIMEOUT": "10m",
    }
    with Processes(tmp_path, settings) as processes, ExitStack() as opened:
        logged_in = logging_in(processes, opened)
        admin = logged_in("admin", ADMIN_PASSWORD)
        for user in ("kea", "auk"):
            admin.sql(f"CREATE USER {user} PASSWORD '{PASSWORD}'")
        for _ in range(3):
            opened.enter_context(unread(logged_in("kea")))
        # A user may take three quarters of the places, so the last place is not for kea.
        kea, auk = logged_in("kea"), logged_in("auk")
        with pytest.raises(volary.DeadlineExceededError):
            kea.sql("SELECT 1", timeout=0.5).rows()
        assert auk.sql("SELECT 1").rows() == [(1,)]
        opened.enter_context(unread(logged_in("auk")))
        with pytest.raises(volary.DeadlineExceededError):
            auk.sql("SELECT 1", timeout=0.5).rows()
        # All places are taken now.
        assert admin.sql("SELECT 1").rows() == [(1,)]
        running = "SELECT query_id FROM system.queries WHERE statement = $1 AND state = 'running'"
        assert len(admin.sql(running, [ENDLESS]).rows()) == 4
        ((own,),) = auk.sql(running, [ENDLESS]).rows()
        auk.sql(f"KILL QUERY '{own}'")
        assert auk.sql("SELECT 1").rows() == [(1,)]


def test_a_user_has_limits_of_its_own(tmp_path):
    settings = {
        "VOLARY_SECRET": "the secret of the nodes",
        "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD,
    }
    join = "SELECT count(*) FROM generate_series(1, 1000000) a(x) JOIN generate_series(1, 1000000) b(y) ON x = y"
    with Processes(tmp_path, settings) as processes, ExitStack() as opened:
        logged_in = logging_in(processes, opened)
        admin = logged_in("admin", ADMIN_PASSWORD)
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}' MAX_QUERIES 1 QUERY_MEMORY '1MiB'")
        admin.sql(f"CREATE USER auk PASSWORD '{PASSWORD}'")
        limits = "SELECT name, max_queries, query_memory_bytes FROM system.users WHERE name <> 'admin' ORDER BY 1"
        assert admin.sql(limits).rows() == [("auk", None, None), ("kea", 1, 1 << 20)]
        kea = logged_in("kea")
        with pytest.raises(volary.ResourceExhaustedError, match="the user's QUERY_MEMORY"):
            kea.sql(join).rows()
        with pytest.raises(volary.PermissionDeniedError, match="is not an administrator"):
            kea.sql("ALTER USER kea MAX_QUERIES 100")
        opened.enter_context(unread(logged_in("kea")))
        with pytest.raises(volary.DeadlineExceededError):
            kea.sql("SELECT 1", timeout=0.5).rows()
        assert logged_in("auk").sql(join).rows() == [(1_000_000,)]
        # New limits apply from the next statement on, also to users who are logged in.
        admin.sql("ALTER USER kea MAX_QUERIES DEFAULT QUERY_MEMORY DEFAULT")
        assert kea.sql(join).rows() == [(1_000_000,)]


def test_a_generic_plan_has_the_limit_of_its_user(tmp_path):
    settings = {"VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD}
    with (
        LocalCluster(tmp_path, workers=2, settings=settings) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql("CREATE TABLE texts (k BIGINT, s VARCHAR) WITH (shard_key = 'k')")
        admin.sql("INSERT INTO texts SELECT n % 9, repeat('x', 1000) FROM generate_series(1, 30000) g(n)")
        query = "SELECT length(string_agg(s, ',')) FROM texts WHERE k = "
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}' QUERY_MEMORY '1MiB'")
        admin.sql("GRANT SELECT ON texts TO kea")
        with volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea:
            for k in range(5):
                with pytest.raises(volary.ResourceExhaustedError):
                    kea.sql(f"{query}{k}").rows()
            assert "used: the kept plan" in str(kea.sql(f"EXPLAIN {query}8").rows())
            admin.sql("ALTER USER kea QUERY_MEMORY DEFAULT")
            for k in range(5):
                assert kea.sql(f"{query}{k}").rows() == admin.sql(f"{query}{k}").rows()


def test_a_stream_that_nobody_reads_loses_its_place_to_who_waits(tmp_path):
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_GATEWAY__QUERY__UNREAD_TIMEOUT": "100ms"}
    with (
        Processes(tmp_path, settings) as processes,
        processes.connect() as idle,
        processes.connect() as waiting,
        unread(idle) as batches,
    ):
        assert waiting.sql("SELECT 1").rows() == [(1,)]
        with pytest.raises(volary.DeadlineExceededError, match="took no rows for 100ms"):
            for _ in batches:
                pass


# Columns

COLUMNS = 4_096


def nested(depth: int) -> pa.DataType:
    """Returns a type of nested lists."""
    inner = pa.int64()
    for _ in range(depth - 1):
        inner = pa.list_(inner)
    return inner


def listed(columns: int) -> str:
    """Returns a SELECT list with this number of columns."""
    return ", ".join(f"1 AS c{number}" for number in range(columns))


def test_tables_have_a_limit_of_columns_and_of_depth(connection, name):
    columns = [f"c{number} BIGINT" for number in range(50_000)]
    for made in (
        f"CREATE TABLE {name} ({', '.join(columns)})",
        f"CREATE TABLE {name} ({', '.join(columns[: COLUMNS + 1])})",
        f"CREATE TABLE {name} (s STRUCT<{', '.join(columns[:COLUMNS])}>)",
        f"CREATE TABLE {name} AS SELECT {listed(COLUMNS + 1)}",
    ):
        with pytest.raises(volary.InvalidArgumentError, match=r"gateway\.query\.max_columns"):
            connection.sql(made)
    for table, setting in (
        (pa.table({f"c{number}": [1] for number in range(COLUMNS + 1)}), "max_columns"),
        (pa.table({"deep": pa.nulls(1, nested(33))}), "max_type_depth"),
    ):
        with pytest.raises(volary.InvalidArgumentError, match=setting):
            connection.ingest(name, table)
    # The deepest type and the longest list are allowed.
    connection.ingest(name, pa.table({"deep": pa.nulls(1, nested(32))}), mode="create")
    assert connection.sql(f"SELECT {listed(COLUMNS)}").to_arrow().num_columns == COLUMNS


def test_joins_have_a_limit_of_columns(connection, name):
    """A statement may have nearly two hundred joins of tables with thousands of columns each."""
    connection.sql(f"CREATE TABLE {name} ({', '.join(f'c{number} BIGINT' for number in range(COLUMNS))})")
    for relation in (name, f"(SELECT * FROM {name})", f"(SELECT 1 AS a, t.* FROM {name} t)"):
        joined = " CROSS JOIN ".join(f"{relation} t{number}" for number in range(190))
        with pytest.raises(volary.InvalidArgumentError, match=r"the joins of the statement .*max_columns"):
            connection.sql(f"SELECT count(*) FROM {joined}")
    few = " CROSS JOIN ".join(f"{name} t{number}" for number in range(3))
    assert connection.sql(f"SELECT count(*) FROM {few}").rows() == [(0,)]
    with pytest.raises(volary.InvalidArgumentError, match=r"gateway\.query\.max_columns"):
        connection.sql(
            f"CREATE OR REPLACE TABLE {name} ({', '.join(f'c{number} BIGINT' for number in range(300_000))})"
        )
    assert connection.sql(f"SELECT c1 FROM {name}").rows() == []


def test_lists_of_columns_have_a_limit_of_what_they_are_looked_for_in(connection, name):
    """The planner looks for each column of a list in all columns of the FROM clause, one by one."""
    connection.sql(f"CREATE TABLE {name} ({', '.join(f'c{number} BIGINT' for number in range(COLUMNS))})")
    for listing in (
        f"SELECT {', '.join(['t.*'] * COLUMNS)} FROM {name} t",
        f"SELECT * FROM {name} a, {name} b, {name} c",
        " UNION ALL ".join([f"SELECT * FROM {name}"] * 9),
    ):
        with pytest.raises(volary.InvalidArgumentError, match=r"too many columns of wide tables.*max_columns"):
            connection.sql(listing)


def test_types_have_a_limit_of_fields(connection):
    """A type that doubles at each step needs little memory, but it has too many fields to visit all of them."""
    for made in ("struct(a, a)", "{'x': a, 'y': a}", "map([a], [a])"):
        steps = ", ".join(f"s{step} AS (SELECT {made} AS a FROM s{step - 1})" for step in range(1, 41))
        with pytest.raises(volary.InvalidArgumentError, match=rf"more than {COLUMNS} fields"):
            connection.sql(f"WITH s0 AS (SELECT 1 AS a), {steps} SELECT 1 FROM s40")


def _idle(pid: int) -> Callable[[], bool]:
    """Returns a function that tells whether a process has computed for less than a fifth of the last second."""
    ticks = os.sysconf("SC_CLK_TCK")
    readings: list[tuple[float, float]] = []

    def idle() -> bool:
        spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        readings.append((time.monotonic(), (int(spent[11]) + int(spent[12])) / ticks))
        now, computed = readings[-1]
        before = [past for at, past in readings if at <= now - 1]
        return bool(before) and computed - before[-1] < 0.2

    return idle


def test_nothing_goes_on_after_a_table_was_refused_that_is_too_wide(gateway, connection, name):
    connection.sql(f"CREATE TABLE {name} (k BIGINT)")
    columns = ", ".join(f"c{number} BIGINT" for number in range(300_000))
    for made in (f"({columns})", f"AS SELECT {columns.replace(' BIGINT', '')} FROM {name}"):
        with pytest.raises(volary.InvalidArgumentError, match=r"gateway\.query\.max_columns"):
            connection.sql(f"CREATE OR REPLACE TABLE {name} {made}")
        pid, _ = open_files(gateway.gateway)
        until(_idle(pid), "the gateway has nothing to do")
    assert connection.sql(f"SELECT k FROM {name}").rows() == []
