"""Runs a pool of threads or processes that asks for single rows in bursts.

    python pool.py CLIENT POOL URI WORKERS

The program prints an answer when all workers have connected and asked once. Then it answers each line of its input. For
`burst REQUESTS SEED`, it sends that number of requests. The answer has the time of each request, and of the whole
burst. The answer to `footprint` is the memory and the number of threads of the program. After a burst, the program
keeps its memory and its threads.
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
    """The client of a thread or a process."""

    client: Client


_of_worker = _OfWorker()


def start_worker(client: str | Client, uri: str, barrier: Any) -> None:
    """Starts a worker, and waits until all workers have asked once. So every worker takes part in the bursts."""
    _of_worker.client = CLIENTS[client](uri) if isinstance(client, str) else client
    ask(1)
    barrier.wait()


def ask(key: int) -> tuple[float, pa.Table]:
    """Returns the time of a request in seconds, and its row. The pool passes both to the main program."""
    begin = time.perf_counter()
    rows = _of_worker.client.ask(POINT, [key])
    return time.perf_counter() - begin, rows


def pool_of(kind: str, client: str, uri: str, workers: int) -> Executor:
    """Creates a pool. Its workers start with its first requests."""
    if kind == "threads":
        barrier = threading.Barrier(workers, timeout=_PATIENCE_SECONDS)
        one_for_all = CLIENTS[client](uri) if CLIENTS[client].THREADS_SHARE else client
        return ThreadPoolExecutor(workers, initializer=start_worker, initargs=(one_for_all, uri, barrier))
    # gRPC's threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        workers,
        mp_context=spawn,
        initializer=start_worker,
        initargs=(client, uri, spawn.Barrier(workers, timeout=_PATIENCE_SECONDS)),
    )


def burst(pool: Executor, requests: int, seed: int) -> dict[str, Any]:
    """Submits all requests at once. Each worker takes one request after another."""
    keys = random.Random(seed).choices(range(1, BIRDS + 1), k=requests)
    begin = time.perf_counter()
    answers = list(pool.map(ask, keys))
    total = time.perf_counter() - begin
    if any(rows.num_rows != 1 for _, rows in answers):
        raise RuntimeError("a request did not give its row")
    return {"seconds": [seconds for seconds, _ in answers], "total_seconds": total}


def footprint() -> dict[str, float]:
    """Returns the memory and the number of threads of this process and all processes that it has started."""
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
