"""Measures small queries from Python: pools of threads and of processes, one caller, and fresh processes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import data
from child import Child, program
from cluster import in_one_process
from measured import Demand, Sample, Variant
from sizes import Size
from turns import Measure, latencies, measure_in_turns

TABLE = "python_concurrency"
TITLE = "Small queries from Python: threads and processes, one caller, fresh processes"
METHOD = """\
`volary local` with 4 workers and default settings has a table of 100,000 rows. A point query reads one row by the shard
key, which is a parameter, and each query reads another key. The client `volary` is compared with the DB-API of the ADBC
driver. Clients and the cluster share the processors.

- **Pools**: a `ThreadPoolExecutor` or a `ProcessPoolExecutor` (spawn) of 10 workers gets 100 point queries at once (a
  burst). All workers have connected and asked before, and the main program gets the rows. Threads share one connection
  of `volary`. A connection of the ADBC driver is for one thread at a time (its `threadsafety` is 1), so each thread has
  its own, and so has each process. All pools exist all the time, and work in turns.
- **What a pool takes** is measured separately, while no other process has loaded Arrow: a program starts, imports,
  connects and runs a burst, which takes `from_nothing_ms`. Then the memory of all its processes is measured, while the
  pool still exists: `pss_mib` counts shared pages once, and `peak_rss_mib` counts them for each process.
- **One caller**: the main thread of a program asks one question after another. For comparison, a bare DoGet of
  `pyarrow.flight` reads one row that a server of Arrow C++ has in memory: this is the cost without a database.
- **Fresh processes** import, connect and ask twice."""

_CLIENTS = ("volary", "ADBC")
_POOLS = ("threads", "processes")
_BARE = "bare DoGet"
_NODES = 4
_REQUESTS = 100

_seeds = itertools.count(1)


def measure(size: Size, directory: Path) -> tuple[list[Variant], list[Demand], dict[str, str]]:
    """Returns the variants, the demands on them, and the version of the server."""
    pools = {variant.name: variant for client in _CLIENTS for variant in _pools(client, size)}
    callers = {variant.name: variant for variant in [*_askers("one caller"), _bare_asker("one caller")]}
    fresh = {variant.name: variant for variant in _askers("fresh process")}
    with in_one_process(directory, workers=_NODES) as cluster:
        uri = cluster.uri
        with program("load", uri, data.birds(), log=directory / "load.log") as load:
            version = load.answer()["version"]
        log = directory / "clients.log"
        from_nothing = {name: _from_nothing(variant, uri, log) for name, variant in pools.items()}
        measure_in_turns(from_nothing, pools, size.pool_turns, size.warm_ups)
        first_requests = {name: _first_request(variant, uri, log) for name, variant in fresh.items()}
        measure_in_turns(first_requests, fresh, size.turns, size.warm_ups)
        with ExitStack() as programs:
            bursts = {name: _bursts(variant, uri, log, size, programs) for name, variant in pools.items()}
            measure_in_turns(bursts, pools, size.turns, size.warm_ups)
        with ExitStack() as programs:
            bare = programs.enter_context(program("bare_server", uri, "SELECT 1", log=directory / "bare.log"))
            uris = {_BARE: bare.answer()["uri"]}
            started = {
                client: programs.enter_context(program("caller", client, uris.get(client, uri), log=log))
                for client in (*_CLIENTS, _BARE)
            }
            one_by_one = {
                name: _one_by_one(variant, started[variant.parameters["client"]], size)
                for name, variant in callers.items()
            }
            measure_in_turns(one_by_one, callers, size.turns, size.warm_ups)
    return [*pools.values(), *callers.values(), *fresh.values()], _demands(pools | callers | fresh), {"volary": version}


def _pools(client: str, size: Size) -> list[Variant]:
    names = {pool: f"{client}, {pool}" for pool in _POOLS}
    baselines = {"threads": names["processes"], "processes": None}
    return [
        Variant(names[pool], {"client": client, "pool": pool, "workers": size.pool_workers}, baselines[pool])
        for pool in _POOLS
    ]


def _askers(who: str) -> list[Variant]:
    """Returns a variant for each question and client, ordered by question."""
    return [
        Variant(
            f"{client}, {who}, {question}",
            {"client": client, "question": question, "who": who},
            None if client == _CLIENTS[-1] else f"{_CLIENTS[-1]}, {who}, {question}",
        )
        for question in data.QUESTIONS
        for client in _CLIENTS
    ]


def _bare_asker(who: str) -> Variant:
    """Returns the variant of a caller that always gets the same answer."""
    return Variant(f"{_BARE}, {who}", {"client": _BARE, "question": "SELECT 1", "who": who}, None)


def _pool(variant: Variant, uri: str, log: Path) -> AbstractContextManager[Child]:
    client, pool, workers = (variant.parameters[name] for name in ("client", "pool", "workers"))
    return program("pool", client, pool, uri, workers, log=log)


def _from_nothing(variant: Variant, uri: str, log: Path) -> Measure:
    """Starts the pool, measures it, and ends it."""

    def measure() -> Sample:
        begin = time.perf_counter()
        with _pool(variant, uri, log) as pool:
            pool.answer()
            pool.ask(f"burst {_REQUESTS} {next(_seeds)}")
            took = time.perf_counter() - begin
            return {"from_nothing_ms": 1000 * took, **pool.ask("footprint")}

    return measure


def _bursts(variant: Variant, uri: str, log: Path, size: Size, programs: ExitStack) -> Measure:
    """Sends bursts to a pool that keeps running."""
    pool = programs.enter_context(_pool(variant, uri, log))
    pool.answer()

    def measure() -> Sample:
        bursts = [pool.ask(f"burst {_REQUESTS} {next(_seeds)}") for _ in range(size.bursts)]
        total = sum(burst["total_seconds"] for burst in bursts)
        seconds = [each for burst in bursts for each in burst["seconds"]]
        return {"requests_per_s": len(seconds) / total, **latencies(seconds)}

    return measure


def _one_by_one(variant: Variant, caller: Child, size: Size) -> Measure:
    """Sends requests from the client's program, which keeps running."""

    def measure() -> Sample:
        answer = caller.ask(f"{size.requests} {next(_seeds)} {variant.parameters['question']}")
        seconds = answer["seconds"]
        return {"requests_per_s": len(seconds) / sum(seconds), **latencies(seconds)}

    return measure


def _first_request(variant: Variant, uri: str, log: Path) -> Measure:
    """Starts a program in each turn. The program ends after its requests."""

    def measure() -> Sample:
        arguments = (variant.parameters["client"], uri, next(_seeds), variant.parameters["question"])
        with program("first_request", *arguments, log=log) as fresh:
            return fresh.answer()

    return measure


def _demands(variants: Mapping[str, Variant]) -> list[Demand]:
    """Returns the demands on Volary's own client."""
    ours = _CLIENTS[0]
    threads, processes = (variants[f"{ours}, {pool}"] for pool in _POOLS)
    demands = [
        Demand("requests per second, threads / processes", "≥ 1", threads.ratio(processes, "requests_per_s")),
        Demand("memory, threads / processes", "≤ 0.4", threads.ratio(processes, "pss_mib")),
    ]
    for question in data.QUESTIONS:
        warm = variants[f"{ours}, one caller, {question}"].spread("p50_ms")
        demands.append(Demand(f"{question}, one caller, p50", "≤ 1.5 ms", warm))
    for question in data.QUESTIONS:
        first = variants[f"{ours}, fresh process, {question}"].spread("first_ms")
        demands.append(Demand(f"{question}, first query of a fresh process, after connecting", "≤ 50 ms", first))
    return demands
