"""One call of a lookup: a DoExchange in which batches of keys go to the gateway, and their rows come back in order.

Notes are JSON in the `app_metadata` of messages. The first one has the `query_id`. The last message of an answer says
how many keys were `found`, and a refused batch has an `error` instead of rows. Batches are counted from 1, and each
answer has the `sequence` of its batch.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from .._exchange import Exchange, Note
from .._interrupt import cancellable
from ..errors import (
    ERROR_CLASSES,
    Error,
    ErrorCode,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from ._alarm import LONGEST_WAIT_SECONDS, Alarm
from ._answer import Answer
from ._batch import Batch

Interruptibly: TypeAlias = "Callable[[Callable[[], None], Callable[[], None]], None]"
"""Runs a call that blocks in C++. Ctrl-C runs the second function, which ends it."""

_KEY = "key"
_READER = "volary-lookup"
_JOIN_SECONDS = 5.0
# pyarrow sends no batch of 2 GiB. The difference has room for what it puts around the keys.
_MOST_BYTES = (2 << 30) - (1 << 20)
# Time that a write has even if its deadline is nearer, or if its caller gives up. A write usually takes microseconds,
# and the call must be ended if one does not end by itself, which costs all callers more.
_GRACE_SECONDS = 0.25


class Call:
    """A call for keys of one type. Any thread may send keys, one thread at a time. A thread of the call reads the
    answers. An alarm breaks off writes at their deadlines, because they block while the gateway reads nothing.
    """

    def __init__(self, key_type: pa.DataType, interruptibly: Interruptibly) -> None:
        """Creates a call without an exchange: see `use` and `open`."""
        self.query_id = ""
        """The id of the call in logs, errors, `system.queries` and KILL. Empty until the gateway has answered."""
        self.error: BaseException | None = None
        """Why the call has ended."""
        self.last_use = 0
        """For the lookup that keeps the call."""
        self._interruptibly = interruptibly
        self._schema = pa.schema({_KEY: key_type})
        self._process = os.getpid()
        # Guards everything below. No thread holds it while it waits for the network. It is an RLock because a
        # `Condition` takes such a lock again in C, where a KeyboardInterrupt cannot come between.
        self._lock = threading.RLock()
        self._exchange: Exchange | None = None
        self._is_finished = False
        self._thread: threading.Thread | None = None
        self._sent = 0
        self._unanswered: deque[Batch] = deque()
        # The batch whose thread writes now, and those who wait for it.
        self._writing: Batch | None = None
        self._turn = threading.Condition(self._lock)
        self._alarm = Alarm(self._lock, self._break_off_late_write)

    @property
    def has_ended(self) -> bool:
        """Says whether the call takes no keys any more."""
        return self.error is not None or self._is_finished or self._process != os.getpid()

    def use(self, exchange: Exchange) -> None:
        """Takes over an exchange, to which nothing was sent yet. The thread that reads starts after the first batch."""
        self._attach(exchange)

    def open(self, open_exchange: Callable[[], Exchange]) -> None:
        """Opens the exchange in the thread of the call. So nobody has to wait for it longer than until his deadline."""
        self._start(open_exchange)

    def send(self, keys: pa.Array[Any], deadline: float = math.inf) -> Future[Answer]:
        """Sends a batch of keys, and returns the future of its answer. Waits while the gateway reads nothing, until the
        deadline, which is a time of the monotonic clock.

        If the keys could not be sent, the future has the error. If a write is interrupted, or does not end in time, the
        call is ended: otherwise nobody would know whether the gateway counts its batch, and to whom the next answers
        belong.
        """
        batch = pa.record_batch([keys], schema=self._schema)
        if batch.nbytes > _MOST_BYTES:
            raise InvalidArgumentError(
                f"the {len(keys)} keys take {batch.nbytes} bytes, and a batch may have at most {_MOST_BYTES}; "
                "look them up in several batches"
            )
        sending = Batch(len(keys), deadline)
        cancellable(lambda: self._send(sending, batch), lambda: self._give_up(sending))
        return sending.future

    def finish(self) -> None:
        """Says that no keys follow. Those that were sent are still answered."""
        with self._lock:
            exchange = None if self.has_ended else self._exchange
            self._is_finished = True
            self._turn.notify_all()
            if self._writing is not None:
                # A thread that writes must not be disturbed. The gateway ends a call over which nothing more comes.
                return
        if exchange is not None:
            exchange.finish()

    def cancel(self, error: BaseException) -> None:
        """Ends the call at once. What is not answered has this error. May be called more than once."""
        if self._process != os.getpid():
            # A forked process has a copy of the call, but not its thread.
            return
        with self._lock:
            self._end(error)
            exchange = self._exchange
        if exchange is not None:
            exchange.cancel()

    def close(self) -> None:
        """Frees the call, which has ended or is cancelled."""
        if self._process != os.getpid() or (exchange := self._exchange) is None:
            # Nothing ends a thread that is just connecting. It closes what it opens.
            return
        thread = self._thread
        if thread is None:
            exchange.close()
        elif threading.current_thread() is not thread:
            thread.join(_JOIN_SECONDS)

    # Sending

    def _send(self, sending: Batch, batch: pa.RecordBatch) -> None:
        # A KeyboardInterrupt may come between any two calls, so what happened is read from `_writing`.
        try:
            if self._take_turn(sending):
                self._write(sending, batch)
        except Error as error:
            self._fail(sending, error)
        except BaseException:
            self._break_off(sending)
            raise
        finally:
            with self._lock:
                if self._writing is sending:
                    self._writing = None
                    self._turn.notify()

    def _take_turn(self, sending: Batch) -> bool:
        """Waits until no other thread writes, and says whether the batch can be written. If not, its future has the
        reason, or this raises it.
        """
        with self._lock:
            try:
                while not self.has_ended and (self._exchange is None or self._writing is not None):
                    sending.check()
                    left = sending.deadline - time.monotonic()
                    self._turn.wait(min(left, LONGEST_WAIT_SECONDS))
                sending.check()
                if self.has_ended:
                    sending.future.set_exception(self.error or UnavailableError("the call takes no more keys"))
                    return False
                self._begin_write(sending)
            finally:
                if self._writing is not sending:
                    # This thread may have been woken because it is its turn.
                    self._turn.notify()
        return True

    def _begin_write(self, sending: Batch) -> None:
        """Takes note of the batch. The lock must be held."""
        until = max(sending.deadline, time.monotonic() + _GRACE_SECONDS)
        self._alarm.set(until)
        sending.write_until = until
        # From here on, an interrupted thread ends the call.
        self._writing = sending
        self._sent += 1
        sending.number = self._sent
        self._unanswered.append(sending)

    def _write(self, sending: Batch, batch: pa.RecordBatch) -> None:
        exchange = self._exchange
        assert exchange is not None
        if threading.current_thread() is threading.main_thread():
            self._interruptibly(lambda: exchange.write_rows(batch), lambda: self._give_up(sending))
        else:
            exchange.write_rows(batch)
        if self._thread is None:
            self._start(None)

    def _fail(self, sending: Batch, error: Error) -> None:
        """Takes note of an error of sending."""
        with self._lock:
            if self._writing is not sending:
                # It was not sent because of its deadline, or because its task was cancelled.
                sending.future.set_exception(error)
                return
            # The gateway has usually ended the call. The reader gets the same error after earlier answers.
            self._is_finished = True
            self._turn.notify_all()
            if self._unanswered and self._unanswered[-1] is sending:
                self._unanswered.pop().fail(error)
            if self._thread is None:
                self._end(error)
            exchange = self._exchange
        if exchange is not None:
            # The reader comes to an end even if it was pyarrow that refused the batch.
            with suppress(Error):
                exchange.finish()

    def _break_off(self, sending: Batch) -> None:
        """Ends the call if the batch may have been sent in part. The others may send theirs again."""
        with self._lock:
            if self._writing is not sending:
                return
            self._end(UnavailableError("the call has ended because a thread was interrupted while it sent keys"))
            exchange = self._exchange
        if exchange is not None:
            exchange.cancel()

    def _give_up(self, sending: Batch) -> None:
        """Lets the thread that sends this batch return soon. Any other thread may call this."""
        with self._lock:
            sending.is_given_up = True
            sending.write_until = min(sending.write_until, time.monotonic() + _GRACE_SECONDS)
            if self._writing is sending:
                self._alarm.set(sending.write_until)
            self._turn.notify_all()

    def _break_off_late_write(self) -> None:
        """Breaks off a write that has not ended in time. The alarm calls this. The lock must be held."""
        late = self._writing
        if late is None:
            return
        if late.write_until > time.monotonic():
            self._alarm.set(late.write_until)
            return
        if self._unanswered and self._unanswered[-1] is late:
            self._unanswered.pop().fail(late.not_sent())
        self._end(UnavailableError("the call has ended because the gateway took no more keys in time"))
        if self._exchange is not None:
            self._exchange.cancel()

    # Reading

    def _start(self, open_exchange: Callable[[], Exchange] | None) -> None:
        thread = threading.Thread(target=self._read, args=(open_exchange,), name=_READER, daemon=True)
        thread.start()
        self._thread = thread

    def _attach(self, exchange: Exchange) -> None:
        exchange.announce(self._schema)
        with self._lock:
            self._exchange = exchange
            if self.error is not None:
                # The call was cancelled while it was opened.
                exchange.cancel()
            self._turn.notify()

    def _read(self, open_exchange: Callable[[], Exchange] | None) -> None:
        """Reads the answers, and frees the exchange. The thread of the call runs this method."""
        error: BaseException
        try:
            if open_exchange is not None:
                self._attach(open_exchange())
            self._read_answers()
            error = UnavailableError("the gateway has ended the lookup before it has answered all keys")
        except Error as raised:
            error = raised
        except BaseException as raised:
            error = InternalError(f"an answer cannot be read: {raised!r}")
        with self._lock:
            self._end(error)
            exchange = self._exchange
            if exchange is not None and self._writing is not None:
                # pyarrow's writer cannot be closed while another thread writes. The cancellation ends the write.
                exchange.cancel()
                self._turn.wait_for(lambda: self._writing is None, _JOIN_SECONDS)
        if exchange is not None:
            exchange.close()

    def _read_answers(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        opened = exchange.read_annotated()
        if opened is None or "query_id" not in opened[1]:
            raise InternalError("the gateway's answer does not begin with a note; does it have another version?")
        self.query_id = str(opened[1]["query_id"])
        schema = exchange.columns()
        parts: list[pa.RecordBatch] = []
        while (arrived := exchange.read_annotated()) is not None:
            rows, note = arrived
            if rows is not None:
                parts.append(rows)
            if "sequence" not in note or note.get("more"):
                continue
            oldest = self._oldest(note["sequence"])
            answer: Answer | Error
            if "error" in note:
                answer = _refusal(note["error"])
            else:
                answer = Answer(pa.Table.from_batches(parts, schema), oldest.asked, int(note["found"]))
            parts = []
            with self._lock:
                if not self._unanswered or self._unanswered[0] is not oldest:
                    # The call has just ended, and the batch has failed with it.
                    continue
                self._unanswered.popleft()
            if not oldest.future.set_running_or_notify_cancel():
                continue
            if isinstance(answer, Answer):
                oldest.future.set_result(answer)
            else:
                oldest.future.set_exception(answer)

    def _oldest(self, sequence: Any) -> Batch:
        """Returns the oldest batch that is not answered. Raises `InternalError` if another one is answered."""
        with self._lock:
            if not self._unanswered:
                raise InternalError(f"the gateway has answered batch {sequence}, but no batch waits for an answer")
            oldest = self._unanswered[0]
        if sequence != oldest.number:
            raise InternalError(
                f"the gateway has answered batch {sequence}, but it is the turn of batch {oldest.number}"
            )
        return oldest

    def _end(self, error: BaseException) -> None:
        """Lets everything that is not answered fail. The lock must be held."""
        if self.error is None:
            self.error = error
        while self._unanswered:
            self._unanswered.popleft().fail(self.error)
        self._turn.notify_all()
        self._alarm.stop()


def _refusal(error: Note) -> Error:
    kind = ERROR_CLASSES[ErrorCode(error["code"])]
    after_ms = error.get("retry_after_ms")
    return kind(
        str(error["message"]),
        sqlstate=error.get("sqlstate"),
        retry_after=None if after_ms is None else int(after_ms) / 1000,
    )
