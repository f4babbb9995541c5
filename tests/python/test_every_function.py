"""Calls every SQL function in unusual ways: with large, negative, empty and nested values, and with wrong types.

No call may end a node, whose memory is limited to one gibibyte. At its timeout, a call must end: the client gets an
error, and then the node stops computing. Another `VOLARY_FUNCTION_SEED` makes other calls. With
`VOLARY_FUNCTION_SECONDS`, calls are made for this time instead of a fixed number of calls. Only then, the test also
checks how late calls end, because that needs an otherwise idle machine.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from processes import PATIENCE_SECONDS, Node, Processes, until

import volary

pytestmark = pytest.mark.server

SECONDS = float(os.environ.get("VOLARY_FUNCTION_SECONDS", "0"))
CALLS = 4000
"""Number of calls that each client makes if no time is given."""
SEED = os.environ.get("VOLARY_FUNCTION_SEED", "1")
CLIENTS = 4
TIMEOUT_SECONDS = 1
LATE_SECONDS = 1
"""Maximum time by which a statement may end after its timeout, in addition to the delays of the machine."""
LOOK_SECONDS = 1
IDLE_SHARE = 0.2
"""Share of a processor. A node that uses less of it between two checks is idle."""
MEMORY_LIMIT, MAX_VALUE = "128MiB", "32MiB"
# A node may use its limit, plus 512 MiB for memory that no operator holds. For short moments, a node uses more than
# that.
MOST_MEMORY = 1 << 30

_NUMBERS = ["0", "1", "-1", "7", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808", "1e308"]
_NUMBERS += ["'NaN'::DOUBLE", "0.1", "-0.0", "1::TINYINT", "255::SMALLINT", "12345678901234567890.12::DECIMAL(38, 2)"]
_TEXTS = ["''", "'x'", "'äöü€𝄞'", "'%s'", "'(a+)+$'", "'2024-02-30'", "'%Y-%m-%d'", "'base64'", "'day'", "'+25:00'"]
_TEXTS += ["repeat('ab', 100000)", "repeat('é', 30000)", '\'{"a": [1, {"b": null}]}\'', "'\\x00'", "'sha256'", "','"]
_TIMES = ["DATE '0001-01-01'", "DATE '9999-12-31'", "TIMESTAMP '2024-02-29 23:59:59.999999999'", "TIME '23:59:59'"]
_TIMES += ["INTERVAL '1 day'", "INTERVAL '-178000000 years'", "INTERVAL '9223372036 seconds'", "now()"]
_OTHERS = [
    "NULL",
    "true",
    "false",
    "x'00ff'",
    "[]",
    "[1, NULL, 3]",
    "['a', 'b']",
    "[[1], [2, 3], []]",
    "range(0, 100000)",
]
_OTHERS += [
    "{'a': 1, 'b': 'x'}",
    "MAP {'a': 1}",
    "arrow_cast('x', 'Dictionary(Int32, Utf8)')",
    "array_repeat('x', 10000)",
]
_COLUMNS = ["k", "v", "k * 1000000007", "-k", "v || v", "[k, k]"]
_MOST_ARGUMENTS = 5
_KEPT = 20
"""Number of the longest statements that each client remembers."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A gateway and a worker with little memory, and a table."""
    settings = {
        "VOLARY_GATEWAY__MEMORY__LIMIT": MEMORY_LIMIT,
        "VOLARY_GATEWAY__QUERY__MAX_VALUE": MAX_VALUE,
        "VOLARY_WORKER__MEMORY__LIMIT": MEMORY_LIMIT,
        "VOLARY_WORKER__EXECUTION__MAX_VALUE": MAX_VALUE,
        # jemalloc also returns unused addresses to the system.
        "_RJEM_MALLOC_CONF": "retain:false",
    }
    with Processes(tmp_path_factory.mktemp("every_function"), settings) as processes:
        for node in (processes.gateway, processes.add_worker()):
            node.running().limit_growth(MOST_MEMORY)
        processes.sql("CREATE TABLE nests (k BIGINT, v VARCHAR) WITH (shard_key = 'k', shards = 2)")
        processes.sql("INSERT INTO nests SELECT value, 'egg ' || value FROM generate_series(-500, 500)")
        yield processes


