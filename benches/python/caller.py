"""Sends one request after another from the main thread of a program, as a script or a notebook does.

    python caller.py CLIENT URI

Each line of the input is `REQUESTS SEED QUESTION`. The program sends that number of requests, and answers with the time
of each.
"""

from __future__ import annotations

import json
import random
import sys
import time

from clients import CLIENTS
from data import BIRDS, QUESTIONS


def main() -> None:
    """Asks until the input ends."""
    name, uri = sys.argv[1:]
    client = CLIENTS[name](uri)
    for line in sys.stdin:
        requests, seed, question = line.rstrip().split(maxsplit=2)
        query, parameters = QUESTIONS[question]
        seconds = []
        for key in random.Random(int(seed)).choices(range(1, BIRDS + 1), k=int(requests)):
            begin = time.perf_counter()
            rows = client.ask(query, [key] * parameters)
            seconds.append(time.perf_counter() - begin)
            if rows.num_rows != 1:
                raise RuntimeError("a request did not give its row")
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
