"""Reads what Linux reports about processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
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
    return sum(_seconds(Path(f"/proc/{process}/stat")) for process in processes)


def work(processes: Iterable[int]) -> dict[tuple[int, int], float]:
    """Returns the processor time of each thread of the processes so far, in seconds. Keys are the ids of process and
    thread. It is exact if the kernel counts nanoseconds (schedstat), and otherwise has a resolution of a hundredth.
    """
    done = {}
    for process in processes:
        # A process or a thread may end at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{process}/task"):
                with suppress(FileNotFoundError, ProcessLookupError):
                    done[process, int(thread)] = _thread_seconds(Path(f"/proc/{process}/task/{thread}"))
    return done


def seconds_since(earlier: dict[tuple[int, int], float], now: dict[tuple[int, int], float]) -> float:
    """Returns the processor time between two answers of `work`. That of threads that have ended is left out."""
    return sum(max(0.0, seconds - earlier.get(thread, 0.0)) for thread, seconds in now.items())


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
            # A process or a thread may end at any time.
            with suppress(FileNotFoundError, ProcessLookupError):
                members.extend(map(int, children.read_text().split()))
    return members


def _thread_seconds(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        return _seconds(thread / "stat")


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_SECOND


def _kib(path: str, key: str) -> int:
    with open(path) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key))
