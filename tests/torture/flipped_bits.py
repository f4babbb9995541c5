"""Flips bits of durable files, in a cluster of its own. The answer is an error that says so, or all rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import log_files
import volary_answers
from ingest_paths import PATHS, Session
from ledger import CREATE, GROUPED, TABLES, Ledger, StatementId
from processes import Node, Processes
from volary_answers import Damaged

# The larger half of the statements make segments at once, and a flush makes segments of the others.
SETTINGS = {
    "VOLARY_WORKER__STORAGE__LOG": "256KiB",
    "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "16KiB",
}
STATEMENTS = 40
TRIALS = 3


def flip_bits(directory: Path, seed: str, note: Callable[[str], None]) -> None:
    """Writes rows, and then flips a bit of the stopped cluster, several times. `note` gets what was done."""
    chance = random.Random(seed)
    ledger = Ledger(chance.getrandbits(32), {name: path.most_pairs for name, path in PATHS.items()})
    statements = {ledger.statement(StatementId(1, number)) for number in range(STATEMENTS)}
    directory.mkdir()
    with Processes(directory, SETTINGS) as processes:
        for _ in range(2):
            processes.add_worker()
        for create in CREATE:
            processes.sql(create)
        session = Session(processes.gateway.uri, directory)
        for statement in sorted(statements, key=lambda statement: statement.id):
            PATHS[statement.path].write(session, statement)
        session.reset()
        nodes = [processes.gateway, *processes.workers]
        for node in nodes:
            node.kill()
        whole = directory / "whole"
        for node in nodes:
            shutil.copytree(node.data_dir, whole / node.name)
        for trial in range(TRIALS + 1):
            for node in nodes:
                shutil.rmtree(node.data_dir)
                shutil.copytree(whole / node.name, node.data_dir)
            # The last trial shows that a whole cluster has all rows, so that the others mean something.
            is_damaged = trial < TRIALS
            what = _flip(nodes, chance) if is_damaged else "nothing"
            outcome = _outcome(processes, nodes, ledger, {statement.id for statement in statements})
            note(f"flipped {what}: {outcome}")
            assert is_damaged or outcome == "all rows", f"a cluster without damage answers: {outcome}"
            for node in nodes:
                if node.running().is_alive():
                    node.kill()


def _outcome(processes: Processes, nodes: list[Node], ledger: Ledger, expected: set[StatementId]) -> str:
    outcomes = set()
    for node in nodes:
        try:
            node.start()
        except AssertionError:
            if node.running().is_alive():
                raise
            code, line = node.running().await_failure()
            assert code == 1, f"{node.name} ended with {code}: {line}"
            assert line.startswith("volary: DATA_LOSS: "), f"{node.name} was refused for another reason: {line}"
            return f"{node.name} does not start: {line[:200]}"
    for table in TABLES:
        wanted = {id for id in expected if ledger.statement(id).table == table}
        try:
            found = volary_answers.rows(processes, GROUPED.format(table=table))
            seen = ledger.check(table, found)
            assert seen == wanted, f"{table} lacks {sorted(wanted - seen)} and has {sorted(seen - wanted)}"
            found = volary_answers.rows(processes, f"SELECT k, w, s, v, t FROM {table} WHERE k >= 0 ORDER BY k")
            rows = sorted(row for id in wanted for row in ledger.statement(id).all_rows())
            assert found == rows, f"{table} has other rows than were written"
        except Damaged as error:
            outcomes.add(f"{table}: {str(error)[:200]}")
    return ", ".join(sorted(outcomes)) or "all rows"


def _flip(nodes: list[Node], chance: random.Random) -> str:
    gateway, *workers = nodes
    worker = chance.choice(workers)
    logs = [(file.path, file) for file in log_files.read(worker.data_dir)]
    segments = sorted(worker.data_dir.glob("tables/**/*.parquet"))
    kind = chance.choices(["log", "segment", "store", "catalog"], [5, 3, 1, 1])[0]
    if kind == "log" and logs:
        path, file = chance.choice(logs)
        header = range(log_files.FILE_HEADER_BYTES)
        frames = [range(frame.start, frame.end) for frame in file.frames]
        position = chance.choice(chance.choice([header, *frames * 10]))
    elif kind in ("log", "segment") and segments:
        path = chance.choice(segments)
        position = chance.randrange(path.stat().st_size)
    else:
        path = worker.data_dir / "store.redb" if kind != "catalog" else gateway.data_dir / "catalog.redb"
        position = chance.randrange(path.stat().st_size)
    content = bytearray(path.read_bytes())
    bit = chance.randrange(8)
    content[position] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {position} of {path}"
