"""Finds the tools that the tests run. What is missing is named: the test is skipped, and in CI it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import optional_tools

REPOSITORY = Path(__file__).resolve().parents[2]
TERRAFORM = REPOSITORY / "terraform"
INSTALLED = REPOSITORY / ".venv-terraform"
"""What `make test-terraform` has installed with tools/terraform-tools.sh."""


def missing(what: str) -> NoReturn:
    """Ends a test that cannot run. The message says how the tools of these tests are installed."""
    optional_tools.missing(f"{what} is missing: `tools/check-needs.sh terraform` says how it is installed")


def tool(name: str) -> str:
    """Returns the path of a program."""
    own = INSTALLED / "bin" / name
    found = str(own) if own.is_file() else shutil.which(name)
    return found or missing(name)


def run(
    *command: str | Path,
    directory: Path = REPOSITORY,
    environment: Mapping[str, str] | None = None,
    succeeds: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. Its output and errors are one text."""
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if succeeds:
        assert ended.returncode == 0, f"{command} ended with {ended.returncode}\n{ended.stdout}"
    return ended
