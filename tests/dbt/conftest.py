"""Loads dbt's own fixtures, and gives them a target in a cluster with users that all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from changes import Changes
from cluster import ADMIN_PASSWORD, SECURED, LocalCluster

import volary

Changes().install()
pytest_plugins = ["dbt.tests.fixtures.project"]

# The users that dbt's tests of grants expect.
_USERS = {"DBT_TEST_USER_1": "dbt_kea", "DBT_TEST_USER_2": "dbt_kaka", "DBT_TEST_USER_3": "dbt_tui"}


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a gateway, and a token of its administrator."""
    directory = Path(tmp_path_factory.mktemp("cluster"))
    with LocalCluster(directory, workers=2, settings=SECURED) as cluster:
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            token = admin.sql("CREATE TOKEN dbt").rows()[0][0]
            for user in _USERS.values():
                admin.sql(f"CREATE USER {user}")
        os.environ.update(_USERS)
        yield cluster.uri, token


@pytest.fixture(scope="class")
def volary_target(gateway: tuple[str, str]) -> dict[str, object]:
    """The target of a profile."""
    uri, token = gateway
    host, port = uri.removeprefix("grpc://").rsplit(":", 1)
    return {"type": "volary", "threads": 4, "host": host, "port": int(port), "token": token}


@pytest.fixture(scope="class")
def dbt_profile_target(volary_target: dict[str, object]) -> dict[str, object]:
    """The target of the profile that dbt's tests write."""
    return volary_target


@pytest.fixture(scope="class")
def test_data_dir(request: pytest.FixtureRequest) -> str:
    """The directory of the data of a test of dbt's suite, beside the test."""
    return str(Path(str(sys.modules[request.cls.__module__].__file__)).parent / "data")
