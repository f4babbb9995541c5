"""Starts processes for a benchmark. They end when the benchmark ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# A process that hangs must not delay the run forever. The longest request is the load of a gigabyte.
_ANSWER_SECONDS = 300.0
_END_SECONDS = 20.0
_HERE = Path(__file__).resolve().parent


class Child:
    """A process that reads requests from its standard input and writes answers to its standard output, line by line."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self._command = list(map(str, command))
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                # This directory has no volary.toml.
                cwd=log.parent,
                text=True,
                encoding="utf-8",
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def await_line(self, pattern: str) -> re.Match[str]:
        """Returns the next line that matches the pattern. Raises `RuntimeError` with the log if the process ends."""
        watchdog = threading.Timer(_ANSWER_SECONDS, self._process.kill)
        watchdog.start()
        try:
            for line in self._output:
                if match := re.search(pattern, line):
                    return match
        finally:
            watchdog.cancel()
        raise RuntimeError(f"{self._command} has ended with {self._process.wait()}:\n{self._log.read_text()}")

    def answer(self) -> Any:
        """Returns the next answer, which is a JSON object in one line."""
        return json.loads(self.await_line(r"^\{.*").group())

    def ask(self, request: str) -> Any:
        """Sends a line, and waits for the answer."""
        # If the process has ended, waiting for the answer raises an error that says why.
        with suppress(BrokenPipeError):
            self._input.write(request + "\n")
            self._input.flush()
        return self.answer()

    def terminate(self) -> None:
        """Sends SIGTERM, for a process that does not read its input."""
        self._process.terminate()

    def end(self) -> None:
        """Closes the input of the process, and waits until the process has ended."""
        with suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


@contextmanager
def program(name: str, *arguments: str | int, log: Path) -> Iterator[Child]:
    """Runs a Python program of this directory. The program ends when its input ends."""
    child = Child([sys.executable, _HERE / f"{name}.py", *map(str, arguments)], log)
    try:
        yield child
    finally:
        child.end()


def _environment() -> dict[str, str]:
    """Returns the environment without Volary's variables. Settings of the user must not affect the benchmark."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VOLARY_")}
