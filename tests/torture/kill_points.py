"""The points in the program at which a process can end itself, as the sources name them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

VARIABLE = "VOLARY_KILL_POINTS"
GATEWAY = "gateway"
WORKER = "worker"
# The crates with kill points, and the nodes that run them.
_NODES = {"worker": (WORKER,), "gateway": (GATEWAY,), "catalog": (GATEWAY,), "node": (GATEWAY, WORKER)}
_CALL = re.compile(r'\bkill_point\(\s*"([^"]*)"\s*\)')
_NAME = re.compile(r"[a-z_]+\.(before|after)_[a-z_]+")
_REPOSITORY = Path(__file__).resolve().parents[2]
_DEFINITION = _REPOSITORY / "node/src/kill_point.rs"


@cache
def of_node(role: str) -> tuple[str, ...]:
    """Returns the names of the points that a gateway or a worker passes, sorted."""
    names = []
    for crate, roles in _NODES.items():
        for file in sorted((_REPOSITORY / crate / "src").rglob("*.rs")):
            if role in roles and file != _DEFINITION:
                names += _CALL.findall(file.read_text("utf-8"))
    for name in names:
        assert _NAME.fullmatch(name), f"the kill point {name} has no name as node/src/kill_point.rs demands"
    assert len(names) == len(set(names)), f"a kill point has two places: {sorted(names)}"
    return tuple(sorted(names))
