"""Measures how long a fresh process takes to import a client, to connect, and to get answers.

python first_request.py CLIENT URI KEY QUESTION
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from itertools import pairwise

from clients import CLIENTS
from data import QUESTIONS


def main() -> None:
    """Imports the client, connects, and asks twice."""
    name, uri, key, question = sys.argv[1:]
    query, parameters = QUESTIONS[question]
    client = CLIENTS[name]
    moments = [time.perf_counter()]
    importlib.import_module(client.MODULE)
    moments.append(time.perf_counter())
    connected = client(uri)
    moments.append(time.perf_counter())
    for _ in range(2):
        rows = connected.ask(query, [int(key)] * parameters)
        moments.append(time.perf_counter())
        if rows.num_rows != 1:
            raise RuntimeError("a request did not give its row")
    steps = ["import_ms", "connect_ms", "first_ms", "second_ms"]
    took = [1000 * (after - before) for before, after in pairwise(moments)]
    print(json.dumps(dict(zip(steps, took, strict=True))), flush=True)


if __name__ == "__main__":
    main()
