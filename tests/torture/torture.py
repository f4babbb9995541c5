"""A cluster whose clients write and read all the time, while a nemesis strikes round after round."""

from __future__ import annotations

import random
import resource
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import kill_points
import volary_answers
from clients import Clients
from ingest_paths import PATHS
from journal import LOST, History
from ledger import CREATE, REFERENCE, SHARDED, TABLES, Ledger, StatementId
from processes import Gateway, HeldPort, Node, Processes, Worker, until
from readers import Checks, Reader, Seen
from small_disk import SmallDisk
from volary_answers import ALLOWED, check_allowed

import volary

WRITERS = range(1, 5)
READERS = 2
WORKERS = 3
# The rows of a few dozen statements fill the log of a worker, so that it goes on to the next file within seconds.
SETTINGS = {
    "VOLARY_WORKER__STORAGE__LOG": "1MiB",
    "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "128KiB",
    "VOLARY_WORKER__STORAGE__MIN_FREE": "4MiB",
    "VOLARY_WORKER__STORAGE__SCRUB_INTERVAL": "2s",
    "VOLARY_WORKER__STORAGE__COMPACTION_INTERVAL": "500ms",
    "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "2s",
    "VOLARY_GATEWAY__GATHER__CONNECT_TIMEOUT": "2s",
    "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "5s",
    "VOLARY_GATEWAY__LOAD__IDLE_TIMEOUT": "5s",
}
WORKER_DISK_BYTES = 256 << 20
GATEWAY_DISK_BYTES = 64 << 20
# Number of statements above which the tables are dropped.
MOST_STATEMENTS = 8000
# Number of acknowledged statements that are read row by row at the end of a round.
SAMPLE = 4


