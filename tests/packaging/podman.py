"""Runs containers with podman, on machines that are containers themselves, too."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

from processes import PATIENCE_SECONDS

# Without CAP_SYS_RESOURCE, a limit can only become lower.
_, OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
PROCESSES = "--ulimit=nproc=4096:4096"


# runc also works where both versions of cgroups are mounted, and crun does not.
RUNTIME = ["--runtime=runc"] if shutil.which("runc") else []
# A node needs nothing but its volume.
_HARDENED = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"]


class Ended(NamedTuple):
    """The exit code of podman, and all that it has printed."""

    code: int
    output: str


def podman(*arguments: str) -> Ended:
    """Runs podman to its end."""
    done = subprocess.run(
        ["podman", *RUNTIME, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    return Ended(done.returncode, done.stdout.strip())


def inspect(name: str) -> dict[str, Any]:
    """Returns what podman knows of an image or a container."""
    (found,) = json.loads(podman("inspect", name).output)
    return dict(found)


class Container:
    """A container that runs or has ended."""

    def __init__(self, name: str) -> None:
        self.name = name

    def log(self) -> str:
        """Returns what its process has printed."""
        return podman("logs", self.name).output

    def run(self, *command: str) -> Ended:
        """Runs another program in it."""
        return podman("exec", self.name, *command)

    def rows(self, statement: str) -> list[str]:
        """Runs a statement, and returns the header and the rows as CSV."""
        ended = self.run("volary", "sql", "-o", "csv", statement)
        assert ended.code == 0, ended.output
        return ended.output.splitlines()

    def is_healthy(self) -> bool:
        """Runs the health check of the image. podman does it by itself only where systemd has timers."""
        return podman("healthcheck", "run", self.name).code == 0

    def stop(self) -> int:
        """Stops the container as an orchestrator does, and returns the exit code of its process."""
        podman("stop", "--time=50", self.name)
        return int(inspect(self.name)["State"]["ExitCode"])


@contextlib.contextmanager
def container(image: str, *arguments: str, options: tuple[str, ...] = ()) -> Iterator[Container]:
    """Starts a container without a network. It and its volumes are removed at the end."""
    limits = [f"--ulimit=nofile={OPEN_FILES}:{OPEN_FILES}", PROCESSES]
    started = podman("run", "--detach", "--network=none", *_HARDENED, *limits, *options, image, *arguments)
    assert started.code == 0, started.output
    name = started.output.split()[-1]
    try:
        yield Container(name)
    finally:
        podman("rm", "--force", "--time=0", "--volumes", name)
