"""How large a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Turns are counted ones; another one comes first, which warms up."""

    name: str
    turns: int
    """Of what takes a second or less."""
    pool_turns: int
    """In which a pool is started: processes take seconds."""
    pool_workers: int
    bursts: int
    """Of 100 requests to a pool. So many make a turn."""
    requests: int
    """Of one caller, one after another; so many make a turn."""
    transfer_turns: int
    transfer_mib: int
    """Of the table that is transferred, as Arrow data, about."""


SMOKE = Size("smoke", turns=1, pool_turns=1, pool_workers=2, bursts=1, requests=20, transfer_turns=1, transfer_mib=4)
QUICK = Size(
    "quick", turns=3, pool_turns=1, pool_workers=10, bursts=5, requests=200, transfer_turns=2, transfer_mib=128
)
NORMAL = Size(
    "normal", turns=10, pool_turns=5, pool_workers=10, bursts=10, requests=500, transfer_turns=5, transfer_mib=1000
)
