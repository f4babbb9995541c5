"""Tests the Debian package: what is in it, and what is there after it is installed and removed."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import pytest
from programs import call, need

UNITS = ("volary-gateway.service", "volary-worker.service")
FILES = {
    "./usr/bin/volary",
    *(f"./usr/lib/systemd/system/{unit}" for unit in UNITS),
    "./usr/lib/sysusers.d/volary.conf",
    "./usr/lib/tmpfiles.d/volary.conf",
    "./usr/share/bash-completion/completions/volary",
    "./usr/share/zsh/vendor-completions/_volary",
    "./usr/share/fish/vendor_completions.d/volary.fish",
    "./usr/share/man/man1/volary.1.gz",
    "./usr/share/man/man1/volary-gateway.1.gz",
    "./usr/share/man/man1/volary-worker.1.gz",
    "./usr/share/doc/volary/copyright",
    "./usr/share/doc/volary/third-party.txt",
    "./etc/volary/gateway.toml",
    "./etc/volary/worker.toml",
}


def test_the_package_has_units_manuals_completions_and_settings(package: Path):
    contents = call("dpkg-deb", "--contents", package)
    names = {line.split()[-1] for line in contents.splitlines()}
    assert names >= FILES
    for node in ("gateway", "worker"):
        (line,) = [line for line in contents.splitlines() if line.endswith(f"./etc/volary/{node}.env")]
        assert line.startswith("-rw------- 0/0"), "only root reads secrets"
    assert re.search(r"Depends:.*libc6 \(>= ", call("dpkg-deb", "--info", package))


def test_lintian_finds_nothing(package: Path):
    need("lintian")
    assert call("lintian", "--allow-root", "--fail-on=warning", package).strip() == ""


def test_an_installed_package_has_a_user_and_directories(root: Path):
    assert re.search(r"^volary:x:\d+:\d+:Volary:/var/lib/volary:", (root / "etc/passwd").read_text(), re.MULTILINE)
    (group,) = re.findall(r"^volary:x:(\d+):", (root / "etc/group").read_text(), re.MULTILINE)
    tls = (root / "etc/volary/tls").stat()
    assert (stat.S_IMODE(tls.st_mode), tls.st_uid, tls.st_gid) == (0o750, 0, int(group))
    assert (root / "etc/volary/gateway.env").stat().st_mode & 0o077 == 0
    for unit in UNITS:
        assert not list((root / "etc/systemd/system").rglob(unit)), "a package enables no node"


def test_the_units_are_valid_and_exposed_to_little(root: Path):
    need("systemd-analyze")
    call("systemd-analyze", "verify", "--man=no", f"--root={root}", *UNITS)
    for unit in UNITS:
        call("systemd-analyze", "security", "--offline=true", "--threshold=20", f"--root={root}", unit)


def test_the_shipped_settings_are_valid(root: Path):
    for node in ("gateway", "worker"):
        said = call("chroot", root, "volary", "config", "--check", "--config", f"/etc/volary/{node}.toml")
        assert "the settings are valid" in said


def test_the_manuals_and_completions_are_of_this_program(root: Path):
    for page in ("volary", "volary-gateway", "volary-worker"):
        assert call("zcat", root / f"usr/share/man/man1/{page}.1.gz").count(".SH") > 3
    completions = root / "usr/share/bash-completion/completions/volary"
    assert "--secret-file" in completions.read_text()
    call("bash", "-n", completions)
    for shell, path in (("zsh", "zsh/vendor-completions/_volary"), ("fish", "fish/vendor_completions.d/volary.fish")):
        if shutil.which(shell):
            call(shell, "-n", root / "usr/share" / path)


def test_a_purged_package_keeps_the_data(root: Path, tmp_path: Path):
    # A copy, because other tests use the package.
    copy = tmp_path / "root"
    call("cp", "--archive", "--reflink=auto", root, copy)
    (copy / "var/lib/volary/worker").mkdir(parents=True)
    (copy / "var/lib/volary/worker/rows").write_text("rows")
    call("chroot", copy, "dpkg", "--purge", "volary")
    assert not (copy / "usr/bin/volary").exists()
    assert not (copy / "etc/volary").exists()
    assert (copy / "var/lib/volary/worker/rows").read_text() == "rows"


@pytest.mark.parametrize("node", ["gateway", "worker"])
def test_an_edited_setting_survives_an_upgrade(root: Path, package: Path, tmp_path: Path, node: str):
    copy = tmp_path / "root"
    call("cp", "--archive", "--reflink=auto", root, copy)
    settings = copy / f"etc/volary/{node}.toml"
    settings.write_text(settings.read_text() + "# edited\n")
    shutil.copy(package, copy / "tmp/volary.deb")
    call("chroot", copy, "dpkg", "--force-confdef", "--install", "/tmp/volary.deb")
    assert settings.read_text().endswith("# edited\n")
