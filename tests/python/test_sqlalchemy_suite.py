"""Runs SQLAlchemy's compliance suite in a separate process, because it has its own pytest plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import LocalCluster
from processes import environment

SUITE = Path(__file__).resolve().parents[1] / "sqlalchemy"
LEAST_PASSED = 920
SECONDS = 1800


@pytest.mark.server
@pytest.mark.timeout(SECONDS + 60)
def test_the_compliance_suite_passes(tmp_path):
    command = [sys.executable, "-m", "pytest", "-c", "setup.cfg", "--rootdir=.", "-q", "-p", "no:cacheprovider"]
    # The suite lists all tables and expects only its own, so no other test may use the cluster.
    with LocalCluster(tmp_path, workers=2) as cluster:
        with cluster.connect() as connection:
            for name in ("test_schema", "test_schema_2"):
                connection.sql(f"CREATE SCHEMA {name}")
        url = cluster.uri.replace("grpc://", "volary://")
        ended = subprocess.run(
            # Other kinds of tracebacks take a second for each failing test.
            [*command, "--tb=native", f"--dburi={url}", "test_suite.py"],
            cwd=SUITE,
            env=environment({}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr[-2_000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) >= LEAST_PASSED
