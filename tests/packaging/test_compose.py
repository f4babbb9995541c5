"""Checks compose.yaml with the parser of Docker Compose, and runs its nodes."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from podman import OPEN_FILES, PROCESSES, RUNTIME, podman
from processes import until
from programs import REPOSITORY, call, need

import volary

COMPOSE = REPOSITORY / "packaging" / "compose.yaml"
# Docker Compose reads its files with this module.
PARSER = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
WORKERS = [f"worker-{number}" for number in (1, 2, 3)]


def parsed(file: Path) -> dict[str, Any]:
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
        assert port.startswith("127.0.0.1:"), "nothing is published to other machines"


def test_the_parser_refuses_a_misspelt_key(tmp_path: Path):
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("cap_drop:", "cap_dorp:"))
    with pytest.raises(AssertionError, match="cap_dorp"):
        parsed(wrong)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def ports(image: str, prometheus: str) -> Iterator[tuple[int, int]]:
    """The published ports of the gateway and of Prometheus, while all containers run."""
    need("podman-compose", root=True)
    project = f"volary-test-{os.getpid()}"
    gateway, metrics = free_port(), free_port()
    environment = {
        **os.environ,
        "VOLARY_IMAGE": image,
        "VOLARY_SECRET": "of-the-tests-and-far-longer-than-128-bits",
        "VOLARY_ADMIN_PASSWORD": "correct horse battery",
        "VOLARY_PORT": str(gateway),
        "VOLARY_OPEN_FILES": str(OPEN_FILES),
        "PROMETHEUS_IMAGE": prometheus,
        "PROMETHEUS_PORT": str(metrics),
    }
    compose = ["podman-compose", f"--file={COMPOSE}", f"--project-name={project}"]
    limits = [f"--ulimit=nofile={OPEN_FILES}:{OPEN_FILES}", PROCESSES]
    started = [f"--podman-run-args={' '.join([*RUNTIME, *limits])}"]
    try:
        call(*compose, *started, "up", "--detach", env=environment)
        yield gateway, metrics
    finally:
        call(*compose, "down", "--volumes", env=environment, check=False)
        podman("network", "rm", "--force", f"{project}_default")


def test_the_nodes_form_a_cluster_that_prometheus_asks(ports: tuple[int, int]):
    gateway, metrics = ports

    def workers() -> int:
        try:
            with volary.connect(
                f"grpc://127.0.0.1:{gateway}", username="admin", password="correct horse battery", timeout=30
            ) as connection:
                rows = connection.sql("SELECT count(*) FROM system.nodes WHERE role = 'worker'").rows()
                return int(rows[0][0])
        except volary.UnavailableError:
            return 0

    until(lambda: workers() == 3, "all workers have joined", 180)
    with volary.connect(f"grpc://127.0.0.1:{gateway}", username="admin", password="correct horse battery") as admin:
        admin.sql(
            "CREATE TABLE birds WITH (shard_key = 'id', shards = 6) AS SELECT value AS id FROM generate_series(1, 100)"
        )
        assert admin.sql("SELECT count(*) FROM birds").rows() == [(100,)]

    def targets() -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/api/v1/targets", timeout=30) as answer:
                return [target["health"] for target in json.load(answer)["data"]["activeTargets"]]
        except OSError:
            return []

    until(lambda: targets() == ["up"] * 4, "Prometheus has asked each node", 180)
