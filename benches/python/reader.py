"""Reads all rows of a query in one way.

    python reader.py WAY GATEWAY BARE RELAY

The program reads once for each line of its input. It answers with what it has read, the time, and its own processor
time.
"""

from __future__ import annotations

import json
import sys
import time

from ways import WAYS, Uris


def main() -> None:
    """Reads until the input ends."""
    way, *uris = sys.argv[1:]
    read = WAYS[way](Uris(*uris))
    for _ in sys.stdin:
        processor, begin = time.process_time(), time.perf_counter()
        got = read()
        seconds = time.perf_counter() - begin
        processor_seconds = time.process_time() - processor
        answer = {"rows": got.rows, "bytes": got.bytes, "batches": got.batches}
        print(json.dumps({**answer, "seconds": seconds, "processor_seconds": processor_seconds}), flush=True)
        del got


if __name__ == "__main__":
    main()
