"""One call of a lookup: a DoExchange in which batches of keys go to the gateway, and their rows come back in order.

Notes are JSON in the `app_metadata` of messages. The first one has the `query_id`. The last message of an answer says
how many keys were `found`, and a refused batch has an `error` instead of rows.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .._exchange import Exchange, Note
from ..errors import ERROR_CLASSES, Error, ErrorCode, InternalError, UnavailableError
from ._answer import Answer

_KEY = "key"
_READER = "volary-lookup"
_JOIN_SECONDS = 5.0


@dataclass(slots=True)
class _Pending:
    future: Future[Answer]
    asked: int


class Call:
    """A call for keys of one type. Any thread may send keys. A thread of the call reads the answers."""

    def __init__(self, exchange: Exchange, key_type: pa.DataType) -> None:
        """Takes over `exchange`, to which nothing was sent yet."""
        self.query_id = ""
        """The id of the call in logs, errors, `system.queries` and KILL. Empty until the gateway has answered."""
        self.error: BaseException | None = None
        """Why the call has ended."""
        self._exchange = exchange
        self._schema = pa.schema({_KEY: key_type})
        # Guards the order of the batches, and of those that are not answered.
        self._lock = threading.Lock()
        self._unanswered: deque[_Pending] = deque()
        self._is_announced = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._read, name=_READER, daemon=True)

    @property
    def has_ended(self) -> bool:
        """Says whether the call takes no keys any more."""
        return self.error is not None or self._process != os.getpid()

    def send(self, keys: pa.Array[Any]) -> Future[Answer]:
        """Sends a batch of keys, and returns the future of its answer. Waits while the gateway reads nothing.

        If the call has ended, the future has the error.
        """
        batch = pa.record_batch([keys], schema=self._schema)
        future: Future[Answer] = Future()
        with self._lock:
            if self.error is not None:
                future.set_exception(self.error)
                return future
            self._unanswered.append(_Pending(future, len(keys)))
            try:
                if not self._is_announced:
                    self._is_announced = True
                    self._exchange.announce(self._schema)
                    self._exchange.write_rows(batch)
                    self._thread.start()
                else:
                    self._exchange.write_rows(batch)
            except Error as error:
                # The gateway has ended the call. If the reader runs, it gets the same error after earlier answers.
                if not self._thread.is_alive():
                    self._end(error)
        return future

    def finish(self) -> None:
        """Says that no keys follow. Those that were sent are still answered."""
        with self._lock:
            if self._is_announced and self.error is None:
                self._exchange.finish()

    def cancel(self, error: BaseException) -> None:
        """Ends the call at once. What is not answered has this error. May be called more than once."""
        if self._process != os.getpid():
            # A forked process has a copy of the call, but not its thread.
            return
        self._exchange.cancel()
        with self._lock:
            self._end(error)

    def close(self) -> None:
        """Frees the call, which has ended or is cancelled."""
        if self._process == os.getpid():
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self._thread.join(_JOIN_SECONDS)
            self._exchange.close()

    def _read(self) -> None:
        """Reads the answers. The thread of the call runs this method."""
        error: BaseException
        try:
            self._read_answers()
            error = UnavailableError("the gateway has ended the lookup before it has answered all keys")
        except Error as raised:
            error = raised
        except BaseException as raised:
            error = InternalError(f"an answer cannot be read: {raised!r}")
        with self._lock:
            self._end(error)

    def _read_answers(self) -> None:
        opened = self._exchange.read_annotated()
        if opened is None or "query_id" not in opened[1]:
            raise InternalError("the gateway's answer does not begin with a note; does it have another version?")
        self.query_id = str(opened[1]["query_id"])
        schema = self._exchange.columns()
        parts: list[pa.RecordBatch] = []
        while (arrived := self._exchange.read_annotated()) is not None:
            rows, note = arrived
            if rows is not None:
                parts.append(rows)
            if "sequence" not in note or note.get("more"):
                continue
            pending = self._unanswered.popleft()
            if not pending.future.set_running_or_notify_cancel():
                parts = []
                continue
            if "error" in note:
                pending.future.set_exception(_refusal(note["error"]))
            else:
                table = pa.Table.from_batches(parts, schema)
                pending.future.set_result(Answer(table, pending.asked, int(note["found"])))
            parts = []

    def _end(self, error: BaseException) -> None:
        """Lets everything that is not answered fail. The lock must be held."""
        if self.error is None:
            self.error = error
        while self._unanswered:
            future = self._unanswered.popleft().future
            if future.set_running_or_notify_cancel():
                future.set_exception(self.error)


def _refusal(error: Note) -> Error:
    kind = ERROR_CLASSES[ErrorCode(error["code"])]
    after_ms = error.get("retry_after_ms")
    return kind(
        str(error["message"]),
        sqlstate=error.get("sqlstate"),
        retry_after=None if after_ms is None else int(after_ms) / 1000,
    )
