"""Checks the files in `packaging` that need no other machine. `make test-packaging` installs and runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import run

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGING = REPOSITORY / "packaging"
SECRET = "of-the-tests-and-far-longer-than-128-bits"
NODES = ("gateway", "worker")


def unit(node: str) -> str:
    return (PACKAGING / "systemd" / f"volary-{node}.service").read_text(encoding="utf-8")


def property_of(text: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's files, as far as systemd-analyze asks for them."""
    if shutil.which("systemd-analyze") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("this needs systemd-analyze (systemd)")
    units = tmp_path / "usr/lib/systemd/system"
    shutil.copytree("/usr/lib/systemd/system", units, symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for file in (PACKAGING / "systemd").glob("*.service"):
        shutil.copy(file, units)
    (tmp_path / "usr/bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "usr/bin/volary")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("volary:x:999:999::/:/bin/false\n")
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("node", NODES)
def test_a_unit_is_valid_and_has_few_privileges(root: Path, node: str):
    verified = analyze("verify", "--man=no", f"--root={root}", f"volary-{node}.service")
    assert (verified.returncode, verified.stderr) == (0, "")
    # 100 is a service without any protection. The rest is the network, which a node needs.
    secured = analyze("security", "--offline=true", "--threshold=20", f"--root={root}", f"volary-{node}.service")
    assert secured.returncode == 0, secured.stdout


def test_the_check_of_a_unit_finds_a_misspelt_line(root: Path):
    wrong = root / "usr/lib/systemd/system/volary-gateway.service"
    wrong.write_text(wrong.read_text().replace("NoNewPrivileges=", "NoMorePrivileges="))
    assert "NoMorePrivileges" in analyze("verify", "--man=no", f"--root={root}", wrong.name).stderr


def test_the_units_differ_in_nothing_but_their_node():
    def lines(node: str) -> list[str]:
        text = unit(node).replace(" volary-gateway.service", "") if node == "worker" else unit(node)
        return [line for line in text.replace(node, "NODE").splitlines() if not line.startswith("#")]

    assert lines("gateway") == lines("worker")


def test_a_unit_waits_longer_than_a_node_takes_to_stop():
    signals = (REPOSITORY / "cli" / "src" / "signals.rs").read_text(encoding="utf-8")
    (deadline,) = re.findall(r"SHUTDOWN_DEADLINE: Duration = Duration::from_secs\((\d+)\)", signals)
    for node in NODES:
        (seconds,) = property_of(unit(node), "TimeoutStopSec")
        assert int(seconds) > int(deadline)
    assert "stop_grace_period: 30s" in (PACKAGING / "compose.yaml").read_text(encoding="utf-8")


@pytest.mark.server
@pytest.mark.parametrize("node", NODES)
def test_the_program_knows_the_commands_of_a_unit(node: str):
    (start,) = property_of(unit(node), "ExecStart")
    (check,) = property_of(unit(node), "ExecStartPre")
    for command in (start, check):
        program, *arguments = command.split()
        assert program == "/usr/bin/volary"
        assert run("volary", *arguments, "--help").code == 0


@pytest.mark.server
@pytest.mark.parametrize("file", ["debian/etc/gateway.toml", "debian/etc/worker.toml", "container/volary.toml"])
def test_shipped_settings_are_valid(file: str):
    ended = run("volary", "config", "--check", "--config", PACKAGING / file, settings={"VOLARY_SECRET": SECRET})
    assert (ended.code, ended.out.strip()) == (0, "the settings are valid"), ended.err


@pytest.mark.server
@pytest.mark.parametrize("file", ["debian/etc/gateway.toml", "debian/etc/worker.toml"])
def test_the_settings_that_are_only_suggested_are_valid_too(file: str, tmp_path: Path):
    text = (PACKAGING / file).read_text(encoding="utf-8")
    # A suggestion is a comment that is a section, or a key with its value.
    suggested = re.sub(r"^# (\[[a-z.]+\]|[a-z_]+ = .*)$", r"\1", text, flags=re.MULTILINE)
    assert suggested.count("\n[") > text.count("\n[")
    settings = tmp_path / "settings.toml"
    settings.write_text(suggested)
    ended = run("volary", "config", "--config", settings)
    assert ended.code == 0, ended.err


@pytest.mark.server
def test_the_variables_of_the_compose_file_are_settings():
    text = (PACKAGING / "compose.yaml").read_text(encoding="utf-8")
    values = {"MIN_WORKERS": "3"}
    names = set(re.findall(r"VOLARY_\w+?__\w+", text))
    assert len(names) >= 4
    ended = run("volary", "config", settings={name: values.get(name.rsplit("__")[-1], "gateway:1") for name in names})
    assert ended.code == 0, ended.err


def test_every_worker_of_the_compose_file_is_asked_for_metrics():
    text = (PACKAGING / "compose.yaml").read_text(encoding="utf-8")
    nodes = {"gateway", *re.findall(r"^  (worker-\d+):$", text.split("\nvolumes:")[0], re.MULTILINE)}
    scraped = (PACKAGING / "prometheus.yml").read_text(encoding="utf-8")
    assert {f"{node}:7190" for node in nodes} == set(re.findall(r"[\w-]+:7190", scraped))
    for file in re.findall(r"\./([\w./-]+):", text):
        assert (PACKAGING / file).is_file()


def test_packages_bring_the_licence_of_each_library_in_the_program():
    listed = (PACKAGING / "licenses" / "third-party.txt").read_text(encoding="utf-8")
    names = set(re.findall(r"^    (\S+ \d\S*)$", listed, re.MULTILINE))
    tree = ["cargo", "tree", "--locked", "--package=volary-cli", "--edges=normal", "--prefix=none", "--format={p}"]
    found = subprocess.run(tree, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=True).stdout
    libraries = {" ".join(line.split()[:2]).replace(" v", " ") for line in found.splitlines()}
    missing = {library for library in libraries - names if not library.startswith("volary")}
    assert not missing, "run `make licenses`"
