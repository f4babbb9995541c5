"""Readers, which check all the time that what they see is consistent."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable

import pyarrow as pa
from flight_sql import statement as described
from journal import History
from ledger import GROUPED, TABLES, Ledger, StatementId
from pyarrow import flight
from volary_answers import DEADLINE_SECONDS, check_allowed

import volary

# Pauses of a reader. One that reads without end would only take the processors from the writers.
_BETWEEN_READS_SECONDS = 0.05
_LONGEST_HOLD_SECONDS = 1.0


class Seen:
    """What was seen by a read that has ended. Later reads must see it, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, set[StatementId]] = {table: set() for table in TABLES}
        self._absent: set[StatementId] = set()
        self.reads = 0

    def of(self, table: str) -> set[StatementId]:
        """Returns the statements that were seen in a table."""
        with self._lock:
            return set(self._seen[table])

    def absent(self) -> set[StatementId]:
        """Returns the statements that have ended without rows."""
        with self._lock:
            return set(self._absent)

    def add(self, table: str, seen: Iterable[StatementId]) -> None:
        """Notes what a read has seen."""
        with self._lock:
            self._seen[table] |= set(seen)
            self.reads += 1

    def forget(self) -> None:
        """Forgets all statements, because their tables were dropped."""
        with self._lock:
            for seen in self._seen.values():
                seen.clear()
            self._absent.clear()

    def settle(self, absent: Iterable[StatementId]) -> None:
        """Notes statements that have ended and of which nothing is there. Nothing may appear later."""
        with self._lock:
            self._absent |= set(absent)


class Checks:
    """The checks of reads, which all readers share."""

    def __init__(self, ledger: Ledger, history: History, seen: Seen) -> None:
        self.ledger = ledger
        self.history = history
        self.seen = seen

    def expected(self, table: str) -> set[StatementId]:
        """Returns the statements that a read which begins now must see."""
        acknowledged = self.history.acknowledged()
        return self.seen.of(table) | {id for id in acknowledged if self.ledger.statement(id).table == table}

    def grouped(self, table: str, read: Callable[[str], list[tuple]]) -> set[StatementId]:
        """Reads all statements of a table with `read`, checks them, and returns them."""
        expected = self.expected(table)
        found = read(GROUPED.format(table=table))
        begun = self.history.begun()
        return self.found(table, expected, found, begun)

    def found(
        self, table: str, expected: set[StatementId], found: Iterable[tuple], begun: set[StatementId]
    ) -> set[StatementId]:
        """Checks rows of `GROUPED`, and returns the statements. They must have all `expected` and only `begun` ones."""
        seen = self.ledger.check(table, found)
        assert expected <= seen, f"rows are missing in {table}: {sorted(expected - seen)}"
        assert seen <= begun, f"rows in {table} were never written: {sorted(seen - begun)}"
        revived = seen & self.seen.absent()
        assert not revived, f"rows of failed statements have appeared in {table}: {sorted(revived)}"
        self.seen.add(table, seen)
        return seen

    def totals(self, table: str, read: Callable[[str], list[tuple]]) -> None:
        """Checks the sum over a whole table."""
        expected = self.expected(table)
        ((rows, keys, total),) = read(f"SELECT count(*), count(DISTINCT k), sum(v) FROM {table} WHERE k >= 0")
        at_least = sum(self.ledger.statement(id).rows for id in expected)
        assert rows == keys, f"{table} has {rows} rows, but only {keys} keys"
        assert rows >= at_least, f"{table} has {rows} rows, of at least {at_least}"
        assert (total or 0) == 0, f"the values of {table} sum up to {total}"

    def point(self, id: StatementId, index: int, read: Callable[[str], list[tuple]]) -> None:
        """Reads one row of an acknowledged statement by its key."""
        statement = self.ledger.statement(id)
        row = statement.row(index)
        found = read(f"SELECT k, w, s, v, t FROM {statement.table} WHERE k = {row[0]}")
        assert found == [row], f"row {index} of {id} in {statement.table}: found {found}, not {row}"

    def whole(self, id: StatementId, read: Callable[[str], list[tuple]]) -> None:
        """Reads all rows of an acknowledged statement."""
        statement = self.ledger.statement(id)
        found = read(
            f"SELECT k, w, s, v, t FROM {statement.table} WHERE w = {id.writer} AND s = {id.number} ORDER BY k"
        )
        assert found == statement.all_rows(), f"the rows of {id} in {statement.table} are others: {found}"


class Reader(threading.Thread):
    """Reads until it is stopped, or until a check fails. `failure` is then what failed."""

    def __init__(self, checks: Checks, uri: str, seed: str) -> None:
        super().__init__(daemon=True)
        self._checks = checks
        self._uri = uri
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._connection: volary.Connection | None = None
        self.failure: BaseException | None = None
        self.reading = threading.Lock()
        """Whoever holds it keeps the reader from reading."""

    def run(self) -> None:
        """Reads in turn in all ways."""
        try:
            while not self._stopping.wait(_BETWEEN_READS_SECONDS):
                with self.reading:
                    self._read()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._reset()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self.join()

    def _read(self) -> None:
        table = self._chance.choice(TABLES)
        read = self._chance.choice([self._grouped, self._grouped, self._totals, self._point, self._held])
        try:
            read(table)
        except (volary.Error, pa.ArrowException, OSError) as error:
            check_allowed(error)
            self._reset()

    def _sql(self, query: str) -> list[tuple]:
        if self._connection is None:
            self._connection = volary.connect(self._uri, timeout=DEADLINE_SECONDS)
        return self._connection.sql(query).rows()

    def _reset(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except (volary.Error, OSError):
                return

    def _grouped(self, table: str) -> None:
        self._checks.grouped(table, self._sql)

    def _totals(self, table: str) -> None:
        self._checks.totals(table, self._sql)

    def _point(self, _: str) -> None:
        acknowledged = self._checks.history.acknowledged()
        if acknowledged:
            id = self._chance.choice(sorted(acknowledged))
            self._checks.point(id, self._chance.randrange(self._checks.ledger.statement(id).rows), self._sql)

    def _held(self, table: str) -> None:
        """Redeems a ticket after other statements were acknowledged: the rows are those of when it was made."""
        options = flight.FlightCallOptions(timeout=DEADLINE_SECONDS)
        with flight.connect(self._uri) as client:
            expected = self._checks.expected(table)
            info = client.get_flight_info(described(GROUPED.format(table=table)), options)
            begun = self._checks.history.begun()
            time.sleep(self._chance.uniform(0, _LONGEST_HOLD_SECONDS))
            found = client.do_get(info.endpoints[0].ticket, options).read_all()
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        self._checks.found(table, expected, rows, begun)