class Torture:
    """A run. After the context is left because of a failure, `directory` has all data, logs and journals."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.seed = seed
        self.chance = random.Random(seed)
        self.fired: Counter[str] = Counter()
        """How often each kill point has ended a process."""
        self.armed: Counter[str] = Counter()
        """How often each kill point was armed."""
        self.struck: Counter[str] = Counter()
        """How many rounds of each kind have passed."""
        self.rounds = 0
        self.processes = Processes(directory, SETTINGS)
        self.history = History(directory, WRITERS)
        self.ledger = Ledger(seed, {name: path.most_pairs for name, path in PATHS.items()})
        self.checks = Checks(self.ledger, self.history, Seen())
        self.disks: dict[Node, SmallDisk] = {}
        self.clients = Clients(self.processes.gateway.uri, directory, seed, WRITERS, self.history)
        self._readers: list[Reader] = []
        self._ports = ExitStack()
        self._killed: set[Node] = set()
        self._fired: set[Node] = set()
        self._events = directory / "events.log"

    @property
    def gateway(self) -> Gateway:
        """The gateway."""
        return self.processes.gateway

    @property
    def workers(self) -> list[Worker]:
        """The workers. The first one is behind a proxy, and the last one has a small disk."""
        return self.processes.workers

    @property
    def nodes(self) -> list[Node]:
        """All nodes. The gateway is the first one, because workers wait for it."""
        return [self.gateway, *self.workers]

    def __enter__(self) -> Torture:
        # A process that a kill point ends leaves no image of its memory.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        try:
            self._start()
        except BaseException as failure:
            self.__exit__(type(failure), failure, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, _: TracebackType | None
    ) -> None:
        for reader in self._readers:
            reader.stop()
        self.clients.close()
        self.processes.__exit__()
        self._ports.close()
        for disk in self.disks.values():
            disk.close(keeps=kind is not None)

    def note(self, text: str) -> None:
        """Notes what the nemesis does, with the time that the journals use."""
        with self._events.open("a") as events:
            events.write(f"{time.monotonic():.6f} round {self.rounds}: {text}\n")

    def check(self) -> bool:
        """Raises what a reader has found, and what no statement may fail with. Returns true."""
        for reader in self._readers:
            if reader.failure is not None:
                raise reader.failure
        forbidden = self.history.errors.keys() - ALLOWED - {LOST}
        assert not forbidden, f"statements failed with {forbidden}"
        return True

    def pause(self, longest_seconds: float) -> None:
        """Lets the clients go on for a random time."""
        time.sleep(self.chance.uniform(0, longest_seconds))

    def acknowledged(self) -> int:
        """Returns the number of acknowledged statements."""
        return sum(self.history.acknowledged_of(writer) for writer in self.clients.writers)

    def kill(self, node: Node) -> None:
        """Kills a node, which must run unless it was killed before."""
        self.note(f"kills {node.name}")
        self._check_end(node)
        self._killed.add(node)
        node.kill()

    def start(self, node: Node, kill_point: str = "") -> bool:
        """Starts a node that has ended, and returns whether it runs. An armed kill point may end it at its start."""
        self.note(f"starts {node.name} {kill_point}".rstrip())
        node.variables = {kill_points.VARIABLE: kill_point} if kill_point else {}
        self.armed.update([kill_point.split(":")[0]] if kill_point else [])
        self._killed.discard(node)
        self._fired.discard(node)
        try:
            node.start()
        except AssertionError:
            if node.running().is_alive() or not kill_point:
                raise
            return not self.has_fired(node)
        return True

    def launch(self, node: Node) -> None:
        """Starts a node that has ended, without waiting for it."""
        self.note(f"starts {node.name} without waiting")
        node.variables = {}
        self._killed.discard(node)
        self._fired.discard(node)
        node.launch()

    def has_fired(self, node: Node) -> bool:
        """Returns whether a kill point has ended the node."""
        if node.running().is_alive() or node in self._killed:
            return node in self._fired
        code = node.running().await_end()
        assert node.variables, f"{node.name} has ended by itself with {code}\n{node.running().tail()}"
        assert code == -signal.SIGABRT, f"{node.name} has ended by itself with {code}\n{node.running().tail()}"
        name = node.variables[kill_points.VARIABLE].rsplit(":", 1)[0]
        self.note(f"kill point {name} has ended {node.name}")
        self.fired[name] += 1
        self._killed.add(node)
        self._fired.add(node)
        return True

    def heal(self) -> None:
        """Lets everything run again that was killed, stopped, cut or filled. All clients must write again."""
        self.clients.resume()
        for disk in self.disks.values():
            disk.free()
        self.workers[0].proxy.release()
        for node in self.nodes:
            if node.running().is_alive():
                node.running().signal(signal.SIGCONT)
            else:
                self._check_end(node)
        for node in self.nodes:
            # A node that was armed starts without its kill points, so that they cannot end it later.
            if node.variables and node.running().is_alive():
                self.kill(node)
            if not node.running().is_alive():
                self.start(node)
        self.clients.start()
        before = {writer: self.history.acknowledged_of(writer) for writer in self.clients.writers}
        until(
            lambda: self.check() and all(self.history.acknowledged_of(writer) > before[writer] for writer in before),
            "all clients write again",
        )

    def verify(self) -> None:
        """Waits until no statement runs, and decides for each one that has ended: it is whole, or absent for ever."""
        pause = self.clients.pause()
        until(lambda: self.check() and self.clients.are_paused(pause), "all clients have ended their statements")
        self._settle()
        begun = self.history.begun()
        present: set[StatementId] = set()
        for table in TABLES:
            present |= self.checks.grouped(table, self._read)
        self.checks.seen.settle(begun - present)
        for id in self.chance.sample(sorted(present), min(SAMPLE, len(present))):
            self.checks.whole(id, self._read)
        if len(present) > MOST_STATEMENTS:
            self.renew_tables()
        for node in self.nodes:
            assert " panicked at " not in node.running().log(), f"{node.name} has panicked"
        self.check()

    def renew_tables(self) -> None:
        """Drops the tables and creates them again, so that a long run does not become slower and slower."""
        self.note("drops the tables")
        with ExitStack() as held:
            for reader in self._readers:
                held.enter_context(reader.reading)
            for statement in (*(f"DROP TABLE {table}" for table in TABLES), *CREATE):
                self.processes.sql(statement)
            self.history.forget()
            self.checks.seen.forget()

    def events(self) -> list[str]:
        """Returns what was noted."""
        return self._events.read_text().splitlines() if self._events.exists() else []

    def finish(self) -> None:
        """Checks that the rows of failed statements do not stay for ever."""
        kept = {
            SHARDED: 1,
            REFERENCE: len(self.workers),
        }
        expected = {
            table: copies * sum(self.ledger.statement(id).rows for id in self.checks.seen.of(table))
            for table, copies in kept.items()
        }
        query = "SELECT table_name, sum(rows) FROM system.segments GROUP BY table_name"

        def is_tidy() -> bool:
            held = dict(self._read(query))
            return all(held.get(table, 0) == rows for table, rows in expected.items())

        until(is_tidy, "the rows of failed statements are deleted")
        assert self._read("SELECT count(*) FROM system.segments WHERE damage IS NOT NULL") == [(0,)]
        assert self.checks.seen.reads > 0

    def _start(self) -> None:
        self.disks[self.gateway] = SmallDisk(self.directory / "gateway-disk", GATEWAY_DISK_BYTES)
        self.gateway.data_dir = self.disks[self.gateway].path / "data"
        self.processes.__enter__()
        disk = SmallDisk(self.directory / "worker-disk", WORKER_DISK_BYTES)
        for number in range(WORKERS):
            is_last = number == WORKERS - 1
            self.processes.new_worker(proxied=number == 0, data_dir=disk.path / "data" if is_last else None)
        self.disks[self.workers[-1]] = disk
        for worker in self.workers:
            # Other tests run beside this one. A port that a dead worker had would soon be that of another cluster.
            worker.listen = self._ports.enter_context(HeldPort()).address
        for worker in self.workers:
            worker.launch()
        for worker in self.workers:
            worker.await_ready()
        for statement in CREATE:
            self.processes.sql(statement)
        self.clients.start()
        for number in range(READERS):
            reader = Reader(self.checks, self.gateway.uri, f"{self.seed}/reader{number}")
            self._readers.append(reader)
            reader.start()

    def _check_end(self, node: Node) -> None:
        if not node.running().is_alive():
            self.has_fired(node)

    def _settle(self) -> None:
        """Waits until no statement of a client can commit any more."""

        def nobody_writes() -> bool:
            running = "SELECT count(*) FROM system.queries WHERE statement NOT LIKE 'SELECT%'"
            return self._read("SELECT count(*) FROM system.loads") == [(0,)] and self._read(running) == [(0,)]

        until(nobody_writes, "the statements of clients have ended on the gateway")
        until(self._put_fence, "the catalog can be changed")

    def _put_fence(self) -> bool:
        """Changes the catalog, which makes changes in the order of the requests. So no commit waits then."""
        try:
            self.processes.sql("DROP TABLE IF EXISTS fence")
            self.processes.sql("CREATE TABLE fence (n BIGINT)")
        except volary.Error as error:
            check_allowed(error)
            return False
        return True

    def _read(self, query: str) -> list[tuple]:
        return volary_answers.rows(self.processes, query)
