"""Finds programs that only some tests need. Without them, these tests are skipped, but CI must have them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

REMEDIES = {
    "go": "install Go: https://go.dev/dl",
    "helm": "go install helm.sh/helm/v3/cmd/helm@v3.22.0",
    "prometheus": "apt-get install --no-install-recommends prometheus",
    "promtool": "apt-get install --no-install-recommends prometheus",
}
_SECONDS = 120


def missing(what: str) -> NoReturn:
    """Ends a test that cannot run here, and says what is missing. CI must have it, so there the test fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} (CI must have it)")
    pytest.skip(what)


def tool(name: str) -> str:
    """Returns the path of a program. Skips the test if it is missing, or fails it in CI."""
    # `go install` writes to this directory, which is in PATH only if somebody has put it there.
    found = shutil.which(name) or shutil.which(name, path=Path.home() / "go" / "bin")
    if found is None:
        missing(f"{name} is not installed: {REMEDIES[name]}")
    return str(found)


def run_tool(name: str, *arguments: str | Path, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, whether it fails or not."""
    return subprocess.run(
        [tool(name), *arguments], cwd=directory, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def go_module(directory: Path, module: str, version: str) -> Path:
    """Returns the directory with the sources of a Go module, which is downloaded if it is not there. `directory` is an
    empty one.
    """
    done = run_tool("go", "mod", "download", "-json", f"{module}@{version}", directory=directory)
    if done.returncode != 0:
        missing(f"the Go module {module}@{version} cannot be downloaded: {done.stdout}{done.stderr}")
    # The other fields contain no such line.
    (line,) = [line for line in done.stdout.splitlines() if '"Dir": ' in line]
    return Path(line.split('"')[3])
