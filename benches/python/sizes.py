"""The sizes of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """The size of a run. The numbers of turns do not include those that warm up."""

    name: str
    warm_ups: int
    """Turns before all others, which are not counted."""
    turns: int
    """Turns of variants that take a second or less."""
    pool_turns: int
    """Turns of variants that start a pool. They are few, because starting processes takes seconds."""
    pool_workers: int
    bursts: int
    """Bursts of 100 requests to a pool, in one turn."""
    requests: int
    """Requests that one caller sends one after another, in one turn."""
    transfer_turns: int
    transfer_mib: int
    """Approximate size of the table that is transferred, as Arrow data."""
    driver_turns: int
    driver_rows: int
    """Rows of the table that the drivers ask for single rows."""
    driver_clients: tuple[int, ...]
    """Numbers of clients that ask at the same time through a driver. The first is 1."""
    driver_requests: int
    """Requests of one client through a driver in one turn. Several clients together send twice as many."""
    idle_seconds: float
    """Time for which an idle server is observed in each turn."""
    lookup_rows: int
    """Rows of the table whose rows are looked up by key. Each batch has at most half as many keys."""
    lookup_seconds: float
    """Time for which one client looks up batches of keys in one turn."""


SMOKE = Size(
    "smoke",
    warm_ups=0,
    turns=1,
    pool_turns=1,
    pool_workers=2,
    bursts=1,
    requests=20,
    transfer_turns=1,
    transfer_mib=4,
    driver_turns=1,
    driver_rows=1_000,
    driver_clients=(1, 3),
    driver_requests=4,
    idle_seconds=0.1,
    lookup_rows=4_000,
    lookup_seconds=0.02,
)
QUICK = Size(
    "quick",
    warm_ups=1,
    turns=3,
    pool_turns=1,
    pool_workers=10,
    bursts=5,
    requests=200,
    transfer_turns=2,
    transfer_mib=128,
    driver_turns=3,
    driver_rows=100_000,
    driver_clients=(1, 8, 64),
    driver_requests=200,
    idle_seconds=1,
    lookup_rows=1_000_000,
    lookup_seconds=0.3,
)
NORMAL = Size(
    "normal",
    warm_ups=1,
    turns=10,
    pool_turns=5,
    pool_workers=10,
    bursts=10,
    requests=500,
    transfer_turns=5,
    transfer_mib=1000,
    driver_turns=5,
    driver_rows=1_000_000,
    driver_clients=(1, 8, 64),
    driver_requests=500,
    idle_seconds=2,
    lookup_rows=10_000_000,
    lookup_seconds=1,
)
