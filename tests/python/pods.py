"""Runs the pods of rendered manifests as processes of this machine.

A process gets the command, the environment and the files of its pod. Only what belongs to the machine is replaced,
through environment variables: paths begin with the directory of the pod, and addresses are ports of this machine.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helm_chart import Manifest, of_kind
from processes import HeldPort, Process

_VARIABLE = re.compile(r"\$\((\w+)\)")
# The paths in containers that volumes provide.
_PATHS = ("/etc/volary/", "/var/lib/volary/")


class Pod:
    """One pod of a StatefulSet: `number` is its ordinal."""

    def __init__(
        self,
        directory: Path,
        manifests: list[Manifest],
        name: str,
        number: int,
        secrets: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.name = f"{name}-{number}"
        self.directory = directory / self.name
        self._manifests = manifests
        self._secrets = secrets
        spec = of_kind(manifests, "StatefulSet")[name]["spec"]["template"]["spec"]
        (self.container,) = spec["containers"]
        self.init_containers: list[Manifest] = spec.get("initContainers", [])
        self.port = HeldPort()
        self.operations = HeldPort()
        self._write_files(spec)

    def _write_files(self, spec: Manifest) -> None:
        """Writes the volumes into the directory, as they are mounted in the container."""
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            target = self.directory / mount["mountPath"].lstrip("/")
            # Without a claim, the mount is the volume of the StatefulSet.
            target.mkdir(parents=True)
            for file, text in self._content(volumes.get(mount["name"], {})).items():
                (target / file).write_text(text, encoding="utf-8")

    def _content(self, volume: Manifest) -> Mapping[str, str]:
        if "configMap" in volume:
            data: Mapping[str, str] = of_kind(self._manifests, "ConfigMap")[volume["configMap"]["name"]]["data"]
            return data
        if "secret" in volume:
            data = self._secrets[volume["secret"]["secretName"]]
            items = volume["secret"].get("items", [{"key": key, "path": key} for key in data])
            return {item["path"]: data[item["key"]] for item in items}
        return {}

    def environment(self, container: Manifest) -> dict[str, str]:
        """Returns the environment that a container has in the cluster."""
        variables: dict[str, str] = {}
        for variable in container["env"]:
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                value = self._secrets[reference["name"]].get(reference["key"])
                assert value is not None or reference.get("optional"), f"{reference} is missing"
                if value is None:
                    continue
            elif "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "metadata.name"
                value = self.name
            else:
                value = variable["value"]
            # Kubernetes puts the variables before this one in the place of $(NAME).
            variables[variable["name"]] = _VARIABLE.sub(lambda found: variables[found[1]], value)
        return variables

    def settings(self) -> dict[str, Any]:
        """Returns the settings file of the pod."""
        (file,) = self.directory.glob("etc/volary/config/*.toml")
        return tomllib.loads(file.read_text(encoding="utf-8"))

    def replaced(self, gateway: str) -> dict[str, str]:
        """Returns the variables that replace paths and addresses of the cluster by those of this machine."""
        role = self.container["name"]
        scheme = "grpc+tls" if "tls" in self.settings()[role] else "grpc"
        (file,) = self.directory.glob("etc/volary/config/*.toml")
        variables = {"VOLARY_CONFIG": str(file), "VOLARY_URI": f"{scheme}://{gateway}"}
        for key, value in _leaves(self.settings()):
            if isinstance(value, str) and value.startswith(_PATHS):
                variables[_variable(key)] = str(self.directory / value.lstrip("/"))
        variables[_variable(f"{role}.listen")] = self.port.address
        if "operations" in self.settings():
            variables[_variable("operations.listen")] = self.operations.address
        if role == "worker":
            variables[_variable("worker.advertise")] = self.port.address
            variables[_variable("worker.gateway")] = f"{scheme}://{gateway}"
        for name, value in self.environment(self.container).items():
            if value.startswith(_PATHS) and name not in variables:
                variables[name] = str(self.directory / value.lstrip("/"))
        return variables

    def start(self, gateway: str, more: Mapping[str, str]) -> Process:
        """Starts the container's process. `gateway` is the address of the gateway on this machine."""
        return self._process(self.container, gateway, more)

    def run_init_containers(self, gateway: str, more: Mapping[str, str]) -> Iterator[tuple[Process, int]]:
        """Runs the containers that come before, and returns their processes with their exit codes."""
        for container in self.init_containers:
            process = self._process(container, gateway, more)
            yield process, process.await_end()

    def _process(self, container: Manifest, gateway: str, more: Mapping[str, str]) -> Process:
        program, *arguments = container["command"]
        assert program == "/usr/bin/volary"
        settings = {**self.environment(container), **self.replaced(gateway), **more}
        return Process(self.directory, container["name"], arguments, settings)

    def close(self) -> None:
        """Gives the ports back."""
        self.port.close()
        self.operations.close()


def generated_secrets(manifests: list[Manifest]) -> dict[str, dict[str, str]]:
    """Returns the decoded Secrets of the release by their names."""
    return {
        name: {key: base64.b64decode(value).decode() for key, value in manifest["data"].items()}
        for name, manifest in of_kind(manifests, "Secret").items()
    }


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _variable(key: str) -> str:
    return f"VOLARY_{key.upper().replace('.', '__')}"
