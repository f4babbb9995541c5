"""Kills, stops, fills, tears and damages nodes while rows are written and read.

Acknowledged rows must be there exactly once, other statements whole or not at all, whatever a reader sees and when.
The harness is in tests/torture. `make torture ROUNDS=500 SEED=7` is a longer run.
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pytest
from journal import ACKNOWLEDGED, BEGUN, History, Journal
from kill_points import GATEWAY, VARIABLE, WORKER, of_node
from ledger import SHARDED, Ledger, StatementId
from nemesis import DECK_SIZE, KINDS
from processes import Processes, run
from readers import Checks, Seen
from run_rounds import run_rounds

import volary

ROUNDS = int(os.environ.get("VOLARY_TORTURE_ROUNDS", "20"))
SEED = int(os.environ.get("VOLARY_TORTURE_SEED", str(random.SystemRandom().randrange(2**32))))


def test_what_was_acknowledged_is_there_once_whatever_happens(tmp_path: Path) -> None:
    print(f"VOLARY_TORTURE_SEED={SEED}")
    torture = run_rounds(tmp_path, SEED, ROUNDS, print)
    assert torture.fired, "no kill point has ended a process"
    assert set(torture.struck) == set(KINDS) or ROUNDS < DECK_SIZE


LEDGER = Ledger(1, {"values": 20})
NUMBERED = (StatementId(1, number) for number in itertools.count())
*IDS, UNKNOWN = itertools.islice((id for id in NUMBERED if LEDGER.statement(id).table == SHARDED), 4)
FIRST, SECOND, THIRD = IDS
ALL = {id: (*id, *LEDGER.statement(id).totals) for id in IDS}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({**ALL, FIRST: None}, "rows are missing"),
        ({**ALL, SECOND: None}, "rows are missing"),
        ({**ALL, THIRD: (*ALL[THIRD][:2], ALL[THIRD][2] // 2, *ALL[THIRD][3:])}, "not whole"),
        ({**ALL, THIRD: (*ALL[THIRD][:2], 2 * ALL[THIRD][2], *ALL[THIRD][3:])}, "or has rows twice"),
        ({**ALL, THIRD: (*ALL[THIRD][:5], 1, *ALL[THIRD][6:])}, "not whole"),
        ({**ALL, UNKNOWN: (*UNKNOWN, *LEDGER.statement(UNKNOWN).totals)}, "were never written"),
        (ALL, ""),
    ],
    ids=["acknowledged", "seen before", "half", "twice", "other values", "never written", "nothing wrong"],
)
def test_a_reader_finds_what_is_wrong(
    tmp_path: Path, seen: dict[StatementId, tuple[int, ...] | None], message: str
) -> None:
    journal = Journal(tmp_path / "writer1.journal")
    for id in IDS:
        journal.note(BEGUN, id.number)
    journal.note(ACKNOWLEDGED, FIRST.number)
    checks = Checks(LEDGER, History(tmp_path, [1]), Seen())
    checks.seen.add(SHARDED, [SECOND])
    rows = [row for row in seen.values() if row is not None]
    if message:
        with pytest.raises(AssertionError, match=message):
            checks.grouped(SHARDED, lambda _: rows)
    else:
        assert checks.grouped(SHARDED, lambda _: rows) == set(IDS)
        checks.seen.settle([THIRD])
        with pytest.raises(AssertionError, match="rows of failed statements have appeared"):
            checks.grouped(SHARDED, lambda _: rows)


def insert_without_end(processes: Processes) -> None:
    for key in itertools.count():
        processes.sql(f"INSERT INTO nests VALUES ({key})")


@pytest.mark.server
@pytest.mark.parametrize("role", [GATEWAY, WORKER])
def test_a_node_ends_at_the_kill_point_that_is_named(tmp_path: Path, role: str) -> None:
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
        node, point = (worker, "log.after_sync") if role == WORKER else (processes.gateway, "catalog.after_commit")
        assert point in of_node(role)
        node.kill()
        node.variables = {VARIABLE: f"{point}:2"}
        node.start()
        with pytest.raises(volary.UnavailableError):
            insert_without_end(processes)
        assert node.running().await_end() == -6
        assert "kill point" in node.running().log()
        node.variables = {}
        node.start()


def test_a_kill_point_without_a_pass_is_refused() -> None:
    ended = run("volary", "worker", settings={VARIABLE: "log.before_sync"})
    assert ended.code == 2
    assert f"volary: INVALID_ARGUMENT: variable {VARIABLE}:" in ended.err
    assert "log.before_sync:3" in ended.err
