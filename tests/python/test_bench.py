"""Tests `volary-bench`. Every table must succeed and have samples that can be drawn. The values are not checked."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from processes import binary

# Timeout for all tables, in seconds. They take a few seconds, but the machine may be slow.
SECONDS = 1200
pytestmark = [pytest.mark.server, pytest.mark.timeout(SECONDS + 60)]

REPOSITORY = Path(__file__).resolve().parents[2]
# The tables that need only what this repository builds.
TABLES = {
    "chunks",
    "readers",
    "fanout",
    "floor",
    "relays",
    "point",
    "lookups",
    "point_load",
    "groups",
    "slow_client",
    "concurrency",
    "observed",
    "writes",
    "reading_while_writing",
    "many_inserts",
    "sustained_writes",
    "wide_insert",
    "tpch",
    "load",
}
# These metrics may be zero. For example, memory that was free before may not grow measurably, and a short time may end
# before anything is merged.
MAY_BE_ZERO = {
    "failures",
    "server_ms",
    "generator_ms",
    "read_ms",
    "plan_kib",
    "growth_mib",
    "bytes_per_group",
    "disk_flushes_per_statement",
    "server_cpu_ms_per_batch",
    "server_cpu_us_per_key",
    "segments",
    "log_rows",
    "logged_mib",
    "flushed_mib",
    "written_mib",
    "compacted_mib",
    "waiting_mib",
    "allocated_kib_per_insert",
    "idle_allocated_kib_per_s",
}
# The name of the variant that stands for those of PostgreSQL where it is not installed.
NO_POSTGRES = {"PostgreSQL: not installed; `apt-get install postgresql` installs it"}


def run(*command: str | Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, without the Volary settings of the user who runs the tests."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith("VOLARY_")}
    # The threads of OpenBLAS only spin, since nothing here multiplies matrices.
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**settings, **quiet, "TMPDIR": str(temporary)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)


def bench(temporary: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the benchmark with tables of the smallest size."""
    queries = REPOSITORY / "tests" / "queries" / "tpch"
    return run(binary("volary-bench"), "--smoke", f"--queries={queries}", *arguments, temporary=temporary)


class Run(NamedTuple):
    """The directory of the raw results, the standard output, and the standard error."""

    results: Path
    printed: str
    said: str


