"""Measures point queries through drivers, with the key as a literal and as a parameter, compared with a stub and with
PostgreSQL.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import data
import driver_programs
import procfs
from child import Child, program
from cluster import Postgres, driver_stubs, in_one_process, postgres
from measured import Demand, Sample, Spread, Variant
from sizes import Size
from turns import Measure, latencies, measure_in_turns

TABLE = "drivers"
TITLE = "Point queries through drivers, with the key as a literal and as a parameter"
METHOD = """\
`volary local` with 4 workers and default settings has a table of 4 columns. A point query reads one row by the shard
key, and each query reads another key. The key is part of the text (literal) or a parameter. Each query is a statement
of its own, as ORMs and BI tools send it: opened, run, read to its end and closed. Each driver has a process of its own,
in which clients ask at the same time, and each client asks one question after another. Clients of `volary` are threads
or asyncio's tasks that share one connection. Every other client has its own connection.

- **The stub** is a server written in Rust with the network layer of a gateway. It has passed on the driver's first
  calls to the gateway. It gives the same answers to all later calls, with the same bytes. So it shows the cost of the
  calls that the driver makes. It reads no statement.
- **PostgreSQL** has the same rows, with a primary key, and is asked through its own drivers. They prepare on the server
  what they have seen five times.
- `server_ms` is the processor time of the server per query: of all its threads, or of all processes of PostgreSQL, in
  user and system mode. What the idle server takes in the same time is subtracted. The variants named idle show it, in
  milliseconds per second.
- `SELECT 1` asks no worker. 100 rows are a whole table, of which each of the four workers has a part.

