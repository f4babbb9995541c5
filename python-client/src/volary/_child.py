"""A child process that ends with this process, however this process ends."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from .errors import DeadlineExceededError, InvalidArgumentError

_CHUNK_BYTES = 1 << 16
# The program gives running statements 20 seconds to end. A program that has left its own results open should
# not wait so long for them: a second signal cuts the shutdown off, which loses no acknowledged write.
_PATIENCE_SECONDS = 10.0


class Child:
    """A program that stops when its standard input is closed.

    This process holds the other end of that pipe, and the system closes it when this process ends, even by SIGKILL or
    by the restart of a notebook's kernel. So no code has to run for that. Linux could send the child a signal
    (PR_SET_PDEATHSIG), but it sends it when the *thread* ends that started the child.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        # The file has no name any more, so the system removes it when both processes have closed it.
        self._log, name = tempfile.mkstemp(prefix="volary-")
        os.unlink(name)
        weakref.finalize(self, os.close, self._log)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                env=_environment(),
                # Ctrl-C in a terminal is for this process. It goes to all processes of a group.
                start_new_session=True,
            )
        except OSError as error:
            raise InvalidArgumentError(f"{command[0]} cannot be run: {error.strerror}") from error
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._output: IO[bytes] = stdout
        _open_inputs.add(stdin)
        # It runs when this object is no longer used, and at the end of the interpreter.
        self._end = weakref.finalize(self, _end, self._process, os.getpid())

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, or None while it runs."""
        return self._process.poll()

    def read_until(self, last: re.Pattern[bytes], seconds: float) -> str:
        """Returns what the process prints, up to the match of `last`, or up to its end if it ends before.

        Raises `DeadlineExceededError` if neither happens within `seconds`.
        """
        deadline = time.monotonic() + seconds
        printed = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            while not last.search(printed):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise self._late(seconds)
                read = os.read(self._output.fileno(), _CHUNK_BYTES)
                if not read:
                    self._await_end(deadline, seconds)
                    break
                printed += read
        return printed.decode(errors="replace")

    def _await_end(self, deadline: float, seconds: float) -> None:
        try:
            self._process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise self._late(seconds) from None

    def _late(self, seconds: float) -> DeadlineExceededError:
        return DeadlineExceededError(f"the cluster has not started within {seconds} s{self.tail()}")

    def log(self) -> str:
        """Returns what the process has written to standard error."""
        # Both processes share the position in the file, and only the child may move it.
        chunks, position = [], 0
        while chunk := os.pread(self._log, _CHUNK_BYTES, position):
            chunks.append(chunk)
            position += len(chunk)
        return b"".join(chunks).decode(errors="replace")

    def tail(self) -> str:
        """Returns the last lines of the log as the end of an error's message."""
        lines = self.log().splitlines()[-10:]
        return "".join(f"\n  {line}" for line in ["; the log ends with:", *lines]) if lines else "; its log is empty"

    def end(self) -> None:
        """Stops the process, and kills it if it does not stop. May be called more than once."""
        self._end()


def _environment() -> dict[str, str]:
    """Returns the environment without the settings of Volary, which are for clusters that are started by hand."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VOLARY_")}


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    # A process that was forked from the owner has a copy of this object, and the cluster is not its own.
    if os.getpid() != owner:
        return
    try:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_SECONDS)
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


# The ends of pipes that this process holds.
_open_inputs: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


def _close_inputs() -> None:
    for end in list(_open_inputs):
        with suppress(OSError):
            end.close()


# A forked process has copies of them, and would keep the clusters running. Programs that are started otherwise get no
# descriptors (PEP 446).
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inputs)
