"""Checks compose.yaml with the parser of Docker Compose, and runs its nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from programs import REPOSITORY, call, need

COMPOSE = REPOSITORY / "packaging" / "compose.yaml"
# Docker Compose reads its files with this module.
PARSER = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
WORKERS = [f"worker-{number}" for number in (1, 2, 3)]


def parsed(file: Path) -> dict:
    need("go")
    environment = {**os.environ, "GOFLAGS": ""}
    return json.loads(call("go", "run", PARSER, "--no-interpolation", "--format=json", file, env=environment))


def test_the_file_is_one_of_the_compose_specification():
    services = parsed(COMPOSE)["services"]
    assert sorted(services) == ["gateway", "prometheus", *WORKERS]
    for name in ("gateway", *WORKERS):
        node = services[name]
        assert node["read_only"]
        assert node["cap_drop"] == ["ALL"]
        assert [volume["target"] for volume in node["volumes"]] == ["/var/lib/volary"]
        assert node["volumes"][0]["source"] == name, "each node has a volume of its own"
    advertised = [services[name]["environment"]["VOLARY_WORKER__ADVERTISE"] for name in WORKERS]
    assert advertised == [f"{name}:7200" for name in WORKERS]
    for port in (port for service in services.values() for port in service.get("ports", [])):
        assert port["host_ip"] == "127.0.0.1", "nothing is published to other machines"


def test_the_parser_refuses_a_misspelt_key(tmp_path: Path):
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("cap_drop:", "cap_dorp:"))
    with pytest.raises(AssertionError, match="cap_dorp"):
        parsed(wrong)
