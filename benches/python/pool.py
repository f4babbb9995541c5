"""A pool of threads or processes that asks for single rows, burst by burst.

    python pool.py CLIENT POOL URI WORKERS

It answers when all workers are connected and have asked once, and then each line of its input: `burst REQUESTS SEED`
with what each of so many requests took, and all of them together; `footprint` with the memory and the threads that the
program has, which keeps all that it has needed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import procfs
from clients import CLIENTS, Client
from data import BIRDS, POINT

if TYPE_CHECKING:
    import pyarrow as pa

_PATIENCE_SECONDS = 60
_MIB = 1 << 20


class _OfWorker(threading.local):
    """What a thread, or a process, asks with."""

    client: Client


_of_worker = _OfWorker()


def join(client: str | Client, uri: str, barrier: Any) -> None:
    """How a worker begins. None goes on before all have asked once, so that none is left out."""
    _of_worker.client = CLIENTS[client](uri) if isinstance(client, str) else client
    ask(1)
    barrier.wait()


def ask(key: int) -> tuple[float, pa.Table]:
    """What a request took, in seconds, and its row, which the main program gets."""
    begin = time.perf_counter()
    rows = _of_worker.client.ask(POINT, [key])
    return time.perf_counter() - begin, rows


def pool_of(kind: str, client: str, uri: str, workers: int) -> Executor:
    """A pool, whose workers begin with its first requests."""
    if kind == "threads":
        barrier = threading.Barrier(workers, timeout=_PATIENCE_SECONDS)
        one_for_all = CLIENTS[client](uri) if CLIENTS[client].THREADS_SHARE else client
        return ThreadPoolExecutor(workers, initializer=join, initargs=(one_for_all, uri, barrier))
    # Threads of gRPC do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        workers,
        mp_context=spawn,
        initializer=join,
        initargs=(client, uri, spawn.Barrier(workers, timeout=_PATIENCE_SECONDS)),
    )


def burst(pool: Executor, requests: int, seed: int) -> dict[str, Any]:
    """All at once, of which each worker takes one after another."""
    keys = random.Random(seed).choices(range(1, BIRDS + 1), k=requests)
    begin = time.perf_counter()
    answers = list(pool.map(ask, keys))
    total = time.perf_counter() - begin
    if any(rows.num_rows != 1 for _, rows in answers):
        raise RuntimeError("a request did not give its row")
    return {"seconds": [seconds for seconds, _ in answers], "total_seconds": total}


def footprint() -> dict[str, float]:
    """Of this process and all that it has started."""
    members = procfs.family(os.getpid())
    memory = procfs.memory(members)
    return {
        "pss_mib": memory.pss / _MIB,
        "peak_rss_mib": memory.peak_rss / _MIB,
        "threads": procfs.threads(members),
    }


def main() -> None:
    """Runs the pool until the input ends."""
    client, kind, uri, workers = sys.argv[1:]
    with pool_of(kind, client, uri, int(workers)) as pool:
        burst(pool, int(workers), seed=0)
        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            command, *numbers = line.split()
            answer = footprint() if command == "footprint" else burst(pool, *map(int, numbers))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
