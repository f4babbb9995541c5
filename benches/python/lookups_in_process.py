"""Measures lookups of rows by key, compared with databases that run in the process of their client."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import data
import procfs
from child import Child, program
from cluster import Cluster, in_one_process_with_metrics
from measured import Demand, Sample, Variant
from sizes import Size
from turns import Measure, latencies, measure_in_turns

TABLE = "lookups_in_process"
TITLE = "Rows of many keys, compared with databases in the process of the client"
METHOD = """\
One client looks up the rows of random keys, one batch after another, for a fixed time in each turn. The keys of a batch
are different Python integers. In the same turn, all engines are asked for the same batches, as far as they get. The
answer is a table of `pyarrow` with all four columns (BIGINT, BIGINT, DOUBLE PRECISION, VARCHAR). The database has one
row for each key. Each engine has a client process of its own. Before the turns, all engines must give the same rows for
batches of all sizes, in which some keys have no row.

- **Volary** is `volary local` with 4 workers, in a process of its own on the same machine. A `connection.lookups` stays
  open. Before the turns, every key of the table is looked up once, so that all columns are decoded.
  `held_bytes_per_key` is the memory that all workers together then keep for lookups, which is decoded columns and what
  is known of the segments (`volary_lookup_held_bytes`), divided by the keys of the table.
- **Volary, cold** is another such cluster, with `worker.lookup.memory = "1KiB"`, in which nothing stays decoded. So
  each time a worker reads and decodes the pages in which the row is, one for each column, as it does for a row that
  nobody has asked for before. The files are in the page cache: the disk is not measured.
- **DuckDB** is the Python module `duckdb` with a file and a primary key. Up to 100 keys are parameters of
  `k IN (?, …)`, for which DuckDB uses its index. More keys are a registered Arrow table in `k IN (FROM keys)`. This was
  chosen by processor time in a short try with 10 million rows. A join with the registered table and
  `k IN (SELECT unnest(?))` took at most a tenth less with some numbers of keys, and up to twice as much with others.
- **SQLite** is Python's `sqlite3` with a file, an INTEGER PRIMARY KEY and memory-mapped pages (`mmap_size`). Keys are
  parameters of a prepared `k IN (?, …)`. In a short try with a million rows, `json_each` and `VALUES` were hardly
  faster, and one query for each key was much slower from 100 keys on. The client makes Arrow arrays of the rows.
- `client_us_per_key` is the processor time of the client's process per key. With DuckDB and SQLite, this is everything.
  `server_us_per_key` is the processor time of Volary's process, in which the gateway and the workers are. What the
  process does when nobody asks is part of it.

