"""A client: a process of its own that writes one statement after another, and notes what became of them."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

from adbc_driver_flightsql import dbapi
from ingest_paths import PATHS, Session
from journal import ACKNOWLEDGED, BEGUN, FAILED, LOST, PAUSED, Journal
from ledger import Ledger, StatementId

import volary

# The ADBC driver puts a status of its own before the code of the server.
_CODE = re.compile(r"\[FlightSQL\] ([A-Z_]+): ")
# Pauses of a client that cannot write now. A client that tries without end would only take the processors.
_AFTER_ERROR_SECONDS = 0.05
_IN_PAUSE_SECONDS = 0.02


class Client(NamedTuple):
    """What a client needs to know."""

    uri: str
    directory: Path
    journal: Path
    pause: Path
    """While this file exists, the client begins no statement. It contains the number of the pause."""
    seed: int
    writer: int
    first: int
    """Number of the first statement."""


def run(client: Client) -> None:
    """Writes statements until the process is killed."""
    _redirect_errors(client.journal.with_suffix(".errors"))
    journal = Journal(client.journal)
    ledger = Ledger(client.seed, {name: path.most_pairs for name, path in PATHS.items()})
    session = Session(client.uri, client.directory)
    number = client.first
    last_pause = 0
    while True:
        pause = _pause(client.pause)
        if pause:
            if pause != last_pause:
                journal.note(PAUSED, pause)
                last_pause = pause
            time.sleep(_IN_PAUSE_SECONDS)
            continue
        statement = ledger.statement(StatementId(client.writer, number))
        journal.note(BEGUN, number, f"{statement.path} {statement.table} {statement.rows} rows")
        try:
            PATHS[statement.path].write(session, statement)
        except (volary.Error, dbapi.Error, OSError) as error:
            journal.note(FAILED, number, f"{_code(error)} {statement.path}: {error}")
            session.reset()
            time.sleep(_AFTER_ERROR_SECONDS)
        else:
            journal.note(ACKNOWLEDGED, number)
        number += 1


def _redirect_errors(path: Path) -> None:
    """Lets the process write into a file what drivers print about connections that were lost."""
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def _pause(path: Path) -> int:
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


def _code(error: Exception) -> str:
    if isinstance(error, volary.Error):
        return str(error.code)
    found = _CODE.search(str(error))
    return found.group(1) if found else LOST