Clients and servers share the processors, so the times that clients wait depend on how fast the clients are. A goal is
about the form and the number of clients for which the figure is worst."""

_WORKERS = 4
_VOLARY, _STUB, _POSTGRES = "Volary", "stub", "PostgreSQL"
_FORMS = ("literal", "parameter")
# Goals for ratios of processor times, and of the median of one client.
_PER_STUB = 2.0
_PER_PARAMETER = 1.15


@dataclass(frozen=True)
class Driver:
    """A driver with the servers that it asks, and the goals for it."""

    name: str
    servers: tuple[str, ...]
    server_ms: float = 0.0
    """Goal for the processor time of the server per query, in milliseconds."""
    p50_ms: float | None = None
    """Goal for the median of one client, in milliseconds. Without it, the goal is a ratio to the stub."""


_OURS = (_VOLARY, _STUB)
_DRIVERS = (
    Driver("volary", _OURS, server_ms=0.35, p50_ms=1.2),
    Driver("volary asyncio", _OURS, server_ms=0.35),
    Driver("ADBC", _OURS, server_ms=0.8),
    Driver("ADBC in Go", _OURS, server_ms=0.8),
    Driver("JDBC", _OURS, server_ms=0.8),
    Driver("psycopg", (_POSTGRES,)),
    Driver("pgjdbc", (_POSTGRES,)),
)


@dataclass(frozen=True)
class Question:
    """A query."""

    name: str
    sql: str
    rows: int
    forms: tuple[str, ...]
    drivers: tuple[str, ...]
    """The drivers that ask it. Without any, all do."""
    per_stub: float | None
    """Goal for the median of one client that asks Volary, as a ratio to the stub."""


_POINT = "point query"
_QUESTIONS = (
    Question(_POINT, data.DRIVER_POINT, 1, _FORMS, (), None),
    Question("SELECT 1", "SELECT 1", 1, ("literal",), ("JDBC", "pgjdbc"), 1.3),
    Question(f"{data.FLOCK} rows", data.DRIVER_FLOCK, data.FLOCK, ("literal",), ("JDBC", "pgjdbc"), 2.5),
)


@dataclass(frozen=True)
class Server:
    """A running server."""

    processes: Callable[[], list[int]]
    """Returns its process ids."""
    address: Callable[[Variant], str]
    """Returns the address for a variant. Each variant has another stub, except for the number of clients."""


def measure(size: Size, directory: Path) -> tuple[list[Variant], list[Demand], dict[str, str]]:
    """Returns the variants, the demands on them, and the versions of servers and drivers."""
    with ExitStack() as running:
        programs = driver_programs.build(directory)
        cluster = running.enter_context(in_one_process(directory, workers=_WORKERS))
        with program("load", cluster.uri, *data.driver_tables(size.driver_rows), log=directory / "load.log") as load:
            volary = load.answer()["version"]
        database = running.enter_context(postgres(directory, data.postgres_tables(size.driver_rows)))
        if not isinstance(database, Postgres):
            missing = [driver.name for driver in _DRIVERS if driver.servers == (_POSTGRES,)]
            programs.missing |= dict.fromkeys(missing, database)
        for name, reason in programs.missing.items():
            print(f"{TABLE}: without {name}: {reason}", file=sys.stderr)
        variants = {
            variant.name: variant for variant in _variants(size) if variant.parameters["driver"] not in programs.missing
        }
        stubbed = (variant for variant in variants.values() if variant.parameters["server"] == _STUB)
        places = list(dict.fromkeys(map(_stub_of, stubbed)))
        stubs, addresses = running.enter_context(driver_stubs(cluster.uri, len(places), directory / "stubs.log"))
        servers = {
            _VOLARY: Server(lambda: [cluster.gateway], lambda _: cluster.uri.removeprefix("grpc://")),
            _STUB: Server(lambda: [stubs], lambda variant: addresses[places.index(_stub_of(variant))]),
        }
        # The programs end before the servers that they are connected to.
        askers, versions = {}, {}
        for name in dict.fromkeys(variant.parameters["driver"] for variant in variants.values()):
            asker = Child(programs.commands[name], directory / "askers.log")
            running.callback(asker.end)
            askers[name], versions = asker, versions | asker.answer()["versions"]
        versions["volary"] = volary
        if isinstance(database, Postgres):
            first, address = database.process, database.address
            servers[_POSTGRES] = Server(lambda: procfs.family(first), lambda _: address)
            versions["postgresql"] = database.release
        idle = {name: _Idle(server, size.idle_seconds) for name, server in servers.items()}
        numbers = _Numbers()
        work = {
            name: _Asking(variant, askers[variant.parameters["driver"]], servers, idle, numbers, size)
            for name, variant in variants.items()
        }
        # Each driver asks each server once before all others. So an answer that is wrong ends the run at once, and no
        # two clients ask a stub for what it does not know yet.
        for asking in work.values():
            asking.ask(clients=1, requests=2)
        idle_variants = {f"{name}, idle": Variant(f"{name}, idle", {"server": name}) for name in servers}
        measures: dict[str, Measure] = {f"{name}, idle": observed.measure for name, observed in idle.items()}
        measures |= {name: asking.measure for name, asking in work.items()}
        measure_in_turns(measures, variants | idle_variants, size.driver_turns, size.warm_ups)
    return [*variants.values(), *idle_variants.values()], _demands(variants), versions


def _variants(size: Size) -> Iterator[Variant]:
    """Yields all variants in the order of the table."""
    for question in _QUESTIONS:
        for driver in _DRIVERS:
            if question.drivers and driver.name not in question.drivers:
                continue
            counts = size.driver_clients if question.name == _POINT else size.driver_clients[:1]
            for form, clients, server in itertools.product(question.forms, counts, driver.servers):
                yield Variant(
                    _name(question, driver, form, clients, server),
                    {
                        "question": question.name,
                        "driver": driver.name,
                        "form": form,
                        "clients": clients,
                        "server": server,
                    },
                    _name(question, driver, form, clients, _STUB) if server == _VOLARY else None,
                )


def _name(question: Question, driver: Driver, form: str, clients: int, server: str) -> str:
    what = form if question.name == _POINT else question.name
    return f"{driver.name}, {what}, clients: {clients}, {server}"


def _stub_of(variant: Variant) -> tuple[str, ...]:
    """Returns what the answers of a stub depend on."""
    return tuple(variant.parameters[name] for name in ("question", "driver", "form"))


class _Numbers:
    """Numbers the requests of a run, so that no two have the same key."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """Returns the first of the next numbers."""
        first = self._next
        self._next += count
        return first


class _Idle:
    """Observes a server that nobody asks."""

    def __init__(self, server: Server, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self.per_second = 0.0
        """Processor time of the idle server per second, in seconds."""

    def measure(self) -> Sample:
        """Waits, and returns what the server has taken in the meantime."""
        before, begin = procfs.work(self._server.processes()), time.perf_counter()
        time.sleep(self._seconds)
        spent = procfs.seconds_since(before, procfs.work(self._server.processes()))
        self.per_second = spent / (time.perf_counter() - begin)
        return {"idle_ms_per_s": 1000 * self.per_second}


class _Asking:
    """Asks the question of a variant."""

    def __init__(
        self,
        variant: Variant,
        asker: Child,
        servers: dict[str, Server],
        idle: dict[str, _Idle],
        numbers: _Numbers,
        size: Size,
    ) -> None:
        self._variant = variant
        self._asker = asker
        self._server = servers[variant.parameters["server"]]
        self._idle = idle[variant.parameters["server"]]
        self._numbers = numbers
        self._size = size
        (self._question,) = (it for it in _QUESTIONS if it.name == variant.parameters["question"])

    def measure(self) -> Sample:
        """Asks, and returns what the clients have waited and the server has worked."""
        clients = self._variant.parameters["clients"]
        requests = self._size.driver_requests if clients == 1 else -(-2 * self._size.driver_requests // clients)
        before = procfs.work(self._server.processes())
        seconds, total = self.ask(clients, requests)
        spent = procfs.seconds_since(before, procfs.work(self._server.processes()))
        return {
            "server_ms": 1000 * max(0.0, spent - total * self._idle.per_second) / len(seconds),
            "requests_per_s": len(seconds) / total,
            **latencies(seconds),
        }

    def ask(self, clients: int, requests: int) -> tuple[list[float], float]:
        """Returns the time of each request, and the time of all together, in seconds."""
        asked = clients * requests
        request = {
            "address": self._server.address(self._variant),
            "clients": clients,
            "requests": requests,
            "sql": self._question.sql,
            "form": self._variant.parameters["form"],
            "first": self._numbers.take(asked),
            "keys": self._size.driver_rows,
            "rows": self._question.rows,
            "check": "?" in self._question.sql and self._variant.parameters["server"] != _STUB,
        }
        answer = self._asker.ask(json.dumps(request))
        if len(answer["seconds"]) != asked:
            raise RuntimeError(f"{len(answer['seconds'])} of {asked} requests were answered: {request}")
        return answer["seconds"], answer["total_seconds"]


def _demands(variants: dict[str, Variant]) -> list[Demand]:
    """Returns the demands on the drivers of Volary. Each is about the form and the number of clients that are worst."""
    asked = [it for it in variants.values() if it.parameters["server"] == _VOLARY]
    demands = []
    for driver in _DRIVERS:
        ours = [it for it in asked if (it.parameters["driver"], it.parameters["question"]) == (driver.name, _POINT)]
        alone = [it for it in ours if it.parameters["clients"] == 1]
        point = f"{driver.name}: server's processor time"
        demands += _worst(point, f"≤ {driver.server_ms} ms", _figures(ours, "server_ms"))
        demands += _worst(f"{point} / the stub's", f"≤ {_PER_STUB}", _per_stub(ours, variants, "server_ms"))
        literals, parameters = ([it for it in ours if it.parameters["form"] == form] for form in _FORMS)
        ratios = _ratios(zip(literals, parameters, strict=True), "server_ms")
        demands += _worst(f"{point}, literal / parameter", f"≤ {_PER_PARAMETER}", ratios)
        if driver.p50_ms is None:
            p50, what, goal = _per_stub(alone, variants, "p50_ms"), " / of the stub", f"≤ {_PER_STUB}"
        else:
            p50, what, goal = _figures(alone, "p50_ms"), "", f"≤ {driver.p50_ms} ms"
        demands += _worst(f"{driver.name}: p50{what}", goal, p50)
    for question in _QUESTIONS:
        if question.per_stub is not None:
            ours = [it for it in asked if it.parameters["question"] == question.name]
            what = f"JDBC: {question.name}, p50 / of the stub"
            demands += _worst(what, f"≤ {question.per_stub}", _per_stub(ours, variants, "p50_ms"))
    return demands


Figures = list[tuple[Variant, Spread]]
"""Figures of variants."""


def _figures(ours: Iterable[Variant], metric: str) -> Figures:
    return [(it, it.spread(metric)) for it in ours]


def _per_stub(ours: Iterable[Variant], variants: dict[str, Variant], metric: str) -> Figures:
    """Returns the ratios of variants to their stubs."""
    return _ratios(((it, variants[it.baseline]) for it in ours if it.baseline is not None), metric)


def _ratios(pairs: Iterable[tuple[Variant, Variant]], metric: str) -> Figures:
    """Returns the ratio of each pair, turn by turn. A turn whose divisor is too small to be measured is left out."""
    figures = []
    for ours, theirs in pairs:
        turns = zip(ours.samples[metric], theirs.samples[metric], strict=True)
        if ratios := [mine / other for mine, other in turns if other > 0]:
            figures.append((ours, Spread.of(ratios)))
    return figures


def _worst(what: str, goal: str, figures: Figures) -> list[Demand]:
    """Returns the demand on the largest of these figures, or nothing if there is none."""
    if not figures:
        return []
    variant, spread = max(figures, key=lambda figure: figure[1].median)
    which = f"{variant.parameters['form']}, clients: {variant.parameters['clients']}"
    return [Demand(f"{what} ({which})", goal, spread)]
