"""A Kubernetes without machines: etcd and kube-apiserver, which check and keep objects, but start no pods."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from processes import HeldPort, until

_TOKEN = "administrator"
# The first start writes keys and many objects.
_START_SECONDS = 300.0


def program(name: str) -> str:
    """Returns the path of a program of Kubernetes. Skips the test if there is none, also in CI: these programs can only
    be downloaded, or compiled within ten minutes.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = shutil.which(name, path=assets) if assets else None
    if found is None:
        pytest.skip(f"there is no {name} in KUBEBUILDER_ASSETS; `setup-envtest use -p env` downloads it and says where")
    return found


class Answer(Exception):
    """An answer of the API server that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Kubernetes:
    """An API server with its etcd, as a context manager. `kubeconfig` is the file with which helm finds it."""

    def __init__(self, directory: Path) -> None:
        self._programs = {name: program(name) for name in ("etcd", "kube-apiserver")}
        self._directory = directory
        self._etcd, self._etcd_peers, self._port = HeldPort(), HeldPort(), HeldPort()
        self.kubeconfig = directory / "kubeconfig"
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Kubernetes:
        directory = self._directory
        (directory / "tokens").write_text(f"{_TOKEN},admin,admin,system:masters\n")
        self._write_kubeconfig()
        subprocess.run(
            ["openssl", "genrsa", "-out", directory / "accounts.key", "2048"], check=True, capture_output=True
        )
        try:
            self._start(
                self._programs["etcd"],
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls=http://{self._etcd.address}",
                f"--advertise-client-urls=http://{self._etcd.address}",
                f"--listen-peer-urls=http://{self._etcd_peers.address}",
            )
            self._start(
                self._programs["kube-apiserver"],
                f"--etcd-servers=http://{self._etcd.address}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port.address.split(':')[1]}",
                f"--cert-dir={directory / 'certificates'}",
                f"--token-auth-file={directory / 'tokens'}",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={directory / 'accounts.key'}",
                f"--service-account-signing-key-file={directory / 'accounts.key'}",
            )
            until(self._is_ready, "the API server is ready", _START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for port in (self._etcd, self._etcd_peers, self._port):
            port.close()

    def _start(self, *command: str) -> None:
        file = self._directory / f"{Path(command[0]).name}.log"
        with file.open("w") as log:
            self._processes[file] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _write_kubeconfig(self) -> None:
        cluster = {"server": f"https://{self._port.address}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
            "current-context": "here",
        }
        self.kubeconfig.write_text(json.dumps(config))
        self.kubeconfig.chmod(0o600)

    def _is_ready(self) -> bool:
        for log, process in self._processes.items():
            assert process.poll() is None, log.read_text()[-5000:]
        try:
            return bool(self.call("GET", "/api/v1/namespaces/default"))
        except (Answer, OSError):
            return False

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Calls the API, and returns the object of the answer. Fails with `Answer` if it is an error."""
        request = urllib.request.Request(
            f"https://{self._port.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=60) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        except urllib.error.HTTPError as error:
            raise Answer(error.code, json.loads(error.read() or b"{}").get("message", "")) from None
