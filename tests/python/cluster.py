"""Runs a cluster in one process, `volary local`, for tests of what a cluster answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from processes import Process

import volary

ADMIN_PASSWORD = "correct horse battery"
PASSWORD = "a password of a user"

# With this interval, the gateway soon knows the addresses that workers report. A shorter one costs processor time all
# the time, and each process that runs tests has a cluster.
SETTINGS = {"VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "500ms"}
# The settings of a cluster with users.
SECURED = {"VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD, "VOLARY_LOG__FILTER": "debug,h2=info,hyper=info"}


class LocalCluster:
    """A `volary local` process as a context manager. `uri` is the address of its gateway.

    The data is in `directory`/data, and the log in `directory`/local.log. `settings` are environment variables.
    """

    def __init__(
        self,
        directory: Path,
        workers: int,
        allow_roots: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self._directory = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self._arguments = [
            "local",
            f"--workers={workers}",
            f"--listen={listen}",
            f"--data-dir={directory / 'data'}",
            *(f"--allow-root={root}" for root in allow_roots),
        ]
        self.uri = ""
        self._is_killed = False

    def log(self) -> str:
        """Returns what the process has logged."""
        return self._process.log()

    def output(self) -> str:
        """Returns what the process has printed."""
        return self._process.output()

    def connect(self) -> volary.Connection:
        """Returns a new connection of the Volary client."""
        return volary.connect(self.uri)

    def kill(self) -> None:
        """Ends the process at once, as a crash does."""
        self._process.kill()
        self._is_killed = True

    def __enter__(self) -> LocalCluster:
        self._process = Process(self._directory, "local", self._arguments, self._settings)
        try:
            self.uri = self._process.await_ready().split()[-1]
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_killed:
            self._process.stop()