The files of all engines have just been written, so they are in the page cache. Choosing keys is not measured."""

_WORKERS = 4
_VOLARY, _COLD, _DUCKDB, _SQLITE = "Volary", "Volary, cold", "DuckDB", "SQLite"
_BATCHES = (1, 10, 100, 1_000, 2_000)
# Keys of a batch with which all rows are touched. A worker answers at most 32,768 rows from decoded columns.
_TOUCHED_AT_ONCE = 10_000
# More settings of the clusters. 1 KiB has no room for any decoded column.
_CLUSTERS = {_VOLARY: "", _COLD: '[worker.lookup]\nmemory = "1KiB"\n'}
_HELD = "Volary, decoded columns"
_HELD_METRIC = r"^volary_lookup_held_bytes(?:\{.*\})? (\S+)$"
_METRICS_SECONDS = 60
# Goal for keys per second with the most keys of a batch, as a ratio to single keys.
_PER_SINGLE_KEY = 5.8


def measure(size: Size, directory: Path) -> tuple[list[Variant], list[Demand], dict[str, str]]:
    """Returns the variants, the demands on them, and the versions of the engines."""
    rows = size.lookup_rows
    with ExitStack() as running:
        clusters = {
            way: running.enter_context(_loaded(directory / f"cluster{number}", rows, settings))
            for number, (way, settings) in enumerate(_CLUSTERS.items(), 1)
        }
        places = {way: cluster.uri for way, cluster in clusters.items()} | _files(directory, rows)
        askers = {
            way: running.enter_context(program("key_asker", _engine(way), place, log=directory / "askers.log"))
            for way, place in places.items()
        }
        versions = {_engine(way).lower(): asker.answer()["version"] for way, asker in askers.items()}
        _check_answers(askers, rows)
        askers[_VOLARY].ask(json.dumps({"every_key_below": rows, "keys": _TOUCHED_AT_ONCE}))
        variants = {variant.name: variant for variant in _variants(askers)}
        measures: dict[str, Measure] = {
            name: _looking_up(variant, askers, clusters, size) for name, variant in variants.items()
        }
        variants[_HELD] = Variant(_HELD, {"engine": _VOLARY})
        measures[_HELD] = lambda: {"held_bytes_per_key": _held_bytes(clusters[_VOLARY]) / rows}
        measure_in_turns(measures, variants, size.turns, size.warm_ups)
        if _held_bytes(clusters[_COLD]) > 0:
            raise RuntimeError(f"{_COLD}: some columns have stayed decoded")
    return list(variants.values()), _demands(variants), versions


def _engine(way: str) -> str:
    return _VOLARY if way in _CLUSTERS else way


@contextmanager
def _loaded(directory: Path, rows: int, settings: str) -> Iterator[Cluster]:
    """Runs a cluster that has the table."""
    with in_one_process_with_metrics(directory, workers=_WORKERS, settings=settings) as cluster:
        with program("load", cluster.uri, *data.keyed_table(rows), log=directory / "load.log") as load:
            load.answer()
        yield cluster


def _files(directory: Path, rows: int) -> dict[str, str]:
    """Creates the files of the databases that run in the process of their client. Returns their paths."""
    tables = {_SQLITE: ("sqlite3", data.sqlite_keyed_table(rows))}
    if find_spec("duckdb") is None:
        print(f"{TABLE}: without {_DUCKDB}: it is not installed; `pip install duckdb` installs it", file=sys.stderr)
    else:
        tables = {_DUCKDB: ("duckdb", data.duckdb_keyed_table(rows))} | tables
    paths = {}
    for engine, (module, statements) in tables.items():
        paths[engine] = str(directory / f"{module}.db")
        with program("load_file", module, paths[engine], *statements, log=directory / "load.log") as load:
            load.answer()
    return paths


def _check_answers(askers: Mapping[str, Child], rows: int) -> None:
    """Raises `RuntimeError` if the engines do not give the same rows. Keys before and after all others have no row."""
    absent = [-1, rows, rows + 1]
    for count in _BATCHES:
        keys = [*random.Random(count).sample(range(rows), count), *absent]
        answers = {way: asker.ask(json.dumps({"rows_of": keys}))["rows"] for way, asker in askers.items()}
        for way, answer in answers.items():
            if len(answer) != count or answer != answers[_VOLARY]:
                raise RuntimeError(f"{way} gives other rows for {count} keys: {answer[:3]}, not {answers[_VOLARY][:3]}")


def _variants(ways: Iterable[str]) -> Iterator[Variant]:
    """Yields all variants in the order of the table. Cold rows are looked up one by one."""
    for way in ways:
        for keys in _BATCHES if way != _COLD else (1,):
            baseline = None if way == _VOLARY else _name(_VOLARY, keys)
            yield Variant(_name(way, keys), {"way": way, "clients": 1, "keys": keys}, baseline)


def _name(way: str, keys: int) -> str:
    return f"{way}, keys: {keys}"


def _looking_up(variant: Variant, askers: Mapping[str, Child], clusters: Mapping[str, Cluster], size: Size) -> Measure:
    """Looks up keys in each turn. In the same turn, all ways are asked for the same keys."""
    way, keys = variant.parameters["way"], variant.parameters["keys"]
    request = {"random_keys_below": size.lookup_rows, "keys": keys, "seconds": size.lookup_seconds}
    servers = [clusters[way].gateway] if way in clusters else []
    seeds = itertools.count(1)

    def measure() -> Sample:
        before = procfs.work(servers)
        answer = askers[way].ask(json.dumps({**request, "seed": next(seeds)}))
        spent = procfs.seconds_since(before, procfs.work(servers))
        looked_up = keys * len(answer["seconds"])
        sample = {
            "keys_per_s": looked_up / sum(answer["seconds"]),
            **latencies(answer["seconds"]),
            "client_us_per_key": 1e6 * answer["processor_seconds"] / looked_up,
        }
        return sample | {"server_us_per_key": 1e6 * spent / looked_up} if servers else sample

    return measure


def _held_bytes(cluster: Cluster) -> float:
    """Returns the memory of the columns that the workers of a cluster keep decoded."""
    with urllib.request.urlopen(cluster.metrics, timeout=_METRICS_SECONDS) as answer:
        of_workers = re.findall(_HELD_METRIC, answer.read().decode(), re.MULTILINE)
    if len(of_workers) != _WORKERS:
        raise RuntimeError(f"{cluster.metrics} has this metric of {len(of_workers)} workers: {_HELD_METRIC}")
    return sum(map(float, of_workers))


def _demands(variants: Mapping[str, Variant]) -> list[Demand]:
    most = _BATCHES[-1]
    ratio = variants[_name(_VOLARY, most)].ratio(variants[_name(_VOLARY, 1)], "keys_per_s")
    return [Demand(f"{_VOLARY}: keys per second with {most:,} keys / with 1 key", f"≥ {_PER_SINGLE_KEY}", ratio)]
