"""Applies the module bootstrap for real, and checks what it renders with the tools that read it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import terraform_settings
from machine import ACCOUNT
from module import Module
from processes import run as run_volary
from programs import INSTALLED, REPOSITORY, missing, run, tool

_UNITS = REPOSITORY / "packaging" / "systemd"
_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ROLES = ("gateway", "worker")
FETCHED = {"VOLARY_SECRET": "a secret that no cluster has 5540"}
"""What a machine fetches into the environment of its node."""


def with_nodes(copy: Module) -> Module:
    """Adds the configuration that makes the machines of a cluster to a copy."""
    shutil.copytree(Path(__file__).with_name("nodes"), copy.directory / "nodes", dirs_exist_ok=True)
    return copy


@pytest.fixture(scope="module")
def nodes(bootstrap: Module) -> dict[str, Any]:
    """A gateway and a worker with all that the module can set."""
    secrets = {
        "region": "eu-central-1",
        "variables": {"VOLARY_SECRET": f"{ACCOUNT}volary/secret-AbCdEf"},
        "files": {
            name: f"{ACCOUNT}volary/{name.replace('.', '-')}-AbCdEf"
            for name in ("authority.pem", "node.pem", "node.key", "operations-token")
        },
    }
    gateway = {
        "role": "gateway",
        "node": {"listen": "0.0.0.0:7100"},
        "settings": {"gateway.query.timeout": "10m", "gateway.load.allowed_roots": ["s3://flights/parquet/"]},
        "operations": {"listen": "0.0.0.0:7190", "token": True},
        "secrets": secrets,
    }
    worker = {
        "role": "worker",
        "node": {
            "listen": "0.0.0.0:7200",
            "advertise": "10.71.0.10:7200",
            "gateway": "grpc+tls://10.71.0.9:7100",
            "zone": "eu-central-1a",
        },
        "settings": {"worker.execution.max_running": 12},
        "operations": {"listen": "0.0.0.0:7190", "token": True},
        "secrets": secrets,
    }
    package = {"url": "https://packages.example/volary_0.1.0_amd64.deb", "sha256": _SHA256}
    variables = {"nodes": {"gateway": gateway, "worker": worker}, "package": package}
    return with_nodes(bootstrap).apply("nodes", variables)["nodes"]


@pytest.mark.downloads
@pytest.mark.parametrize("role", ROLES)
def test_cloud_init_accepts_the_user_data(nodes, role, tmp_path):
    python, schema = INSTALLED / "bin" / "python", INSTALLED / "cloud-init.schema.json"
    if not schema.is_file():
        missing("the schema of cloud-init")
    user_data = tmp_path / "user-data"
    user_data.write_text(nodes[role]["user_data"])
    assert user_data.stat().st_size <= 16384
    checked = run(python, Path(__file__).with_name("cloud_config.py"), schema, user_data)
    assert json.loads(checked.stdout) == {path: file["content"] for path, file in nodes[role]["files"].items()}


@pytest.mark.downloads
def test_the_schema_of_cloud_init_refuses_a_mistake(nodes, tmp_path):
    python, schema = INSTALLED / "bin" / "python", INSTALLED / "cloud-init.schema.json"
    if not schema.is_file():
        missing("the schema of cloud-init")
    user_data = tmp_path / "user-data"
    user_data.write_text(nodes["worker"]["user_data"].replace('"permissions"', '"permision"'))
    checked = run(python, Path(__file__).with_name("cloud_config.py"), schema, user_data, succeeds=False)
    assert checked.returncode != 0
    assert "permision" in checked.stdout


@pytest.mark.parametrize("role", ROLES)
def test_systemd_accepts_the_units(nodes, role, tmp_path):
    analyze = tool("systemd-analyze")
    # The units of the system, which ours name, and programs in place of those that ours start.
    shutil.copytree("/usr/lib/systemd/system", tmp_path / "usr/lib/systemd/system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for path, file in nodes[role]["files"].items():
        written = tmp_path / path.removeprefix("/")
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(file["content"])
        written.chmod(int(file["mode"], 8))
    (tmp_path / "usr/bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "usr/bin/volary")
    units = [nodes[role]["unit"], "volary-bootstrap.service"]
    # An unknown key is only a warning.
    assert run(analyze, "verify", "--man=no", f"--root={tmp_path}", *units).stdout == ""
    unit = tmp_path / "etc/systemd/system" / nodes[role]["unit"]
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "NoNewPrivilege" in run(analyze, "verify", "--man=no", f"--root={tmp_path}", units[0], succeeds=False).stdout


@pytest.mark.parametrize("role", ROLES)
def test_the_units_are_those_of_the_package(nodes, role):
    rendered = nodes[role]["files"][f"/etc/systemd/system/volary-{role}.service"]["content"]
    assert rendered == (_UNITS / f"volary-{role}.service").read_text()


def test_shellcheck_finds_nothing_in_the_rendered_script(nodes, tmp_path):
    script = tmp_path / "volary-bootstrap"
    script.write_text(nodes["worker"]["files"]["/usr/local/sbin/volary-bootstrap"]["content"])
    assert run(tool("shellcheck"), "--severity=style", script).stdout == ""


def test_the_rendered_script_reads_only_what_is_rendered_for_it(nodes, tmp_path):
    conf = tmp_path / "bootstrap.conf"
    conf.write_text(nodes["worker"]["files"]["/etc/volary/bootstrap.conf"]["content"])
    assert run(tool("shellcheck"), "--shell=bash", "--exclude=SC2034", conf).stdout == ""


@pytest.mark.parametrize("role", ROLES)
def test_the_product_accepts_the_rendered_settings(nodes, role, tmp_path):
    settings = tmp_path / f"{role}.toml"
    settings.write_text(nodes[role]["files"][f"/etc/volary/{role}.toml"]["content"])
    checked = run_volary("volary", "config", "--check", f"--config={settings}", settings=FETCHED)
    assert (checked.code, checked.out.strip()) == (0, "the settings are valid"), checked.err
    # It says the same of an empty file, so it must have read this one.
    shown = run_volary("volary", "config", f"--config={settings}", settings=FETCHED).out
    for value in ("10m", "s3://flights/parquet/") if role == "gateway" else ("10.71.0.10:7200", "eu-central-1a"):
        assert value in shown


def test_the_module_knows_the_settings_of_the_product():
    assert terraform_settings.LIST.read_text() == terraform_settings.text(), "run `make docs`"
    listed = terraform_settings.text().split()
    assert "gateway.query.timeout" in listed
    assert "gateway.data_dir" not in listed


def test_the_product_refuses_a_key_that_it_does_not_know(nodes, tmp_path):
    settings = tmp_path / "gateway.toml"
    rendered = nodes["gateway"]["files"]["/etc/volary/gateway.toml"]["content"]
    settings.write_text(rendered.replace("gateway.query.timeout", "gateway.query.time_out"))
    refused = run_volary("volary", "config", "--check", f"--config={settings}", settings=FETCHED)
    assert refused.code == 2
    assert "time_out" in refused.err
