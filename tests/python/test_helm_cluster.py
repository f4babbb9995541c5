"""Installs the Helm chart in a Kubernetes without machines: the API server takes all objects, and the generated Secret
survives upgrades and installations. KUBEBUILDER_ASSETS names the directory with its programs.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm_chart import CHART, DEFINITIONS, NAMESPACE, VARIANTS, Manifest, definition, pod_specs, render, values_file
from kubernetes_api import Answer, Kubernetes
from optional_tools import run_tool

_numbers = itertools.count()


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    with Kubernetes(tmp_path_factory.mktemp("kubernetes")) as kubernetes:
        yield kubernetes


class Release:
    """A release of the chart in a namespace of its own."""

    def __init__(self, kubernetes: Kubernetes, directory: Path) -> None:
        self._kubernetes = kubernetes
        self._directory = directory
        self.namespace = f"{NAMESPACE}-{next(_numbers)}"
        # Kubernetes refuses pods in it that do not keep to the restricted standard.
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        kubernetes.call("POST", "/api/v1/namespaces", namespace)

    def helm(self, command: str, values: Manifest | None = None) -> tuple[int, str]:
        """Runs helm for the release, and returns the exit code and what helm says against it."""
        chart = [] if values is None else [str(CHART), f"--values={values_file(self._directory, values)}"]
        place = [f"--namespace={self.namespace}", f"--kubeconfig={self._kubernetes.kubeconfig}"]
        done = run_tool("helm", command, "flock", *chart, *place)
        return done.returncode, done.stderr

    def secret(self) -> dict[str, Any]:
        """Returns the generated Secret."""
        return self._kubernetes.call("GET", f"/api/v1/namespaces/{self.namespace}/secrets/flock-volary")


@pytest.fixture
def release(kubernetes: Kubernetes, tmp_path: Path) -> Release:
    return Release(kubernetes, tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_takes_all_objects_and_their_upgrade(
    kubernetes: Kubernetes, release: Release, tmp_path: Path, variant: str
):
    if variant == "production":
        define_custom_resources(kubernetes, tmp_path)
    for command, values in (
        ("install", VARIANTS[variant]),
        ("upgrade", {**VARIANTS[variant], "image": {"tag": "next"}}),
        ("uninstall", None),
    ):
        code, error = release.helm(command, values)
        assert code == 0, f"{command}: {error}"


def define_custom_resources(kubernetes: Kubernetes, directory: Path) -> None:
    """Installs the definitions of the Prometheus operator and of cert-manager."""
    for kind in DEFINITIONS:
        kubernetes.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(directory, kind))


def test_upgrades_and_installations_keep_the_generated_secret(release: Release):
    assert release.helm("install", {})[0] == 0
    first = release.secret()["data"]
    assert release.helm("upgrade", {"worker": {"replicas": 5}})[0] == 0
    assert release.secret()["data"] == first
    assert release.helm("uninstall")[0] == 0
    assert release.secret()["data"] == first
    code, error = release.helm("install", {})
    assert code == 0, error
    assert release.secret()["data"] == first


def test_another_rendering_cannot_replace_the_secret(kubernetes: Kubernetes, release: Release, tmp_path: Path):
    assert release.helm("install", {})[0] == 0
    secret = release.secret()
    (rendered,) = [it for it in render(tmp_path, {}) if it["kind"] == "Secret"]
    path = f"/api/v1/namespaces/{release.namespace}/secrets/flock-volary"
    with pytest.raises(Answer, match="field is immutable when `immutable` is set"):
        kubernetes.call("PUT", path, {**secret, "data": rendered["data"]})


def test_an_upgrade_without_the_secret_is_refused(kubernetes: Kubernetes, release: Release):
    assert release.helm("install", {})[0] == 0
    kubernetes.call("DELETE", f"/api/v1/namespaces/{release.namespace}/secrets/flock-volary")
    code, error = release.helm("upgrade", {})
    assert code != 0
    assert "an upgrade generates no other one" in error


def test_an_upgrade_that_would_remove_workers_is_refused_unless_it_is_allowed(release: Release):
    zones = {"replicas": 2, "zones": [{"name": "a"}, {"name": "b"}]}
    assert release.helm("install", {"worker": zones})[0] == 0
    assert release.helm("upgrade", {"worker": {**zones, "replicas": 3}})[0] == 0
    for fewer in ({**zones, "replicas": 2}, {"replicas": 3, "zones": [{"name": "a"}]}):
        code, error = release.helm("upgrade", {"worker": fewer})
        assert code != 0
        assert "a worker has the only copy of its shards" in error
        code, error = release.helm("upgrade", {"worker": {**fewer, "allowFewer": True}})
        assert code == 0, error


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_are_admitted_where_the_restricted_standard_is_enforced(
    kubernetes: Kubernetes, release: Release, tmp_path: Path, variant: str
):
    for name, _, spec in pod_specs(render(tmp_path, VARIANTS[variant])):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": copy.deepcopy(spec)}
        # Controllers would give a StatefulSet's pod its claim. They would also create the accounts and classes.
        pod["spec"].get("volumes", []).append({"name": "data", "persistentVolumeClaim": {"claimName": name}})
        for key in ("serviceAccountName", "priorityClassName"):
            pod["spec"].pop(key, None)
        path = f"/api/v1/namespaces/{release.namespace}/pods?dryRun=All"
        account = f"/api/v1/namespaces/{release.namespace}/serviceaccounts"
        create_once(
            kubernetes, account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        )
        kubernetes.call("POST", path, pod)
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(Answer, match="violates PodSecurity"):
            kubernetes.call("POST", path, pod)


def create_once(kubernetes: Kubernetes, path: str, body: Manifest) -> None:
    """Creates an object if it does not exist."""
    try:
        kubernetes.call("POST", path, body)
    except Answer as answer:
        if answer.status != 409:
            raise
