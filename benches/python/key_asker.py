"""Looks up rows by key in an engine, one batch of keys after another.

    python key_asker.py ENGINE PLACE

PLACE is the URI of a gateway, or the path of a database's file. The program first answers with the version of the
engine. Then each line of its input is a request as JSON, which has one of these:

- `rows_of`: a list of keys. The answer has their rows, sorted
- `every_key_below`: a number, and `keys`: the keys of a batch. All keys from 0 to the number are looked up once
- `random_keys_below`: a number, `keys`: the keys of a batch, `seed`: chooses the keys, and `seconds`: the time after
  which no more batches begin. The answer has the time of each batch, and the processor time of this process for all of
  them together. The time in which keys are chosen is part of neither
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from key_engines import ENGINES, Engine

# Percentiles need two values.
_LEAST_BATCHES = 2

Answer = dict[str, Any]


def main() -> None:
    """Answers requests until the input ends."""
    name, place = sys.argv[1:]
    engine = ENGINES[name](place)
    print(json.dumps({"version": engine.version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(engine, json.loads(line))), flush=True)


def _answer(engine: Engine, request: dict[str, Any]) -> Answer:
    if "rows_of" in request:
        return _rows_of(engine, request["rows_of"])
    if "every_key_below" in request:
        return _every_key(engine, request["every_key_below"], request["keys"])
    return _random_keys(engine, request)


def _rows_of(engine: Engine, keys: list[int]) -> Answer:
    columns = engine.look_up(keys).to_pydict().values()
    return {"rows": sorted(zip(*columns, strict=True))}


def _every_key(engine: Engine, end: int, count: int) -> Answer:
    for begin in range(0, end, count):
        _look_up(engine, list(range(begin, min(begin + count, end))))
    return {}


def _random_keys(engine: Engine, request: dict[str, Any]) -> Answer:
    every_key = range(request["random_keys_below"])
    chooser = random.Random(request["seed"])
    seconds: list[float] = []
    processor_seconds = 0.0
    end = time.perf_counter() + request["seconds"]
    while len(seconds) < _LEAST_BATCHES or time.perf_counter() < end:
        keys = chooser.sample(every_key, request["keys"])
        processor, begin = time.process_time(), time.perf_counter()
        _look_up(engine, keys)
        seconds.append(time.perf_counter() - begin)
        processor_seconds += time.process_time() - processor
    return {"seconds": seconds, "processor_seconds": processor_seconds}


def _look_up(engine: Engine, keys: list[int]) -> None:
    found = engine.look_up(keys).num_rows
    if found != len(keys):
        raise RuntimeError(f"{found} rows were found for {len(keys)} keys")


if __name__ == "__main__":
    main()
