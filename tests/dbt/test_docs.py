"""Builds the project of docs/clients/dbt.md as it is written there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from dbt.cli.main import dbtRunner

import volary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients" / "dbt.md"
ADDRESS = "grpc://127.0.0.1:7100"
FILES = re.findall(r"```(?:yaml|sql|csv)\n(?:#|--) (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def directory(gateway, tmp_path, monkeypatch):
    """A directory with the files of the page."""
    uri, token = gateway
    for name, text in FILES:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        # The cluster of the tests has users.
        file.write_text(text.replace(ADDRESS, f"{uri}\n      token: {token}").lstrip(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_project_of_the_page_is_built_again_and_again(gateway, directory):
    assert {"dbt_project.yml", "profiles.yml", "models/sightings.sql", "seeds/stations.csv"} <= {
        name for name, _ in FILES
    }
    for rows in (4, 4):
        result = dbtRunner().invoke(["build", "--project-dir", str(directory), "--profiles-dir", str(directory)])
        assert result.success, result.exception or [node.message for node in result.result]
        with volary.connect(gateway[0], token=gateway[1]) as connection:
            assert connection.sql("SELECT count(*) FROM dbt_birds.sightings").rows() == [(rows,)]
    with volary.connect(gateway[0], token=gateway[1]) as connection:
        options = (
            "SELECT shard_key, shards, comment FROM system.tables WHERE schema_name = 'dbt_birds' AND name = 'birds'"
        )
        assert connection.sql(options).rows() == [("bird", 8, "Birds that have a ring.")]
    assert json.loads((directory / "target" / "run_results.json").read_text())["results"]
