"""Tests the benchmarks of Python clients. Every table must be measured and drawn. The values are not checked."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from processes import binary

# Timeout for a table, in seconds. It takes less than half a minute, but the machine may be slow.
SECONDS = 1200
pytestmark = [pytest.mark.server, pytest.mark.timeout(2 * SECONDS)]

BENCHES = Path(__file__).resolve().parents[2] / "benches"
# Linux reports the processor time of other processes in hundredths of a second. So few rows may take less.
MAY_BE_ZERO = {"server_s", "workers_s"}


def run(*command: str | Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    # The threads of OpenBLAS only spin, since nothing here multiplies matrices.
    quiet = {"OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **quiet, "VOLARY_BIN": str(binary("volary")), "TMPDIR": str(temporary)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)


@pytest.mark.parametrize("table", ["python_concurrency", "result_transfer"])
def test_a_table_has_finite_samples_of_every_variant_and_is_drawn(table: str, tmp_path: Path) -> None:
    results = tmp_path / "results"
    program = BENCHES / "python" / "bench.py"
    done = run(sys.executable, program, "--smoke", f"--only={table}", f"--results={results}", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
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
    plots = tmp_path / "plots"
    drawn = run(sys.executable, BENCHES / "plots" / "plot.py", results, plots, temporary=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert ElementTree.fromstring((plots / f"{table}.svg").read_bytes()).tag.endswith("svg")


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