@pytest.fixture(scope="module")
def all_tables(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of all tables, without Ballista even if it is installed. This release stands in for an earlier one."""
    directory = tmp_path_factory.mktemp("bench")
    done = bench(
        directory,
        f"--results={directory / 'results'}",
        "--workers=2",
        f"--ballista={directory / 'not-installed'}",
        f"--earlier-release={binary('volary')}",
    )
    assert done.returncode == 0, done.stderr
    return Run(directory / "results", done.stdout, done.stderr)


def variants(results: Path, table: str) -> dict[str, dict[str, Any]]:
    """Returns the variants of a table by name."""
    return {variant["name"]: variant for variant in json.loads((results / f"{table}.json").read_text())["variants"]}


def test_every_table_has_finite_samples_of_every_variant(all_tables: Run) -> None:
    results, printed, _ = all_tables
    assert {path.stem for path in results.iterdir()} == TABLES
    for path in results.glob("*.json"):
        table = json.loads(path.read_text())
        assert table["table"] == path.stem
        assert table["size"] == "smoke"
        assert table["method"]
        assert table["date"].endswith("Z")
        assert {"volary", "datafusion", "arrow"} <= table["versions"].keys()
        assert table["machine"]["cpus"] > 0
        assert table["machine"]["memory"] > 0
        assert f"## {table['title']} (smoke)\n" in printed
        names = [variant["name"] for variant in table["variants"]]
        assert len(set(names)) == len(names) > 0
        for variant in table["variants"]:
            assert f"| {variant['name']} |" in printed
            assert variant.get("baseline", names[0]) in names
            assert variant["samples"] or variant["name"] in NO_POSTGRES
            for metric, samples in variant["samples"].items():
                assert samples, metric
                assert all(map(math.isfinite, samples)), (variant["name"], metric, samples)
                lowest = 0 if metric in MAY_BE_ZERO else sys.float_info.min
                assert min(samples) >= lowest, (variant["name"], metric, samples)


def test_each_variant_is_compared_with_its_own_baseline(all_tables: Run) -> None:
    results = all_tables.results
    tpch = variants(results, "tpch")
    queries = [f"q{number:02}" for number in range(1, 23)]
    assert [name for name, variant in tpch.items() if "baseline" in variant] == [
        f"{query}, Volary" for query in [*queries, "total"]
    ]
    # With one turn, the total is the sum of the queries' times.
    for engine in ("Volary", "DataFusion"):
        times = [tpch[f"{query}, {engine}"]["samples"]["total_ms"][0] for query in queries]
        assert tpch[f"total, {engine}"]["samples"]["total_ms"] == [pytest.approx(sum(times))]
    assert variants(results, "observed")["an earlier release"]["baseline"] == "nobody watches"
    assert variants(results, "load")["an earlier release"]["baseline"] == "this release in a process"
    for floor in ("Volary, the gateway alone", "Volary, relays by cost"):
        assert variants(results, "floor")[floor]["baseline"] == "bare DoGets"
    chunked = [variant for variant in variants(results, "chunks").values() if variant["parameters"]["chunked"]]
    assert len(chunked) == 4
    for variant in chunked:
        assert variant["baseline"].startswith(f"{variant['parameters']['row_bytes']} bytes ")


def test_no_question_of_many_clients_fails(all_tables: Run) -> None:
    results = all_tables.results
    for variant in [*variants(results, "concurrency").values(), *variants(results, "observed").values()]:
        assert set(variant["samples"]["failures"]) == {0}
        assert {"point_p50_ms", "group_by_p99_ms", "join_p99_ms"} <= variant["samples"].keys()


def test_the_load_of_point_queries_is_compared_with_a_stub(all_tables: Run) -> None:
    load = variants(all_tables.results, "point_load")
    for ours in ("Volary", "Volary, calls in process"):
        assert load[ours]["baseline"] == "stub"
    assert {"queries_per_s", "server_ms", "generator_ms", "p50_ms"} <= load["stub"]["samples"].keys()


def test_writes_are_compared_with_the_raw_costs_and_with_postgresql(all_tables: Run) -> None:
    writes = variants(all_tables.results, "writes")
    ways = {variant["parameters"].get("way") for variant in writes.values()}
    ours = {"Volary", "Volary, streams"}
    theirs = set() if NO_POSTGRES & writes.keys() else {"PostgreSQL, INSERT", "PostgreSQL, COPY"}
    assert ways - {None} == {"fdatasync of a block", "bare Flight round trip", "plain Parquet", *ours, *theirs}
    goals = {name: variant for name, variant in writes.items() if "goal" in variant["parameters"]}
    # Three goals are about each way of writing to Volary, one about its peak, and one about each way of PostgreSQL.
    assert len(goals) == 3 * len(ours) + 1 + len(theirs)
    # With one turn, the ratio of the goal is that of the variants.
    raw = [writes[name]["samples"]["p50_ms"][0] for name in ("fdatasync of a block", "bare Flight round trip")]
    for way in ours:
        (floor,) = (goal for name, goal in goals.items() if name.startswith(f"{way}: ") and "two fdatasyncs" in name)
        latency = writes[f"{way}, clients: 1, rows: 1"]["samples"]["p50_ms"][0]
        assert floor["samples"]["ratio"] == [pytest.approx(latency / (2 * sum(raw)))]


def test_one_row_inserts_and_their_copy_have_the_same_rows(all_tables: Run) -> None:
    inserts = variants(all_tables.results, "many_inserts")
    # 64 clients insert equally many rows.
    assert inserts["inserting"]["samples"]["rows"] == [256]
    assert inserts["OPTIMIZE"]["samples"]["optimize_s"]


def test_all_tables_are_drawn_and_the_same_results_as_the_same_bytes(all_tables: Run, tmp_path: Path) -> None:
    results = all_tables.results
    for plots in ("first", "second"):
        program = REPOSITORY / "benches" / "plots" / "plot.py"
        drawn = run(sys.executable, program, results, tmp_path / plots, temporary=tmp_path)
        assert drawn.returncode == 0, drawn.stderr
    for table in TABLES:
        plot = (tmp_path / "first" / f"{table}.svg").read_bytes()
        assert ElementTree.fromstring(plot).tag.endswith("svg")
        assert (tmp_path / "second" / f"{table}.svg").read_bytes() == plot


def test_tables_are_chosen_by_name_and_turns_counted(tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = bench(tmp_path, f"--results={results}", "--only=readers", "--rounds=2")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in results.iterdir()) == ["readers.json", "readers.md"]
    assert all(len(variant["samples"]["mb_per_s"]) == 2 for variant in variants(results, "readers").values())
    done = bench(tmp_path, f"--results={results}", "--only=writers")
    assert done.returncode == 1
    assert 'there is no table "writers"; there are chunks, readers, ' in done.stderr


def test_what_is_not_installed_is_skipped_unless_it_was_asked_for(all_tables: Run, tmp_path: Path) -> None:
    (skipped,) = (line for line in all_tables.said.splitlines() if line.startswith("ballista: skipped: "))
    assert skipped.endswith("/not-installed/ballista-scheduler; `make ballista` installs it")
    done = bench(tmp_path, f"--results={tmp_path}", "--only=ballista", f"--ballista={tmp_path}")
    assert done.returncode == 1
    advice = f"there is no {tmp_path}/ballista-scheduler; `make ballista` installs it"
    assert f"ballista has failed: {advice}\n" in done.stderr
    assert not list(tmp_path.glob("*.json"))


def test_ballista_answers_beside_volary_where_it_is_installed(tmp_path: Path) -> None:
    installed = binary("volary-bench").parent.parent / "ballista" / "bin"
    if not (installed / "ballista-executor").is_file():
        pytest.skip(f"there is no Ballista in {installed}; `make ballista` installs it")
    results = tmp_path / "results"
    done = bench(tmp_path, f"--results={results}", "--only=ballista", "--query=q1", "--workers=2")
    assert done.returncode == 0, done.stderr
    measured = variants(results, "ballista")
    names = [*(f"q{number}" for number in range(10, 20)), "total"]
    assert list(measured) == [f"{name}, {engine}" for name in names for engine in ("Volary", "Ballista")]
    for name in names:
        assert measured[f"{name}, Volary"]["baseline"] == f"{name}, Ballista"
    program = REPOSITORY / "benches" / "plots" / "plot.py"
    drawn = run(sys.executable, program, results, tmp_path / "plots", temporary=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "plots" / "ballista.svg").is_file()
