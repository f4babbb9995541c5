"""Runs rounds one after another, and says what is needed to understand a failure."""

from __future__ import annotations

import random
import re
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from ledger import StatementId
from nemesis import KINDS, kinds_of_rounds
from torture import Torture

_STATEMENT = re.compile(r"StatementId\(writer=(\d+), number=(\d+)\)")
_MOST_STATEMENTS = 5
_LAST_EVENTS = 30


def run_rounds(
    directory: Path, seed: int, rounds: int, say: Callable[[str], None], kinds: Sequence[str] = tuple(KINDS)
) -> Torture:
    """Runs rounds of these kinds below `directory`, in an order that follows from the seed. Returns the run.

    Raises what a check has found. `say` gets a line for each round, and before the failure all that is known of it.
    """
    wanted = [kind for kind in kinds_of_rounds(rounds * len(KINDS), random.Random(seed)) if kind in kinds][:rounds]
    torture = Torture(directory, seed)
    try:
        with torture:
            for number, kind in enumerate(wanted, start=1):
                _run_round(torture, number, kind, say)
            torture.finish()
    except BaseException as failure:
        _explain(torture, failure, say)
        raise
    return torture


def _run_round(torture: Torture, number: int, kind: str, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    torture.rounds = number
    torture.note(kind)
    # They have waited since the check of the round before. After the last round they go on waiting.
    torture.clients.resume()
    KINDS[kind](torture)
    torture.heal()
    torture.verify()
    torture.struck[kind] += 1
    seconds = time.monotonic() - began
    counts = f"{torture.acknowledged()} statements acknowledged, {torture.checks.seen.reads} reads"
    say(f"round {number}: {kind}, {seconds:.1f} s; {counts}")


def _explain(torture: Torture, failure: BaseException, say: Callable[[str], None]) -> None:
    text = "".join(traceback.format_exception(failure))
    say(f"seed {torture.seed}, round {torture.rounds} failed: {failure}")
    ids = dict.fromkeys(StatementId(int(writer), int(number)) for writer, number in _STATEMENT.findall(text))
    for id in list(ids)[:_MOST_STATEMENTS]:
        say(f"{id}: {torture.ledger.statement(id)}")
        for line in torture.history.lines_of(id):
            say(f"  {line}")
    say("the last strikes, with the same clock:")
    for line in torture.events()[-_LAST_EVENTS:]:
        say(f"  {line}")
    say(f"data, logs and journals are in {torture.directory}")
