"""Runs the clients, each as a process of its own."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import client
from client import Client
from journal import History

# A process that has imported the packages is forked for each client: importing takes longer than most rounds.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["adbc_driver_flightsql.dbapi", "pyarrow.flight", "pyarrow.parquet", "volary"])


class Clients:
    """The clients of a run."""

    def __init__(self, uri: str, directory: Path, seed: int, writers: range, history: History) -> None:
        self._uri = uri
        self._directory = directory
        self._seed = seed
        self._history = history
        self._pause_file = directory / "pause"
        self._pauses = 0
        self._processes: dict[int, ForkServerProcess | None] = dict.fromkeys(writers)

    @property
    def writers(self) -> list[int]:
        """The numbers of the writers."""
        return list(self._processes)

    def start(self) -> None:
        """Starts all clients that do not run."""
        for writer in self._processes:
            if not self._is_alive(writer):
                self._start(writer)

    def kill(self, writer: int) -> None:
        """Kills a client, whatever it is doing."""
        process = self._processes[writer]
        if process is not None:
            process.kill()
            process.join()

    def pause(self) -> int:
        """Asks all clients to begin no more statements. Returns the number of the pause."""
        self._pauses += 1
        draft = self._pause_file.with_suffix(".draft")
        draft.write_text(str(self._pauses))
        draft.rename(self._pause_file)
        return self._pauses

    def are_paused(self, pause: int) -> bool:
        """Returns whether all clients have ended their statements since the pause began."""
        return all(
            not self._is_alive(writer) or self._history.last_pause(writer) == pause for writer in self._processes
        )

    def resume(self) -> None:
        """Lets the clients write again."""
        self._pause_file.unlink(missing_ok=True)

    def close(self) -> None:
        """Kills all clients."""
        for writer in self._processes:
            self.kill(writer)

    def _is_alive(self, writer: int) -> bool:
        process = self._processes[writer]
        return process is not None and process.is_alive()

    def _start(self, writer: int) -> None:
        config = Client(
            uri=self._uri,
            directory=self._directory,
            journal=self._history.path(writer),
            pause=self._pause_file,
            seed=self._seed,
            writer=writer,
            first=self._history.next_number(writer),
        )
        process = _PROCESSES.Process(target=client.run, args=(config,), daemon=True, name=f"writer{writer}")
        process.start()
        self._processes[writer] = process
