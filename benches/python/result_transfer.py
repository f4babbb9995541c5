"""Reads a large table into pyarrow, compared with a bare Flight server that has the same batches in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import data
import procfs
from child import Child, program
from cluster import Cluster, in_processes
from measured import Demand, Sample, Variant
from sizes import Size
from turns import Measure, measure_in_turns

TABLE = "result_transfer"
TITLE = "A large result, read into pyarrow"
METHOD = """\
`SELECT *` of a table of integers, doubles, dates and texts, from a gateway and 4 workers in processes of their own,
with default settings. The files are in the page cache. The bare server is a server of `pyarrow.flight`, whose streams
are Arrow C++'s own. It has the batches in memory, in the sizes in which a gateway has sent them. The bare relay is
another such server, which only passes on the rows of the first: it shows the cost of passing through a process. Each
way has its own process, which reads all rows once in each turn. It either counts rows and bytes and drops each batch,
or keeps all rows as a table.

Rows pass through the gateway, or come from the workers themselves (direct results). `pyarrow` reads with GetFlightInfo
and DoGet. `volary` reads with `batches()` and `to_arrow()` from the gateway, and with `sql(..., direct=True).batches()`
and `read_table()` from the workers. `ADBC` reads with `fetch_arrow_table` of its DB-API.

Megabytes are those of the Arrow data (`nbytes`). Processor time is that for 1,000 MB: of the gateway or the bare
servers (`server_s`), of the workers, of the client, and of all together (`total_s`). They share the machine's
processors. If there are few processors, the total processor time determines the throughput."""

_WORKERS = 4
_MB = 1e6
_BARE_DROPPED, _BARE_KEPT = "bare server, pyarrow, dropped", "bare server, pyarrow, kept"
# All variants in the order of the table, each with the variant that it is compared with.
_WAYS = {
    _BARE_DROPPED: None,
    "bare relay, pyarrow, dropped": _BARE_DROPPED,
    "gateway, pyarrow, dropped": _BARE_DROPPED,
    "gateway, volary, dropped": _BARE_DROPPED,
    "workers, volary, dropped": _BARE_DROPPED,
    _BARE_KEPT: None,
    "gateway, volary, kept": _BARE_KEPT,
    "gateway, ADBC, kept": _BARE_KEPT,
    "workers, volary, kept": _BARE_KEPT,
}


def measure(size: Size, directory: Path) -> tuple[list[Variant], list[Demand], dict[str, str]]:
    """Returns the variants, the demands on them, and the version of the server."""
    log = directory / "clients.log"
    with ExitStack() as programs:
        cluster = programs.enter_context(in_processes(directory, workers=_WORKERS))
        with program("load", cluster.uri, data.lines(size.transfer_mib), log=directory / "load.log") as load:
            version = load.answer()["version"]
        bare = programs.enter_context(program("bare_server", cluster.uri, data.LINES, log=directory / "bare.log"))
        served = bare.answer()
        relay = programs.enter_context(program("bare_relay", served["uri"], log=directory / "bare.log"))
        uris = (cluster.uri, served["uri"], relay.answer()["uri"])
        variants = {name: _variant(name, served["rows"]) for name in _WAYS}
        measures = {}
        for name in _WAYS:
            reader = programs.enter_context(program("reader", name, *uris, log=log))
            measures[name] = _reading(reader, cluster, [bare, relay], served["rows"])
        measure_in_turns(measures, variants, size.transfer_turns, size.warm_ups)
    return list(variants.values()), _demands(variants), {"volary": version}


def _variant(name: str, rows: int) -> Variant:
    source, client, rest = name.split(", ")
    return Variant(name, {"from": source, "client": client, "batches": rest, "rows": rows}, _WAYS[name])


def _reading(reader: Child, cluster: Cluster, bare: Iterable[Child], rows: int) -> Measure:
    """Reads once in each turn."""
    servers = [cluster.gateway, *(server.pid for server in bare)]

    def measure() -> Sample:
        before = [procfs.processor_seconds(servers), procfs.processor_seconds(cluster.workers)]
        answer = reader.ask("read")
        after = [procfs.processor_seconds(servers), procfs.processor_seconds(cluster.workers)]
        if answer["rows"] != rows:
            raise RuntimeError(f"{answer['rows']} rows were read instead of {rows}")
        mb = answer["bytes"] / _MB
        server_s, workers_s = (1000 * (late - early) / mb for late, early in zip(after, before, strict=True))
        client_s = 1000 * answer["processor_seconds"] / mb
        return {
            "mb_per_s": mb / answer["seconds"],
            "total_s": server_s + workers_s + client_s,
            "server_s": server_s,
            "workers_s": workers_s,
            "client_s": client_s,
            "batch_kib": answer["bytes"] / answer["batches"] / 1024,
        }

    return measure


def _demands(variants: Mapping[str, Variant]) -> list[Demand]:
    """Returns the demands on the throughput, as ratios to the throughput of the bare server."""
    demanded = {
        "gateway, pyarrow, dropped": "≥ 0.8",
        "gateway, volary, dropped": "≥ 0.8",
        "gateway, volary, kept": "≥ 0.8",
        "workers, volary, dropped": "≥ 1",
        "workers, volary, kept": "≥ 1",
    }
    return [
        Demand(f"{name}: MB/s / bare server", goal, variants[name].ratio(variants[_WAYS[name]], "mb_per_s"))
        for name, goal in demanded.items()
    ]