@dataclass(frozen=True)
class Functions:
    """The functions by kind."""

    scalar: list[str]
    aggregate: list[str]
    window: list[str]
    table: list[str]

    def call(self, chosen: random.Random) -> str:
        """Returns a statement that calls one or two functions."""
        kind = chosen.choices(["scalar", "aggregate", "window", "table"], [12, 4, 2, 1])[0]
        on_worker = chosen.random() < 0.5
        arguments = self._arguments(chosen, on_worker)
        source = " FROM nests WHERE k <> 0" if on_worker else ""
        match kind:
            case "scalar":
                return f"SELECT {chosen.choice(self.scalar)}({arguments}) AS made{source}"
            case "aggregate":
                grouped = " GROUP BY k % 3" if on_worker and chosen.random() < 0.5 else ""
                return f"SELECT {chosen.choice(self.aggregate)}({arguments}) AS made{source}{grouped}"
            case "window":
                over = f"OVER (ORDER BY {'k' if on_worker else '1'})"
                return f"SELECT {chosen.choice(self.window + self.aggregate)}({arguments}) {over} AS made{source}"
            case _:
                constants = self._arguments(chosen, on_worker=False)
                return f"SELECT count(*) FROM {chosen.choice(self.table)}({constants})"

    def _arguments(self, chosen: random.Random, on_worker: bool) -> str:
        known = [*_NUMBERS, *_TEXTS, *_TIMES, *_OTHERS]
        # Each kind is chosen equally often, although some kinds have more values. On a worker, columns are chosen twice
        # as often.
        kinds = [_NUMBERS, _TEXTS, _TIMES, _OTHERS, known, *([_COLUMNS] * 2 if on_worker else [])]
        count = chosen.choices(range(_MOST_ARGUMENTS + 1), [1, 5, 6, 4, 2, 1])[0]
        made = [chosen.choice(chosen.choice(kinds)) for _ in range(count)]
        if made and chosen.random() < 0.2:
            made[0] = f"{chosen.choice(self.scalar)}({made[0]})"
        return ", ".join(made)


@pytest.fixture(scope="module")
def functions(small: Processes) -> Functions:
    listed = small.sql("SELECT DISTINCT routine_name, function_type FROM information_schema.routines")
    kinds = ("SCALAR", "AGGREGATE", "WINDOW", "TABLE")
    by_kind = {kind: sorted(name for name, of in listed if of == kind) for kind in kinds}
    assert all(by_kind.values()), by_kind
    assert "generate_series" in by_kind["TABLE"]
    # unnest is a table function only in FROM, and is not listed as a function.
    tables = [*by_kind["TABLE"], "unnest"]
    return Functions(by_kind["SCALAR"], by_kind["AGGREGATE"], by_kind["WINDOW"], tables)


class Statement(NamedTuple):
    """A statement that was run, with the times of its start and its end."""

    text: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Pace:
    """Measures a trivial statement all the time, because a slow machine delays all other statements as much."""

    def __init__(self) -> None:
        self._taken: list[Statement] = []

    @contextmanager
    def measured(self, small: Processes) -> Iterator[None]:
        over = threading.Event()

        def again() -> None:
            with small.connect() as connection:
                while not over.is_set():
                    began = time.monotonic()
                    connection.sql("SELECT 1").rows()
                    self._taken.append(Statement("SELECT 1", began, time.monotonic()))

        with ThreadPoolExecutor(1) as thread:
            measuring = thread.submit(again)
            try:
                yield
            finally:
                over.set()
            measuring.result()

    def beside(self, statement: Statement) -> float:
        """Returns the longest time that the trivial statement took while a statement ran."""
        beside = (it for it in self._taken if it.began < statement.ended and it.ended > statement.began)
        return max((it.seconds for it in beside), default=0.0)


