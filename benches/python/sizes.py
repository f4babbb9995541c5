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
)
