"""Reads what Linux reports about processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Indexes of the fields of /proc/PID/stat that follow the name of the program.
_USER_TICKS, _SYSTEM_TICKS = 11, 12


class Memory(NamedTuple):
    """The memory of some processes together, in bytes."""

    pss: int
    """Proportional set size. Each process has a share of its shared pages, so that the sum counts them once."""
    peak_rss: int
    """Sum of the peaks of the processes. Shared pages count once for each process."""


def processor_seconds(processes: Iterable[int]) -> float:
    """Returns the processor time of the processes so far, in seconds with a resolution of a hundredth."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return ticks / _TICKS_PER_SECOND


def memory(processes: Iterable[int]) -> Memory:
    """Returns the current memory of the processes."""
    sizes = [
        Memory(_kib(f"/proc/{process}/smaps_rollup", "Pss:"), _kib(f"/proc/{process}/status", "VmHWM:"))
        for process in processes
    ]
    return Memory(sum(size.pss for size in sizes) << 10, sum(size.peak_rss for size in sizes) << 10)


def threads(processes: Iterable[int]) -> int:
    """Returns the number of threads of the processes."""
    return sum(len(os.listdir(f"/proc/{process}/task")) for process in processes)


def family(process: int) -> list[int]:
    """Returns the process, its children, their children, and so on."""
    members = [process]
    for member in members:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            members.extend(map(int, children.read_text().split()))
    return members


def _kib(path: str, key: str) -> int:
    with open(path) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key))