def processor_seconds(node: Node) -> float:
    """Returns the processor time that the node's process has used."""
    stat = Path(f"/proc/{node.running()._process.pid}/stat").read_text()
    # The program's name comes before these fields and may contain spaces.
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def await_idle(nodes: tuple[Node, ...]) -> None:
    """Waits until no node works, which shows that work ends with its call."""
    looks: list[tuple[float, list[float]]] = []

    def do_nothing() -> bool:
        now = time.monotonic()
        if not looks or now - looks[-1][0] >= LOOK_SECONDS:
            looks.append((now, [processor_seconds(node) for node in nodes]))
        last = [
            (then - before, [after - had for had, after in zip(first, second, strict=True)])
            for (before, first), (then, second) in pairwise(looks[-3:])
        ]
        return len(last) == 2 and all(used < IDLE_SHARE * time_between for time_between, all_ in last for used in all_)

    until(do_nothing, f"no node works any more: {[node.name for node in nodes]}")


def test_no_call_ends_a_node_or_keeps_it_longer_than_its_timeout(small, functions):
    end = time.monotonic() + SECONDS
    latest: dict[int, str] = {}
    nodes = (small.gateway, *small.workers)
    pace = Pace()

    def calls(client: int) -> tuple[int, int, list[Statement]]:
        chosen = random.Random(f"{SEED} {client}")
        answered, refused, longest = 0, 0, []
        with small.connect() as connection:

            def is_answered() -> bool:
                try:
                    for _ in connection.sql(latest[client]).batches():
                        pass
                except volary.UnavailableError as error:
                    tails = [node.running().tail() for node in nodes if not node.running().is_alive()]
                    raise AssertionError(f"seed {SEED}: {latest}\n{tails}") from error
                except (volary.Error, pa.ArrowException) as error:
                    if "panicked" in str(error):
                        raise AssertionError(f"seed {SEED}: {latest[client]}") from error
                    return False
                return True

            connection.sql(f"SET statement_timeout = '{TIMEOUT_SECONDS}s'")
            while time.monotonic() < end if SECONDS else answered + refused < CALLS:
                latest[client] = functions.call(chosen)
                began = time.monotonic()
                if is_answered():
                    answered += 1
                else:
                    refused += 1
                longest.append(Statement(latest[client], began, time.monotonic()))
                # Only statements that end late and the longest one matter.
                longest = sorted(longest, key=lambda it: it.seconds)[-_KEPT:]
        return answered, refused, longest

    with pace.measured(small) if SECONDS else nullcontext(), ThreadPoolExecutor(CLIENTS) as clients:
        done = list(clients.map(calls, range(CLIENTS)))
    shown = [(answered, refused, longest[-1].seconds, longest[-1].text) for answered, refused, longest in done]
    print(f"seed {SEED}:", *shown, sep="\n  ")
    for node in nodes:
        assert node.running().is_alive(), f"seed {SEED}: {node.name} has ended\n{node.running().tail()}"
        peak = node.running().peak_memory_bytes()
        assert peak < MOST_MEMORY, f"seed {SEED}: {node.name} had {peak >> 20} MiB"
        panic = next((line for line in node.running().log().splitlines() if "panicked" in line), None)
        assert panic is None, f"seed {SEED}: {node.name}: {panic}"
    await_idle(nodes)
    assert small.sql("SELECT count(*) FROM nests WHERE v <> ''") == [(1001,)]
    assert sum(answered for answered, *_ in done) > 0
    longest = max((it for *_, longest in done for it in longest), key=lambda it: it.seconds)
    assert longest.seconds < TIMEOUT_SECONDS + PATIENCE_SECONDS, f"seed {SEED}: {longest.seconds:.1f} s: {longest.text}"
    if not SECONDS:
        return
    late = [
        f"{it.seconds:.2f} s, and SELECT 1 beside it {pace.beside(it):.2f} s: {it.text}"
        for *_, longest in done
        for it in longest
        if it.seconds - pace.beside(it) >= TIMEOUT_SECONDS + LATE_SECONDS
    ]
    assert late == [], f"seed {SEED}"
