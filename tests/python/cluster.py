"""A real cluster for tests: the binary as a process, found where cargo builds it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import volary

_REPOSITORY = Path(__file__).resolve().parents[2]
_READY = "volary: listening on "
_START_SECONDS = 60
_STOP_SECONDS = 30


class LocalCluster:
    """`volary local` as a context manager; `uri` is where its gateway listens.

    The data is under `directory`/data, the log in `directory`/log. `settings` are environment variables (VOLARY_…).
    """

    def __init__(
        self, directory: Path, workers: int, allow_roots: Sequence[Path] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings or {}
        self._log = directory / "log"
        self._command = [
            str(binary("volary")),
            "local",
            f"--workers={workers}",
            "--listen=127.0.0.1:0",
            f"--data-dir={directory / 'data'}",
            *(f"--allow-root={root}" for root in allow_roots),
        ]
        self.uri = ""

    def connect(self) -> volary.Connection:
        """A new connection of the Volary client."""
        return volary.connect(self.uri)

    def __enter__(self) -> LocalCluster:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self._settings},
            )
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_output, args=(lines,), daemon=True)
        self._reader.start()
        try:
            self.uri = self._await_ready(lines)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(
                f"the cluster did not stop on SIGTERM within {_STOP_SECONDS} s\n{self._tail()}"
            ) from None
        finally:
            self._reader.join()
        assert code == 0, f"the cluster ended with {code} on SIGTERM\n{self._tail()}"

    def _read_output(self, lines: queue.SimpleQueue[str | None]) -> None:
        """Reads to the end, also when nobody asks any more: a full pipe would stop the cluster."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                lines.put(line)
        lines.put(None)

    def _await_ready(self, lines: queue.SimpleQueue[str | None]) -> str:
        try:
            while (line := lines.get(timeout=_START_SECONDS)) is not None:
                if line.startswith(_READY):
                    return line.removeprefix(_READY).strip()
        except queue.Empty:
            raise AssertionError(f"the cluster did not start within {_START_SECONDS} s\n{self._tail()}") from None
        raise AssertionError(f"the cluster ended before it was ready: {' '.join(self._command)}\n{self._tail()}")

    def _tail(self) -> str:
        return "".join(self._log.read_text().splitlines(keepends=True)[-30:])


def binary(name: str) -> Path:
    """The program `name`: VOLARY_BIN says where `volary` is, the others lie beside it."""
    if "VOLARY_BIN" in os.environ:
        found = Path(os.environ["VOLARY_BIN"]).with_name(name)
    else:
        found = Path(os.environ.get("CARGO_TARGET_DIR", _REPOSITORY / "target")) / "release" / name
    if not found.is_file():
        raise FileNotFoundError(f"{found} does not exist: build it with `cargo build --release`, or set VOLARY_BIN")
    return found
