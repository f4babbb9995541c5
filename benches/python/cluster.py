"""Starts clusters of Volary with the program that VOLARY_BIN names, or that `cargo build --release` has built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from child import Child

_READY = r"listening on (grpc://\S+)"
_ANY_PORT = "--listen=127.0.0.1:0"
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cluster:
    """A gateway and workers in processes of their own, given by their process ids."""

    uri: str
    gateway: int
    workers: list[int]


@contextmanager
def in_one_process(directory: Path, *, workers: int) -> Iterator[str]:
    """Runs `volary local` with default settings. Yields the URI of its gateway."""
    with ExitStack() as nodes:
        _, uri = nodes.enter_context(_node(directory / "local", "local", _ANY_PORT, f"--workers={workers}"))
        yield uri


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
def _node(directory: Path, *arguments: str) -> Iterator[tuple[int, str]]:
    """Runs a node. Yields its process id and its URI. A worker that prints its URI has joined."""
    node = Child([_binary(), *arguments, f"--data-dir={directory}"], directory.with_suffix(".log"))
    try:
        yield node.pid, node.await_line(_READY)[1]
    finally:
        node.terminate()
        node.end()


def _binary() -> Path:
    if "VOLARY_BIN" in os.environ:
        found = Path(os.environ["VOLARY_BIN"]).absolute()
    else:
        found = Path(os.environ.get("CARGO_TARGET_DIR", _REPOSITORY / "target")).absolute() / "release" / "volary"
    if not found.is_file():
        raise SystemExit(f"{found} does not exist: build it with `cargo build --release`, or set VOLARY_BIN")
    return found
