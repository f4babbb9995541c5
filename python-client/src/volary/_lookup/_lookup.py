"""Lookups of keys in one table, for a program that asks often."""

from __future__ import annotations

import contextvars
import math
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from .._channel import Channel
from ..errors import CancelledError, Error, UnavailableError
from ._answer import Answer
from ._call import Call
from ._join import Joiner
from ._keys import Keys, to_array, to_single_key
from ._line import Line
from ._pending import PendingLookup

# Number of calls that a lookup keeps open. Each type of keys needs one.
_MOST_CALLS = 8


class Session(Protocol):
    """The session of a lookup."""

    def new_channel(self) -> Channel:
        """Returns a channel that has its own network connection."""

    def log_in_again(self) -> bool:
        """Logs in with the password, if there is one, and says whether there is."""

    def interruptibly(self, call: Callable[[], None], cancel: Callable[[], None]) -> None:
        """Runs a call that blocks in C++. Ctrl-C runs `cancel`, which ends it."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way of keys to their table."""

    session: Session
    command: bytes
    """The command of the lookup's calls."""
    table: str
    """The name of the table, as SQL writes it."""


@dataclass(slots=True)
class _Calls:
    """The calls of a lookup. The object that the program has is not among what they refer to, so it can be dropped."""

    route: Route
    process: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    line: Line | None = None
    by_type: dict[pa.DataType, Call] = field(default_factory=dict)
    uses: int = 0
    # The calls that take no keys any more, but may still answer earlier ones.
    leaving: list[Call] = field(default_factory=list)
    is_closed: bool = False

    def send(self, keys: pa.Array[Any], deadline: float) -> tuple[Future[Answer], Callable[[], bool]]:
        try:
            with self.lock:
                call = self._call_for(keys.type)
        except Error as error:
            # The gateway cannot be reached. The keys may be sent again, as after any other lost connection.
            failed: Future[Answer] = Future()
            failed.set_exception(error)
            return failed, lambda: True
        return call.send(keys, deadline), lambda: call.has_ended

    def _call_for(self, key_type: pa.DataType) -> Call:
        """Returns an open call for keys of a type. The lock must be held."""
        if self.is_closed:
            raise RuntimeError("the lookup is closed")
        call = self.by_type.get(key_type)
        if call is None or call.has_ended:
            call = self._open(key_type)
        self.uses += 1
        call.last_use = self.uses
        return call

    def _open(self, key_type: pa.DataType) -> Call:
        """Opens a call for keys of a type. Ctrl-C may interrupt this between any two steps."""
        if key_type in self.by_type:
            # Its thread frees it.
            self._let_go(key_type)
            if not self.by_type and self.line is not None:
                # Another network connection may reach a gateway that has restarted sooner.
                ended, self.line = self.line, None
                ended.close()
        if len(self.by_type) >= _MOST_CALLS:
            oldest = min(self.by_type, key=lambda other: self.by_type[other].last_use)
            # What was sent over it is still answered.
            with suppress(Error):
                self._let_go(oldest).finish()
        if self.line is None:
            self.line = Line(self.route.session.new_channel())
        call = self.by_type[key_type] = Call(key_type, self.route.session.interruptibly)
        try:
            # The call belongs to the current span of OpenTelemetry, although another thread opens it.
            context, line = contextvars.copy_context(), self.line
            call.open(lambda: context.run(line.exchange, self.route.command))
        except BaseException:
            call.cancel(UnavailableError("the call has ended because a thread was interrupted while it opened it"))
            raise
        return call

    def _let_go(self, key_type: pa.DataType) -> Call:
        self.leaving = [other for other in (*self.leaving, self.by_type[key_type]) if other.error is None]
        return self.by_type.pop(key_type)

    def end(self, message: str) -> None:
        # A forked process has a copy of the lookup, but not its threads.
        if os.getpid() != self.process:
            return
        with self.lock:
            self.is_closed = True
            calls, line = [*self.by_type.values(), *self.leaving], self.line
            self.by_type, self.leaving, self.line = {}, [], None
        for call in calls:
            call.cancel(CancelledError(message))
        for call in calls:
            call.close()
        if line is not None:
            line.close()


class Lookup:
    """Looks up rows by the shard key of one table. `volary.Connection.lookups` creates it.

        with connection.lookups("birds", columns=["name"]) as lookup:
            table = lookup.get([7, 3, 5])
            row = lookup.one(7)

    All threads may share one lookup. Batches of keys are sent while earlier ones are not answered yet. Each batch sees
    what is committed when it is looked up, like a query. If the connection is lost, the lookup connects again and sends
    again what was not answered.
    """

    def __init__(self, route: Route, *, timeout: float, join_window: float | None) -> None:
        """Creates the lookup. It connects when it is used first."""
        self._calls = _Calls(route)
        self._log_in_again = route.session.log_in_again
        self._timeout = timeout
        self._table = route.table
        self._joiner = None if join_window is None else Joiner(self._submit, join_window)
        self._end = weakref.finalize(self, self._calls.end, "the lookup was closed")

    @property
    def query_ids(self) -> list[str]:
        """The ids of the lookup's open calls in logs, errors, `system.queries` and KILL. Each type of keys has one."""
        with self._calls.lock:
            ids = [call.query_id for call in self._calls.by_type.values()]
        return [query_id for query_id in ids if query_id]

    def get(self, keys: Keys, *, positions: str | None = None, timeout: float | None = None) -> pa.Table:
        """Returns the rows of the keys, in the order of the keys. A key without a row is left out, a key with several
        rows has all of them, and a key that is asked for twice has its rows twice.

        `positions` is the name of an additional first column, which says at which position among `keys`, from 0, the
        key of each row is. A batch may have as many keys as the gateway allows (`gateway.lookup.max_keys`). `timeout`,
        in seconds, replaces that of the lookup. Within this time, the keys are sent again if the connection is lost.
        """
        return self.submit(keys, timeout=timeout).get(positions=positions)

    def submit(self, keys: Keys, *, timeout: float | None = None) -> PendingLookup:
        """Sends keys, and does not wait for their rows. The methods `get` and `contains` of the returned object do.

        So one thread can ask for many batches without waiting for each of them.
        """
        seconds = self._timeout if timeout is None else timeout
        return self._submit(to_array(keys), seconds)

    def contains(self, keys: Keys, *, timeout: float | None = None) -> pa.BooleanArray:
        """Returns whether each key has a row, in the order of the keys."""
        return self.submit(keys, timeout=timeout).contains()

    def one(self, key: Any, *, timeout: float | None = None) -> dict[str, Any] | None:
        """Returns the row of one key as a dictionary, or None if it has none.

        Raises `InvalidArgumentError` if the key has several rows. With a `join_window`, keys that several threads ask
        for at about the same time are sent as one batch.
        """
        array, seconds = to_single_key(key), self._timeout if timeout is None else timeout
        if self._joiner is not None:
            return self._joiner.one(key, array, seconds)
        answer = self._submit(array, seconds).answer()
        return answer.row(key, answer.places().get(0))

    def close(self) -> None:
        """Ends the lookup at once. What is not answered raises `CancelledError`. May be called more than once."""
        self._end()

    def cancel(self) -> None:
        """Does the same as `close`."""
        self.close()

    def __enter__(self) -> Lookup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<volary.Lookup in {self._table}{' (closed)' if self._calls.is_closed else ''}>"

    def _submit(self, keys: pa.Array[Any], seconds: float, until: float = math.inf) -> PendingLookup:
        return PendingLookup(keys, self._calls.send, self._log_in_again, seconds, until=until, lookup=self)
