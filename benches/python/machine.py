"""Describes the machine of a run as Linux does."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

_UNKNOWN = "unknown"


def machine() -> dict[str, Any]:
    """Returns the number and name of the processors, the memory in bytes, the distribution and the kernel."""
    kib = _value("/proc/meminfo", "MemTotal", ":").removesuffix(" kB")
    distribution = _value("/etc/os-release", "PRETTY_NAME", "=").strip('"')
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "model": _value("/proc/cpuinfo", "model name", ":"),
        "memory": int(kib) * 1024 if kib.isdecimal() else 0,
        "os": f"{distribution}, Linux {platform.release()}",
    }


def versions(measured: dict[str, str]) -> dict[str, str]:
    """Returns the versions of the measured software, by name. The caller gives those that Python does not know."""
    packages = {"adbc-driver-flightsql", "pyarrow"}
    return {"python": platform.python_version()} | {name: version(name) for name in packages} | measured


def _value(path: str, key: str, separator: str) -> str:
    """Returns the first value of a key in a file with one key and value per line."""
    try:
        with open(path) as lines:
            pairs = (line.partition(separator) for line in lines)
            return next((value.strip() for name, _, value in pairs if name.strip() == key), _UNKNOWN)
    except FileNotFoundError:
        return _UNKNOWN
