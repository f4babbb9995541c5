"""What can happen to a cluster. Each kind of round is a function with an entry in `KINDS`."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import kill_points
import log_files
from flipped_bits import flip_bits
from ledger import TABLES
from processes import Node, until
from torture import Torture
from volary_answers import DEADLINE_SECONDS, check_allowed

import volary

# Longest random times in seconds.
_BEFORE = 0.3
_DOWN = 0.5
_STOPPED = 2.5
_CUT = 1.0
_BEFORE_START_ENDS = 0.3
# Passes of a kill point, and numbers of statements after which a point that was not passed is given up.
_PASSES = (1, 1, 1, 2, 3, 5, 10, 30)
_PATIENCE = (20, 20, 100)
_ENOUGH_REFUSALS = 5


def kill_worker(t: Torture) -> None:
    """Kills one worker or several, which are down for a while."""
    t.pause(_BEFORE)
    for worker in t.chance.sample(t.workers, t.chance.choice([1, 1, 2, 3])):
        t.kill(worker)
    t.pause(_DOWN)


def kill_gateway(t: Torture) -> None:
    """Kills the gateway."""
    t.pause(_BEFORE)
    t.kill(t.gateway)
    t.pause(_DOWN)


def kill_all(t: Torture) -> None:
    """Kills all nodes at once."""
    t.pause(_BEFORE)
    for node in t.chance.sample(t.nodes, len(t.nodes)):
        t.kill(node)


def kill_clients(t: Torture) -> None:
    """Kills clients, and sometimes a node with them."""
    t.pause(_BEFORE)
    for writer in t.chance.sample(t.clients.writers, t.chance.randint(1, len(t.clients.writers))):
        t.note(f"kills client {writer}")
        t.clients.kill(writer)
    if t.chance.random() < 0.3:
        t.kill(t.chance.choice(t.nodes))


def kill_at_start(t: Torture) -> None:
    """Kills a node, and then kills it again while it starts."""
    t.pause(_BEFORE)
    node = t.chance.choice(t.nodes)
    t.kill(node)
    for _ in range(t.chance.randint(1, 3)):
        if t.chance.random() < 0.5:
            _start_armed(t, node, _point(t, node), 1)
        else:
            t.launch(node)
            t.pause(_BEFORE_START_ENDS)
        if node.running().is_alive():
            t.kill(node)


def optimize(t: Torture) -> None:
    """Lets all segments of a table be merged, and sometimes kills a node meanwhile."""
    t.pause(_BEFORE)
    table = t.chance.choice(TABLES)
    t.note(f"optimizes {table}")
    with ThreadPoolExecutor() as threads:
        merging = threads.submit(_run_or_fail, t, f"OPTIMIZE {table}")
        t.pause(_BEFORE)
        if t.chance.random() < 0.7:
            t.kill(t.chance.choice(t.nodes))
    merging.result()


def restart(t: Torture) -> None:
    """Stops a node in order, and starts it again."""
    t.pause(_BEFORE)
    node = t.chance.choice(t.nodes)
    t.note(f"stops {node.name}")
    node.running().stop()
    t.start(node)


def stop_node(t: Torture) -> None:
    """Stops a node in the sense of SIGSTOP: it keeps its connections and does not answer."""
    t.pause(_BEFORE)
    node = t.chance.choice(t.nodes)
    t.note(f"suspends {node.name}")
    node.running().signal(signal.SIGSTOP)
    t.pause(_STOPPED)
    if t.chance.random() < 0.3:
        t.kill(node)


def cut_network(t: Torture) -> None:
    """Loses what is on its way to or from a worker, and then closes its connections."""
    t.pause(_BEFORE)
    proxy = t.workers[0].proxy
    up, down = (t.chance.choice([0, 500, 20_000, None]) for _ in range(2))
    t.note(f"cuts {t.workers[0].name} off after {up} bytes up and {down} bytes down")
    proxy.hold_after(up=up, down=down)
    t.pause(_CUT)
    proxy.cut()


def worker_kill_point(t: Torture) -> None:
    """Lets a worker end itself at a kill point."""
    worker = t.chance.choice(t.workers)
    t.kill(worker)
    if _start_armed(t, worker, _point(t, worker), t.chance.choice(_PASSES)):
        _await_kill_point(t, worker)
    t.has_fired(worker)


def gateway_kill_point(t: Torture) -> None:
    """Lets the gateway end itself at a kill point. Sometimes a worker is killed, too, so that there are aborts."""
    t.kill(t.gateway)
    point = _point(t, t.gateway)
    if _start_armed(t, t.gateway, point, t.chance.choice(_PASSES)):
        if point.startswith("abort."):
            t.kill(t.chance.choice(t.workers))
            t.pause(_DOWN)
        else:
            _await_kill_point(t, t.gateway)
    t.has_fired(t.gateway)


def torn_group(t: Torture) -> None:
    """Lets a worker end itself before a sync of the log, and tears what was not synced."""
    worker = t.chance.choice(t.workers)
    t.kill(worker)
    if _start_armed(t, worker, "log.before_sync", t.chance.randint(1, 20)):
        _await_kill_point(t, worker)
    if t.has_fired(worker):
        t.note(f"tears {log_files.tear_last_group(worker.data_dir, t.chance)}")


def torn_end(t: Torture) -> None:
    """Kills workers, and adds what could be parts of the next frame to their logs."""
    t.pause(_BEFORE)
    for worker in t.chance.sample(t.workers, t.chance.randint(1, len(t.workers))):
        t.kill(worker)
        t.note(f"tears {log_files.add_torn_end(worker.data_dir, t.chance)}")


def full_worker_disk(t: Torture) -> None:
    """Fills the disk of a worker. Reads go on."""
    _fill_disk(t, t.workers[-1])


def flipped_bits(t: Torture) -> None:
    """Flips bits of durable files in a cluster of its own."""
    t.clients.pause()
    flip_bits(t.directory / f"flipped{t.rounds}", f"{t.seed}/{t.rounds}", t.note)


def full_gateway_disk(t: Torture) -> None:
    """Fills the disk of the gateway. Reads go on."""
    _fill_disk(t, t.gateway)


KINDS: dict[str, Callable[[Torture], None]] = {
    kind.__name__: kind
    for kind in (
        kill_worker,
        kill_gateway,
        kill_all,
        kill_clients,
        kill_at_start,
        optimize,
        restart,
        stop_node,
        cut_network,
        worker_kill_point,
        gateway_kill_point,
        torn_group,
        torn_end,
        full_worker_disk,
        full_gateway_disk,
        flipped_bits,
    )
}
# How often a kind is in a deck, if that is not once.
_OFTEN = {"worker_kill_point": 4, "gateway_kill_point": 2}
_DECK = [name for name in KINDS for _ in range(_OFTEN.get(name, 1))]
DECK_SIZE = len(_DECK)
"""Number of rounds that have each kind at least once."""


def kinds_of_rounds(count: int, chance: random.Random) -> list[str]:
    """Returns the kinds of rounds. Each kind is in any `DECK_SIZE` rounds that begin at a multiple of it."""
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += chance.sample(_DECK, DECK_SIZE)
    return kinds[:count]


def _point(t: Torture, node: Node) -> str:
    """Draws one of the node's kill points that were armed least often, so that a long run arms all of them."""
    points = kill_points.of_node(kill_points.GATEWAY if node is t.gateway else kill_points.WORKER)
    least = min(t.armed[point] for point in points)
    return t.chance.choice([point for point in points if t.armed[point] == least])


