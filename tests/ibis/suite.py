"""A plugin of pytest that runs Ibis' own tests of backends with Volary.

Ibis' tests are a part of its package. They find backends, their data and their marks by name, and know only those of
Ibis, so this plugin puts Volary in place of all of them. `excluded.py` lists the tests that Volary does not pass.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import ibis
import ibis.backends
import pytest
from cluster import LocalCluster
from pyarrow import csv, parquet

import volary.ibis

# Ibis calls this function when its conftest.py is imported, to make a variant of each test for each backend.
_names = ibis.backends._get_backend_names
ibis.backends._get_backend_names = lambda **_: frozenset({"volary"})
sys.modules["ibis.backends.volary"] = volary.ibis
upstream = importlib.import_module("ibis.backends.conftest")
upstream.ALL_BACKENDS = set(_names()) | {"volary"}

from excluded import SKIPPED, reason_of  # noqa: E402
from ibis.backends.tests.base import BackendTest  # noqa: E402
from tables import all_tables  # noqa: E402

_OTHERS = frozenset(_names()) - {"volary"}


class TestConf(BackendTest):
    """How Ibis' tests connect, and which data they find."""

    __test__ = False
    check_dtype = True
    supports_map = True
    supports_json = False
    stateful = False
    deps = ()
    cluster: LocalCluster

    @classmethod
    def name(cls) -> str:
        return "volary"

    @staticmethod
    def connect(*, tmpdir: Any, worker_id: str, **options: Any) -> Any:
        return ibis.volary.connect(TestConf.cluster.uri, **options)

    def _load_data(self, **_: Any) -> None:
        # Many tests expect the rows in the order in which they were written, so the tables have one shard.
        for name, table in all_tables().items():
            self.connection.create_table(name, table, shards=1, overwrite=True)


upstream._get_backend_conf = lambda name: TestConf
upstream._get_backend_cls = lambda name: volary.ibis.Backend


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the tables to files, which some tests read."""
    directory = tmp_path_factory.mktemp("data")
    for format in ("parquet", "csv"):
        (directory / format).mkdir()
    for name in upstream.TEST_TABLES:
        table = all_tables()[name]
        parquet.write_table(table, directory / "parquet" / f"{name}.parquet")
        csv.write_csv(table, directory / "csv" / f"{name}.csv")
    return directory


importlib.import_module("ibis.conftest").data_dir = data_dir


@pytest.fixture(scope="session", autouse=True)
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=3) as TestConf.cluster:
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks that Ibis' own configuration declares, which its package does not contain."""
    marks = {"notimpl", "notyet", "never", "xfail_version", "backend", "benchmark", "core", "geospatial", "volary"}
    for mark in sorted(marks | _OTHERS | {"examples", "tpcds", "tpch"}):
        config.addinivalue_line("markers", f"{mark}: a mark of Ibis")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that fail, and leaves out those that ask nothing of a backend, or of another backend."""
    others = _OTHERS | {"postgresql"}
    items[:] = [item for item in items if not others & set(item.name.rpartition("[")[2].rstrip("]").split("-"))]
    # These tests read data that other backends make with extensions of DuckDB.
    items[:] = [item for item in items if "tpc" not in item.path.parts]
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for fixture, reason in SKIPPED.items():
            if fixture in fixtures:
                item.add_marker(pytest.mark.skip(reason=reason))
        name = f"{item.path.name}::{item.name}"
        if (reason := reason_of(name)) is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
