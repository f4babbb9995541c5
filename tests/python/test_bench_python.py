"""Tests the benchmarks of Python clients. Every table must be measured and drawn. The values are not checked."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from processes import binary

# Timeout for a table, in seconds. It takes less than half a minute, but the machine may be slow.
SECONDS = 1200
pytestmark = [pytest.mark.server, pytest.mark.timeout(3 * SECONDS)]

BENCHES = Path(__file__).resolve().parents[2] / "benches"
# Linux reports the processor time of other processes in hundredths of a second. So few rows may take less.
MAY_BE_ZERO = {"server_s", "workers_s"}


TABLES = ("python_concurrency", "result_transfer")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Runs a program to its end, which must be a success.

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

    def run(*command: str | Path) -> None:
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            env={**os.environ, **settings},
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="module")
def all_results(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., None]) -> dict[str, Path]:
    """The directories with the results of the tables. Each table is measured alone."""
    directory = tmp_path_factory.mktemp("results")
    for table in TABLES:
        run(BENCHES / "python" / "bench.py", "--smoke", f"--only={table}", f"--results={directory / table}")
    return {table: directory / table for table in TABLES}


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


def test_all_tables_are_drawn(all_results: dict[str, Path], run: Callable[..., None], tmp_path: Path) -> None:
    results, plots = tmp_path / "results", tmp_path / "plots"
    for directory in all_results.values():
        shutil.copytree(directory, results, dirs_exist_ok=True)
    run(BENCHES / "plots" / "plot.py", results, plots)
    assert sorted(plot.name for plot in plots.iterdir()) == [f"{table}.svg" for table in TABLES]
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
