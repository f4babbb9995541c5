"""Tests the benchmarks of Python clients. Every table must be measured and drawn. The values are not checked."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from processes import binary

# Timeout for a table, in seconds. It takes less than half a minute, but the machine may be slow, and the first run of
# drivers downloads and compiles some of them.
SECONDS = 1200
pytestmark = [pytest.mark.server, pytest.mark.timeout(4 * SECONDS)]

BENCHES = Path(__file__).resolve().parents[2] / "benches"
# Some kernels report the processor time of other processes in hundredths of a second. So little work may take less, and
# no more than an idle server.
MAY_BE_ZERO = {"server_s", "workers_s", "server_ms", "idle_ms_per_s", "server_us_per_key"}
TABLES = ("python_concurrency", "result_transfer", "drivers", "lookups_in_process")
# The drivers that need nothing but packages that the tests need, too.
DRIVERS = {"volary", "volary asyncio", "ADBC"}
# Why another driver may be left out. A program that does not compile is an error.
REASONS = (
    "Go is not installed",
    "the modules of tests/go cannot be downloaded",
    "PostgreSQL is not installed",
    "psycopg is not installed",
    "java ",
    "mvn ",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a program to its end, which must be a success, and returns what it said.

    The program finds no pandas and no polars. It does not use them, but the ADBC driver imports them if they are
    installed, and many processes import the driver.
    """
    directory = tmp_path_factory.mktemp("run")
    for hidden in ("pandas", "polars"):
        (directory / f"{hidden}.py").write_text("raise ImportError('hidden by a test')\n")
    settings = {
        "VOLARY_BIN": str(binary("volary")),
        "TMPDIR": str(directory),
        "PYTHONPATH": str(directory),
        # The threads of OpenBLAS only spin, since nothing here multiplies matrices.
        "OPENBLAS_NUM_THREADS": "1",
    }

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            env={**os.environ, **settings},
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., str]) -> dict[Path, str]:
    """The directories with the results of the tables, each with what was said. Each table is measured alone."""
    directory = tmp_path_factory.mktemp("results")
    command = (BENCHES / "python" / "bench.py", "--smoke")
    return {directory / table: run(*command, f"--only={table}", f"--results={directory / table}") for table in TABLES}


@pytest.fixture(scope="module")
def all_results(said: dict[Path, str]) -> dict[str, Path]:
    """The directories with the results of the tables."""
    return {directory.name: directory for directory in said}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_finite_samples_of_every_variant(all_results: dict[str, Path], table: str) -> None:
    results = all_results[table]
    assert sorted(path.name for path in results.iterdir()) == [f"{table}.json", f"{table}.md"]
    raw = json.loads((results / f"{table}.json").read_text())
    assert (raw["table"], raw["size"]) == (table, "smoke")
    assert raw["method"]
    assert raw["date"].endswith("Z")
    assert {"volary", "python", "pyarrow", "adbc-driver-flightsql"} <= raw["versions"].keys()
    assert raw["machine"]["cpus"] > 0
    assert raw["machine"]["memory"] > 0
    page = (results / f"{table}.md").read_text()
    assert page.startswith(f"## {raw['title']} (smoke)\n")
    every_variant_has_samples(raw["variants"], page)
    for demand in raw["demands"]:
        assert f"| {demand['what']} | {demand['goal']} |" in page
        assert math.isfinite(demand["measured"]["median"])


def test_every_driver_is_measured_or_has_a_reason(said: dict[Path, str]) -> None:
    ((directory, printed),) = ((directory, text) for directory, text in said.items() if directory.name == "drivers")
    raw = json.loads((directory / "drivers.json").read_text())
    left_out = dict(re.findall(r"^drivers: without ([\w ]+): (.*)$", printed, re.MULTILINE))
    assert all(reason.startswith(REASONS) for reason in left_out.values()), left_out
    measured = {variant["parameters"].get("driver") for variant in raw["variants"]} - {None}
    assert measured == {*DRIVERS, "ADBC in Go", "JDBC", "psycopg", "pgjdbc"} - left_out.keys()
    assert measured >= DRIVERS
    servers = {variant["parameters"]["server"] for variant in raw["variants"]}
    assert {"Volary", "stub"} <= servers
    # Both forms are measured with the same clients, and each is compared with a stub of its own.
    variants = {variant["name"]: variant for variant in raw["variants"]}
    for driver in measured & DRIVERS:
        for form, clients in itertools.product(("literal", "parameter"), (1, 3)):
            name = f"{driver}, {form}, clients: {clients}"
            assert variants[f"{name}, Volary"]["baseline"] == f"{name}, stub"
            assert {"server_ms", "p50_ms", "requests_per_s"} <= variants[f"{name}, stub"]["samples"].keys()


def test_all_tables_are_drawn(all_results: dict[str, Path], run: Callable[..., str], tmp_path: Path) -> None:
    results, plots = tmp_path / "results", tmp_path / "plots"
    for directory in all_results.values():
        shutil.copytree(directory, results, dirs_exist_ok=True)
    run(BENCHES / "plots" / "plot.py", results, plots)
    assert sorted(plot.name for plot in plots.iterdir()) == sorted(f"{table}.svg" for table in TABLES)
    for plot in plots.iterdir():
        assert ElementTree.fromstring(plot.read_bytes()).tag.endswith("svg")


def every_variant_has_samples(variants: list[dict[str, Any]], page: str) -> None:
    names = [variant["name"] for variant in variants]
    assert len(set(names)) == len(names) > 0
    for variant in variants:
        assert f"| {variant['name']} |" in page
        assert variant["baseline"] is None or variant["baseline"] in names
        assert variant["samples"]
        for metric, samples in variant["samples"].items():
            assert samples, metric
            assert all(map(math.isfinite, samples)), (variant["name"], metric, samples)
            lowest = 0 if metric in MAY_BE_ZERO else sys.float_info.min
            assert min(samples) >= lowest, (variant["name"], metric, samples)
