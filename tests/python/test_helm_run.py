"""Starts the pods of the Helm chart as processes, with the files and the environment that they get in a cluster, and
queries them. The binary checks the settings that the chart writes.
"""

from __future__ import annotations

import re
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from helm_chart import NAMESPACE, VARIANTS, Manifest, of_kind, render, settings_text
from pods import Pod, generated_secrets
from processes import Process, run, until

import volary

pytestmark = pytest.mark.server

ROLES = ("gateway", "worker")
SECRET = "a secret of nodes 5535"
# A test starts four nodes on one machine.
SMALL = {"VOLARY_GATEWAY__MEMORY__LIMIT": "256MiB", "VOLARY_WORKER__MEMORY__LIMIT": "256MiB"}
SOON = {"VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "200ms"}
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")


class Flock:
    """The pods of a rendered release, which run as processes."""

    def __init__(self, directory: Path, manifests: list[Manifest], secrets: dict[str, dict[str, str]]) -> None:
        self.directory = directory
        self.manifests = manifests
        self.secrets = secrets
        sets = of_kind(manifests, "StatefulSet")
        numbered = [(name, i) for name, it in sets.items() for i in range(it["spec"]["replicas"])]
        pods = [Pod(directory, manifests, name, i, secrets) for name, i in numbered]
        (self.gateway,) = [pod for pod in pods if pod.container["name"] == "gateway"]
        self.workers = [pod for pod in pods if pod.container["name"] == "worker"]
        self.processes: dict[str, Process] = {}

    @property
    def address(self) -> str:
        """The address of the gateway."""
        return self.gateway.port.address

    def start(self, pod: Pod) -> Process:
        """Starts a pod: its init containers, and then its node."""
        for process, code in pod.run_init_containers(self.address, SMALL):
            assert code == 0, f"{pod.name}\n{process.output()}\n{process.log()}"
        self.processes[pod.name] = pod.start(self.address, {**SMALL, **SOON})
        return self.processes[pod.name]

    def start_all(self) -> None:
        """Starts all pods, and waits until the workers have joined."""
        self.start(self.gateway).await_ready()
        for worker in self.workers:
            self.start(worker)
        for worker in self.workers:
            self.processes[worker.name].await_ready()

    def probe(self, pod: Pod, probe: str) -> int:
        """Returns the status with which a pod answers a probe, as the kubelet asks: it trusts any certificate."""
        get = pod.container[probe]["httpGet"]
        trusting = ssl._create_unverified_context()
        url = f"{get['scheme'].lower()}://{pod.operations.address}{get['path']}"
        with urllib.request.urlopen(url, context=trusting, timeout=60) as answer:
            return int(answer.status)

    def end(self) -> None:
        """Ends all processes."""
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
        for pod in [self.gateway, *self.workers]:
            pod.close()


@contextmanager
def flock(directory: Path, values: Manifest, secrets: dict[str, dict[str, str]]) -> Iterator[Flock]:
    manifests = render(directory, values)
    release = Flock(directory, manifests, {**generated_secrets(manifests), **secrets})
    with ExitStack() as stack:
        stack.callback(release.end)
        release.start_all()
        yield release


def node_certificate(directory: Path, *names: str) -> dict[str, str]:
    """Returns the data of a Secret with a certificate for these names, as cert-manager writes it."""
    hosts = [f"--host={name}" for name in names]
    certificates = Certificates(directory, *hosts)
    files = {"tls.crt": "node.pem", "tls.key": "node.key", "ca.crt": "authority.pem"}
    return {key: certificates.file(file).read_text() for key, file in files.items()}


def check_settings(directory: Path, manifests: list[Manifest], role: str, extra: dict[str, str]) -> None:
    """Lets the binary check the settings file of a node."""
    file = directory / f"{role}.toml"
    file.write_text(settings_text(manifests, role), encoding="utf-8")
    checked = run("volary", "config", "--check", f"--config={file}", settings={"VOLARY_SECRET": SECRET, **extra})
    assert (checked.code, checked.out.strip()) == (0, "the settings are valid"), checked.err


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_binary_accepts_the_settings(tmp_path: Path, variant: str, role: str):
    # Pods have this address in their environment.
    advertised = {"VOLARY_WORKER__CLIENTS__ADVERTISE": "worker:7300"} if role == "worker" else {}
    check_settings(tmp_path, render(tmp_path, VARIANTS[variant]), role, advertised)


def test_the_binary_refuses_a_setting_that_does_not_exist(tmp_path: Path):
    manifests = render(tmp_path, {"config": {"gateway": {"query": {"timeouts": "10m"}}}})
    file = tmp_path / "gateway.toml"
    file.write_text(settings_text(manifests, "gateway"), encoding="utf-8")
    checked = run("volary", "config", "--check", f"--config={file}", settings={"VOLARY_SECRET": SECRET})
    assert checked.code == 2
    assert "there is no setting gateway.query.timeouts; [gateway.query] has " in checked.err


@pytest.mark.parametrize("role", ROLES)
def test_every_setting_of_the_reference_can_be_given(tmp_path: Path, role: str):
    given: dict[str, Any] = {}
    for section, key, default in reference():
        is_read = section.split(".")[0] in (role, "log", "operations", "traces")
        if is_read and f"{section}.{key}" not in OWNED and default != "none":
            part = given
            for name in section.split("."):
                part = part.setdefault(name, {})
            part[key] = default
    manifests = render(tmp_path, {"config": given})
    written = settings_text(manifests, role)
    names = re.findall(r"^(\w+) = ", written, re.MULTILINE)
    expected = sum(len([it for it in part if not isinstance(it, dict)]) for part in sections(given))
    assert expected > 10
    assert len(names) >= expected
    check_settings(tmp_path, manifests, role, {})


def sections(tree: dict[str, Any]) -> Iterator[list[Any]]:
    """Returns the values of each section of a tree."""
    yield list(tree.values())
    for below in tree.values():
        if isinstance(below, dict):
            yield from sections(below)


def reference() -> Iterator[tuple[str, str, Any]]:
    """Returns section, key and default of each setting that the binary documents."""
    printed = run("volary", "config", "--reference")
    assert printed.code == 0, printed.err
    section = ""
    for line in printed.out.splitlines():
        if found := re.fullmatch(r"## `\[(.*)\]`", line):
            section = found[1]
        elif found := re.match(r"\| `(\w+)` \| (?:`(.*?)`|(none)) \|", line):
            key, default, absent = found.groups()
            yield section, key, absent or literal(default)


def literal(text: str) -> Any:
    """Returns a default of the reference as a value."""
    if text.startswith('"'):
        return text.strip('"')
    if text in ("true", "false"):
        return text == "true"
    return [] if text == "[]" else float(text)


# Settings that the chart sets by itself, from other values or to fit the pods. `config` refuses them.
OWNED = {
    *("gateway.listen", "gateway.data_dir", "gateway.secret", "gateway.security.admin_password"),
    *("worker.listen", "worker.advertise", "worker.gateway", "worker.data_dir", "worker.secret", "worker.zone"),
    *("worker.clients.listen", "worker.clients.advertise", "operations.listen", "operations.token_file"),
    *("operations.tls.certificate", "operations.tls.key"),
    *(f"{role}.tls.{key}" for role in ROLES for key in ("certificate", "key", "authorities", "client_authorities")),
    *(f"{role}.tls.{key}" for role in ROLES for key in ("node_name", "require_client_certificates")),
}


def test_the_defaults_run(tmp_path: Path):
    with flock(tmp_path, {}, {}) as release:
        assert len(release.workers) == 3
        for pod in [release.gateway, *release.workers]:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                until(lambda pod=pod, probe=probe: release.probe(pod, probe) == 200, f"{pod.name} answers its {probe}")
        (secret,) = generated_secrets(release.manifests).values()
        with volary.connect(f"grpc://{release.address}", username="admin", password=secret["admin-password"]) as db:
            fill_and_count(db)
            # A StatefulSet replaces a pod by one with the same name and the same volume.
            worker = release.workers[0]
            release.processes[worker.name].stop()
            release.start(worker).await_ready()
            until(lambda: states(db) == {"alive": 3}, "the worker is back")
            assert db.sql("SELECT count(*), sum(k) FROM eggs WHERE k > 0").rows() == [(1000, 500500)]


def fill_and_count(db: volary.Connection) -> None:
    until(lambda: states(db) == {"alive": 3}, "three workers are alive")
    db.sql("CREATE TABLE eggs (k BIGINT) WITH (shard_key = 'k', shards = 12)")
    db.sql("INSERT INTO eggs SELECT value FROM generate_series(1, 1000)")
    assert db.sql("SELECT count(*), sum(k) FROM eggs WHERE k > 0").rows() == [(1000, 500500)]
    used = db.sql("SELECT count(DISTINCT worker_id) FROM system.shards WHERE table_name = 'eggs'").rows()
    assert used == [(3,)]


def states(db: volary.Connection) -> dict[str, int]:
    rows = db.sql("SELECT state, count(*) FROM system.nodes WHERE role = 'worker' GROUP BY state").rows()
    return dict(rows)


def test_zones_with_tls_and_the_test_of_the_release_run(tmp_path: Path):
    secrets = {
        "certificate": node_certificate(tmp_path / "nodes", "127.0.0.1", "node.example"),
        "nodes": {"secret": SECRET, "admin-password": "the password of admin"},
        "scrapers": {"bearer": "a token of scrapers"},
    }
    values = {
        "secret": {"existing": "nodes"},
        "worker": {"replicas": 1, "zones": [{"name": zone} for zone in ZONES]},
        **VARIANTS["TLS from a secret"],
    }
    authority = tmp_path / "nodes" / "authority.pem"
    with flock(tmp_path, values, secrets) as release:
        for pod in [release.gateway, *release.workers]:
            until(lambda pod=pod: release.probe(pod, "readinessProbe") == 200, f"{pod.name} is ready")
        uri = f"grpc+tls://{release.address}"
        with volary.connect(uri, username="admin", password="the password of admin", tls_ca=authority) as db:
            fill_and_count(db)
            zones = db.sql("SELECT zone FROM system.nodes WHERE role = 'worker' ORDER BY zone").rows()
            assert zones == [(zone,) for zone in ZONES]
        (pod,) = of_kind(release.manifests, "Pod").values()
        (test,) = pod["spec"]["containers"]
        program, *arguments = test["command"]
        assert program == "/usr/bin/volary"
        ca = {"VOLARY_URI": uri, "VOLARY_TLS_CA": str(authority)}
        answered = run("volary", *arguments, settings={**release.gateway.environment(test), **ca})
        assert answered.code == 0, answered.err
        assert "1 row" in answered.out or "1" in answered.out.split()


def test_a_gateway_ends_within_the_time_that_its_pod_has(tmp_path: Path):
    with flock(tmp_path, {"worker": {"replicas": 1}}, {}) as release:
        for pod in [*release.workers, release.gateway]:
            # `stop` sends SIGTERM and asks for exit code 0, as Kubernetes does.
            release.processes[pod.name].stop()


def test_the_doctor_finds_the_names_of_nodes_in_a_certificate_with_a_wildcard(tmp_path: Path):
    values = {**VARIANTS["production"], "operations": {}}
    manifests = render(tmp_path, values)
    (issued,) = of_kind(manifests, "Certificate").values()
    names: list[str] = issued["spec"]["dnsNames"]

    def examined(directory: Path, certificate: dict[str, str]) -> tuple[int, str]:
        secrets = {
            "nodes": {"secret": SECRET},
            "birds-tls": certificate,
            "people": {"ca.crt": certificate["ca.crt"]},
        }
        pod = Pod(directory, manifests, "birds-worker-eu-west-1b", 1, secrets)
        # The name cannot be resolved here, and there is no gateway. Both are only warnings.
        names = {key: it for key, it in pod.environment(pod.container).items() if key.endswith("ADVERTISE")}
        ((process, code),) = pod.run_init_containers("127.0.0.1:1", names)
        pod.close()
        return code, process.output()

    code, said = examined(tmp_path / "good", node_certificate(tmp_path / "nodes", *names))
    assert code == 0, said
    others = [name for name in names if not name.startswith("*")]
    code, said = examined(tmp_path / "bad", node_certificate(tmp_path / "others", *others))
    assert code != 0
    assert f"birds-worker-eu-west-1b-1.birds-workers.{NAMESPACE}.svc.cluster.local" in said
