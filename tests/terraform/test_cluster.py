"""Starts a gateway and three workers as processes from what `terraform apply` has rendered: its settings, its
environment and its units. Certificates and secrets come to the machines as they do in AWS, through the script that
boots them.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from machine import Cloud, Machine
from module import Module
from processes import HeldPort, Process, binary, run, until
from test_bootstrap import with_nodes

import volary

ADMIN_PASSWORD = 'the "password" of $admin \\ 4711'
WORKERS = ("1", "2", "3")
ROWS = 3000


class Node:
    """A node of the cluster: what stays, which is its address and its volume, and the machine that it is on."""

    def __init__(self, directory: Path, name: str, cloud: Cloud) -> None:
        self.name = name
        self.role = "gateway" if name == "gateway" else "worker"
        self.directory = directory
        self.port = HeldPort()
        self.operations = HeldPort()
        self.device = cloud.volume(name)
        self.machine = Machine(directory / name, cloud, self.device)
        self.process: Process | None = None

    def described(self, gateway: Node, secrets: dict[str, Any]) -> dict[str, Any]:
        """Returns what the module bootstrap is told of the node."""
        node = {"listen": self.port.address}
        if self.role == "worker":
            node |= {"advertise": self.port.address, "gateway": f"grpc+tls://{gateway.port.address}", "zone": "here-a"}
        return {
            "role": self.role,
            "node": node,
            # The data is beside the machine, because it outlives it.
            "directories": {"settings": str(self.machine.etc), "data": str(self.directory / f"{self.name}-data")},
            "settings": {f"{self.role}.memory.limit": "256MiB"},
            "operations": {"listen": self.operations.address, "token": False},
            "secrets": secrets,
        }

    def start(self, files: dict[str, Any]) -> None:
        """Makes a machine, and starts the node on it as its unit does."""
        self.machine.begin(files)
        booted = self.machine.boot()
        assert booted.returncode == 0, booted.stderr
        unit = f"volary-{self.role}.service"
        environment = self.machine.environment(self.role)
        checked = run("volary", *self.machine.arguments(unit, "ExecStartPre"), settings=environment)
        assert checked.code == 0, checked.out + checked.err
        arguments = self.machine.arguments(unit, "ExecStart")
        self.process = Process(self.directory, self.name, arguments, environment)
        self.process.await_ready()

    def identity(self) -> dict[str, Any]:
        """Returns what the data directory says about the node that it belongs to."""
        known = json.loads((self.directory / f"{self.name}-data" / self.role / "volary.json").read_text())
        return {key: value for key, value in known.items() if "id" in key}

    def stop(self) -> None:
        """Shuts the machine down."""
        assert self.process is not None
        self.process.stop()

    def end(self) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.kill()
        self.port.close()
        self.operations.close()


class Cluster:
    """A gateway and three workers."""

    def __init__(self, directory: Path, module: Module) -> None:
        self._cloud = Cloud(directory / "cloud")
        self._module = with_nodes(module)
        certificates = Certificates(directory / "certificates", "--host=volary.internal", "--host=127.0.0.1")
        self.authority = certificates.authority
        files = {name: certificates.file(name).read_text() for name in ("authority.pem", "node.pem", "node.key")}
        secret = run("volary", "secret", "new").out.strip()
        self._secrets = {
            "region": "eu-central-1",
            "variables": {"VOLARY_SECRET": self._cloud.add_secret("secret", secret)},
            "files": {name: self._cloud.add_secret(name.replace(".", "-"), text) for name, text in files.items()},
        }
        password = self._cloud.add_secret("admin", ADMIN_PASSWORD)
        self._gateway_secrets = {
            **self._secrets,
            "variables": {**self._secrets["variables"], "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": password},
        }
        self._package = self._cloud.add_package(f'#!/bin/sh\nexec {binary("volary")} "$@"\n')
        self.gateway = Node(directory, "gateway", self._cloud)
        self.workers = {name: Node(directory, name, self._cloud) for name in WORKERS}

    def rendered(self) -> dict[str, Any]:
        """Applies the module, and returns the files of all machines."""
        nodes = {
            "gateway": self.gateway.described(self.gateway, self._gateway_secrets),
            **{name: node.described(self.gateway, self._secrets) for name, node in self.workers.items()},
        }
        applied = self._module.apply("nodes", {"nodes": nodes, "package": self._package})
        return {name: node["files"] for name, node in applied["nodes"].items()}

    def start(self) -> None:
        files = self.rendered()
        for node in (self.gateway, *self.workers.values()):
            node.start(files[node.name])

    def connect(self) -> volary.Connection:
        return volary.connect(
            f"grpc+tls://{self.gateway.port.address}",
            tls_ca=self.authority,
            username="admin",
            password=ADMIN_PASSWORD,
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.sql(statement).rows()

    def end(self) -> None:
        for node in (self.gateway, *self.workers.values()):
            node.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bootstrap: Module) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"), bootstrap)
    try:
        started.start()
        until(lambda: len(started.sql("SELECT id FROM system.nodes WHERE state = 'alive'")) == 4, "all nodes are up")
        started.sql("CREATE TABLE flights (k BIGINT, carrier VARCHAR) WITH (shard_key = 'k', shards = 12)")
        started.sql(f"INSERT INTO flights SELECT value, 'carrier ' || (value % 7) FROM generate_series(1, {ROWS})")
        yield started
    finally:
        started.end()


def counted(cluster: Cluster) -> list[tuple[Any, ...]]:
    return cluster.sql("SELECT count(*), sum(k), count(DISTINCT carrier) FROM flights")


EXPECTED = [(ROWS, ROWS * (ROWS + 1) // 2, 7)]


def test_rows_are_loaded_and_queried_through_tls(cluster):
    assert counted(cluster) == EXPECTED
    workers = cluster.sql("SELECT DISTINCT worker_id FROM system.shards WHERE rows > 0")
    assert len(workers) == 3, "not all workers have rows"


def test_clients_without_the_authority_or_the_password_are_refused(cluster):
    uri = f"grpc+tls://{cluster.gateway.port.address}"
    with pytest.raises(volary.UnavailableError):
        volary.connect(uri)
    with pytest.raises(volary.Error, match="UNAUTHENTICATED"):
        volary.connect(uri, tls_ca=cluster.authority, username="admin", password="a guess").sql("SELECT 1").rows()


def test_the_product_finds_the_rendered_settings_valid(cluster):
    for node in (cluster.gateway, *cluster.workers.values()):
        settings = node.machine.etc / f"{node.role}.toml"
        environment = node.machine.environment(node.role)
        checked = run("volary", "config", "--check", f"--config={settings}", settings=environment)
        assert (checked.code, checked.out.strip()) == (0, "the settings are valid"), checked.err


def test_workers_say_in_which_zone_they_are(cluster):
    assert cluster.sql("SELECT DISTINCT zone FROM system.nodes WHERE role = 'worker'") == [("here-a",)]


def test_all_nodes_say_that_they_are_ready(cluster):
    context = ssl.create_default_context(cafile=str(cluster.authority))
    for node in (cluster.gateway, *cluster.workers.values()):
        with urllib.request.urlopen(f"https://{node.operations.address}/readyz", context=context) as answer:
            assert answer.status == 200


def test_a_replaced_worker_is_the_same_node_with_the_same_rows(cluster):
    """The README replaces a worker with `terraform apply -replace`: its machine is shut down, and a new one gets the
    same address and volume.
    """
    worker = cluster.workers["2"]
    identity = worker.identity()
    before = cluster.sql("SELECT id FROM system.nodes WHERE role = 'worker' ORDER BY id")
    worker.stop()
    with pytest.raises(volary.Error, match="worker"):
        counted(cluster)
    worker.machine.end()

    worker.start(cluster.rendered()["2"])
    until(lambda: len(cluster.sql("SELECT id FROM system.nodes WHERE state = 'alive'")) == 4, "the worker is back")
    assert cluster.sql("SELECT id FROM system.nodes WHERE role = 'worker' ORDER BY id") == before
    assert counted(cluster) == EXPECTED
    assert worker.identity() == identity
    made = [call for call in worker.machine.calls() if call.startswith("made") and call.endswith(str(worker.device))]
    assert len(made) == 1, "the volume got a new file system"


def test_a_replaced_gateway_has_the_same_catalog(cluster):
    cluster.gateway.stop()
    cluster.gateway.machine.end()
    cluster.gateway.start(cluster.rendered()["gateway"])
    until(lambda: len(cluster.sql("SELECT id FROM system.nodes WHERE state = 'alive'")) == 4, "the workers are back")
    assert counted(cluster) == EXPECTED
