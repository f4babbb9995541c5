"""Starts clusters of Volary, and what they are compared with. VOLARY_BIN is the path of `volary`, and `volary-fleet` is
next to it. Without VOLARY_BIN, both are those that `cargo build --release` has built.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from child import Child

_READY = r"listening on (grpc://\S+)"
_METRICS = r"metrics at (http://\S+)"
_ANY_PORT = "--listen=127.0.0.1:0"
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cluster:
    """A gateway and workers in processes of their own, given by their process ids."""

    uri: str
    gateway: int
    workers: list[int]
    metrics: str | None = None
    """The address of the metrics, if the cluster serves them."""


@dataclass(frozen=True)
class Postgres:
    """An instance of PostgreSQL, whose user `postgres` has no password."""

    address: str
    process: int
    """The process id of the first process, whose children serve the connections."""
    release: str


@contextmanager
def in_one_process(directory: Path, *, workers: int) -> Iterator[Cluster]:
    """Runs `volary local` with default settings. Its process counts as the gateway's."""
    with ExitStack() as nodes:
        process, uri = nodes.enter_context(_node(directory / "local", "local", _ANY_PORT, f"--workers={workers}"))
        yield Cluster(uri, process, [])


@contextmanager
def in_one_process_with_metrics(directory: Path, *, workers: int, settings: str = "") -> Iterator[Cluster]:
    """Runs `volary local` in a new directory, with its metrics served. `settings` are more lines of a settings file."""
    directory.mkdir()
    file = directory / "volary.toml"
    file.write_text(f'[operations]\nlisten = "127.0.0.1:0"\n{settings}')
    arguments = ("local", _ANY_PORT, f"--workers={workers}", f"--config={file}")
    with _started(directory / "local", *arguments) as node:
        metrics = node.await_line(_METRICS)[1]
        yield Cluster(node.await_line(_READY)[1], node.pid, [], metrics)


@contextmanager
def in_processes(directory: Path, *, workers: int) -> Iterator[Cluster]:
    """Runs each node in its own process with default settings, so that its processor time can be measured."""
    with ExitStack() as nodes:
        gateway, uri = nodes.enter_context(_node(directory / "gateway", "gateway", _ANY_PORT))
        join = f"--gateway={uri.removeprefix('grpc://')}"
        joined = [
            nodes.enter_context(_node(directory / f"worker{number}", "worker", _ANY_PORT, join))[0]
            for number in range(1, workers + 1)
        ]
        yield Cluster(uri, gateway, joined)


@contextmanager
def driver_stubs(gateway: str, listeners: int, log: Path) -> Iterator[tuple[int, list[str]]]:
    """Runs stubs that answer as the gateway at this URI has answered the first time. Yields the id of their process,
    and their addresses.
    """
    arguments = [f"--gateway={gateway.removeprefix('grpc://')}", f"--listeners={listeners}"]
    with _fleet("driver-stub", *arguments, log=log) as stubs:
        yield stubs.pid, stubs.answer()["addresses"]


@contextmanager
def postgres(directory: Path, statements: list[str]) -> Iterator[Postgres | str]:
    """Runs PostgreSQL, with its data on the file system of the directory. It runs the statements first. If it is not
    installed, yields a text that says so.
    """
    arguments = [f"--near={directory}", *(f"--statement={statement}" for statement in statements)]
    with _fleet("postgres", *arguments, log=directory / "postgres.log") as server:
        answer = server.answer()
        if "missing" in answer:
            yield str(answer["missing"])
        else:
            yield Postgres(answer["address"], answer["pid"], answer["release"])


@contextmanager
def _fleet(*arguments: str, log: Path) -> Iterator[Child]:
    """Runs a command of `volary-fleet`, which ends when its input ends."""
    child = Child([_program("volary-fleet"), *arguments], log)
    try:
        yield child
    finally:
        child.end()


@contextmanager
def _node(directory: Path, *arguments: str) -> Iterator[tuple[int, str]]:
    """Runs a node. Yields its process id and its URI. A worker that prints its URI has joined."""
    with _started(directory, *arguments) as node:
        yield node.pid, node.await_line(_READY)[1]


@contextmanager
def _started(directory: Path, *arguments: str) -> Iterator[Child]:
    """Starts a node with its data in a directory, and ends it."""
    node = Child([_program("volary"), *arguments, f"--data-dir={directory}"], directory.with_suffix(".log"))
    try:
        yield node
    finally:
        node.terminate()
        node.end()


def _program(name: str) -> Path:
    if "VOLARY_BIN" in os.environ:
        given = Path(os.environ["VOLARY_BIN"]).absolute()
        found = given if name == "volary" else given.with_name(name)
    else:
        found = Path(os.environ.get("CARGO_TARGET_DIR", _REPOSITORY / "target")).absolute() / "release" / name
    if not found.is_file():
        raise SystemExit(f"{found} does not exist: build it with `cargo build --release`, or set VOLARY_BIN")
    return found
