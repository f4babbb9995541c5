"""Runs the commands of docs/operations.md in their order, as an operator would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import HeldPort, binary, environment

pytestmark = pytest.mark.server

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
ENDS_ALL = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n"
PORTS = ("7100", "7200", "7190", "7191")
SECONDS = 300


def commands() -> list[str]:
    """Returns the blocks of commands, without those that are marked as needing something that no test has."""
    blocks = re.findall(r"(<!-- needs [^>]+ -->\n\n)?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [commands for marker, commands in blocks if not marker]


def test_the_commands_of_the_page_work_in_their_order(tmp_path: Path) -> None:
    assert shutil.which("curl"), "curl is needed"
    script = ENDS_ALL + "set -m\n" + "\n".join(commands())
    with HeldPort() as gateway, HeldPort() as worker, HeldPort() as first, HeldPort() as second:
        for port, held in zip(PORTS, (gateway, worker, first, second), strict=True):
            script = script.replace(f":{port}", f":{held.address.rsplit(':', 1)[1]}")
        settings = {"PATH": f"{binary('volary').parent}{os.pathsep}{os.environ['PATH']}"}
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment(settings),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    logs = "\n".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert ended.returncode == 0, ended.stdout + ended.stderr + logs
    for said in (
        "the settings are valid",
        'volary_workers{state="alive"} 1',
        "ok       certificates",
        "alive\n",
        "ready\n",
        "volary_certificate_expiry_timestamp_seconds",
    ):
        assert said in ended.stdout, f"{said}: {ended.stdout}{ended.stderr}"
    assert re.search(r"birds\s*\n.*\n.*2", ended.stdout), ended.stdout