def _start_armed(t: Torture, node: Node, point: str, passes: int) -> bool:
    return t.start(node, f"{point}:{passes}")


def _await_kill_point(t: Torture, node: Node) -> None:
    """Waits until a kill point has ended the node, or until the clients have written much without passing it."""
    enough = t.acknowledged() + t.chance.choice(_PATIENCE)
    until(
        lambda: t.check() and (not node.running().is_alive() or t.acknowledged() >= enough),
        f"{node.name} passes the kill point, or the clients write",
    )


def _fill_disk(t: Torture, node: Node) -> None:
    disk = t.disks[node]
    if not disk.is_mounted:
        t.note("no disk can be filled, because this user may mount none")
        return
    left = t.chance.choice([0, 0, 8 << 10, 300 << 10])
    t.note(f"fills the disk of {node.name} but for {left} bytes")
    disk.fill(left)
    refused = _refused(t)
    enough = t.acknowledged() + t.chance.choice(_PATIENCE)
    until(
        lambda: t.check() and (t.acknowledged() >= enough or _refused(t) >= refused + _ENOUGH_REFUSALS),
        "the full disk refuses statements, or has room for some",
    )
    reads = t.checks.seen.reads
    until(lambda: t.check() and t.checks.seen.reads > reads, "reads go on while a disk is full")
    if t.chance.random() < 0.5:
        t.kill(node)
    disk.free()


def _refused(t: Torture) -> int:
    return t.history.errors.get("RESOURCE_EXHAUSTED", 0)


def _run_or_fail(t: Torture, statement: str) -> None:
    """Runs a statement that may fail because a node is killed."""
    try:
        with volary.connect(t.gateway.uri, timeout=DEADLINE_SECONDS) as connection:
            connection.sql(statement)
    except volary.Error as error:
        check_allowed(error)
