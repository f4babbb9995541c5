"""The tools that the tests of packages need. A missing one is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from optional_tools import missing

REPOSITORY = Path(__file__).resolve().parents[2]
# The packages of Debian that bring the tools.
PACKAGES = {
    "dpkg-deb": "dpkg",
    "go": "golang-go, or https://go.dev/dl",
    "lintian": "lintian",
    "mmdebstrap": "mmdebstrap",
    "podman": "podman",
    "podman-compose": "podman-compose",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container",
}


def need(*tools: str, root: bool = False) -> None:
    """Skips the test if this machine lacks a tool. CI must have all of them, so there the test fails."""
    lacking = [f"{tool} ({PACKAGES[tool]})" for tool in tools if shutil.which(tool) is None]
    if root and os.geteuid() != 0:
        lacking.append("root")
    if lacking:
        missing(f"this needs {', '.join(lacking)}")


def call(*command: str | Path, seconds: float = 600.0, check: bool = True, **options: object) -> str:
    """Runs a program to its end. Returns what it prints, and shows its errors if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert not check or done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)
