"""The batches of a stream that are accepted and not yet answered, in order.

The program's threads add batches and wait here. One thread takes batches from here to send them, and another brings the
answers. A batch stays until it is answered, so it can be sent again after a lost connection.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from ..errors import AlreadyExistsError, DeadlineExceededError, Error, InternalError, NotFoundError, with_message
from ._acknowledgement import Acknowledgement, PendingAcknowledgement
from ._failures import Failures, again
from ._rows import Rows
from ._waiter import Waiter

# Used until the gateway has named its own window.
_DEFAULT_BYTES = 8 << 20


@dataclass(slots=True)
class Batch:
    """One batch. The gateway answers it with its number."""

    sequence: int
    rows: Rows
    future: PendingAcknowledgement = field(default_factory=PendingAcknowledgement)


class Window:
    """The state of a stream. All threads may use it.

    A future is completed without the lock, because it may run code of the program. Only one thread completes futures
    at a time: the one that reads answers while a call is open, and the sender between the calls. So they complete in
    order.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        # The garbage collector cancels a stream that was forgotten. It does so in any thread, even in one that holds
        # the lock, so a thread may take it twice. The lock itself must be entered, and not a condition, in whose Python
        # code Ctrl-C could come just after the lock is taken.
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._given_limit = limit_bytes
        self._limit = limit_bytes or _DEFAULT_BYTES
        self._pending: deque[Batch] = deque()
        self._sent = 0
        self._bytes = 0
        # Writers get room in turn. Otherwise, small batches would keep out a large one.
        self._queue: deque[object] = deque()
        self._last_removed = 0
        self._last_answered = 0
        self._last_committed = 0
        self._last_decided = 0
        self._is_open = False
        self._is_closing = False
        self._has_ended = False
        self._error: BaseException | None = None
        self._failures = Failures()
        self._completing_thread: int | None = None

    # For the program's threads

    @property
    def last_answered(self) -> int:
        """The last batch that is committed, or that was refused and left out."""
        return self._last_answered

    @property
    def error(self) -> BaseException | None:
        """The error that has ended the stream."""
        return self._error

    def untaken_error(self) -> BaseException | None:
        """Returns an error that the program has got from no future and no other method of the stream."""
        with self._lock:
            return self._failures.untaken(self._error)

    def wait_opened(self, waiter: Waiter) -> None:
        """Waits until the gateway has answered for the first time. Raises the error if there is no stream."""
        with self._lock:
            while not self._is_open:
                self._check()
                if waiter.is_late:
                    raise DeadlineExceededError(f"the gateway has not opened the stream within {waiter.seconds:g} s")
                self._wait(self._progress, waiter)

    def add(self, rows: Rows, waiter: Waiter) -> PendingAcknowledgement:
        """Accepts a batch. Waits for room if there is none."""
        with self._lock:
            self._check()
            if self._queue or not self._has_room(rows):
                self._wait_for_room(rows, waiter)
            batch = Batch(self._last_accepted + 1, rows)
            # Ctrl-C may come between any two lines of the main thread, so one line changes what must stay consistent.
            self._work.notify()
            self._pending.append(batch)
            self._bytes += rows.size_bytes
            return batch.future

    def wait_answered(self, waiter: Waiter) -> None:
        """Waits until all batches that were accepted so far are answered. Raises the error of a stream that has ended
        before.
        """
        with self._lock:
            last = self._last_accepted
            while self._last_answered < last:
                self._check(may_close=True)
                if waiter.is_late:
                    raise DeadlineExceededError(
                        f"{last - self._last_answered} batches are not acknowledged after {waiter.seconds:g} s; "
                        "they stay in the stream: flush again, or give it a longer timeout"
                    )
                self._wait(self._progress, waiter)

    def close(self) -> None:
        """Accepts no more batches. The stream ends when all are answered."""
        with self._lock:
            self._is_closing = True
            self._work.notify_all()
            self._room.notify_all()

    def wait_ended(self, waiter: Waiter) -> bool:
        """Waits until the stream has ended, and says whether it has."""
        with self._lock:
            while not self._has_ended and not waiter.is_late:
                self._wait(self._progress, waiter)
            return self._has_ended

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error, unless another error has ended it already."""
        with self._lock:
            self._error = self._error or error
            self._work.notify_all()
            self._room.notify_all()
            self._progress.notify_all()

    # For the sender

    @property
    def pending(self) -> int:
        """The number of batches without an answer."""
        return len(self._pending)

    @property
    def is_waiting_for_answers(self) -> bool:
        """Says whether batches were sent and are not answered."""
        return self._sent > 0

    @property
    def next_to_answer(self) -> int:
        """The number of the first batch without an answer, or of the next batch."""
        with self._lock:
            return self._last_removed + 1

    def resume(self, last_sequence: int, limit_bytes: int | None) -> None:
        """Begins a call before which the gateway has decided all batches up to `last_sequence`.

        All batches without an answer are sent in this call. Of those that are decided, the gateway compares the rows
        with what it knows: they may have been refused, or another stream of the same producer has written them.
        Raises an error if the gateway knows of batches that this stream has not sent, or has forgotten some.
        """
        with self._lock:
            self._set_limit(limit_bytes)
            self._sent = 0
            self._last_decided = last_sequence
            if not self._is_open:
                self._is_open = True
                self._last_removed = self._last_answered = self._last_committed = last_sequence
                self._progress.notify_all()
        self._check_sequence(last_sequence)

    def settle(self, last_sequence: int) -> None:
        """Acknowledges the batches up to `last_sequence`, which are committed."""
        self._check_sequence(last_sequence)
        while self._pending and (batch := self._pending[0]).sequence <= last_sequence:
            self.answer(batch.sequence, Acknowledgement(batch.sequence, batch.rows.count, is_duplicate=True))

    def left_out(self) -> range:
        """Returns the numbers of refused batches that a call must fill with batches without rows, before others.

        The gateway forgets a refusal if no later batch has committed, and lets no number be left out.
        """
        with self._lock:
            return range(self._last_decided + 1, self._pending[0].sequence) if self._pending else range(0)

    def next_schema(self) -> pa.Schema:
        """Returns the columns of the first batch, which must be there."""
        with self._lock:
            return self._pending[0].rows.schema

    def wait_for_work(self) -> bool:
        """Waits until a batch must be sent. Returns False if the stream has ended."""
        with self._lock:
            while not self._pending and not self._is_closing and self._error is None:
                self._work.wait()
            return bool(self._pending) and self._error is None

    def next(self, schema: pa.Schema, has_ended: threading.Event) -> Batch | None:
        """Waits for the next batch of a call, whose batches have one schema.

        Returns None if there is none: the call has ended, the next batch needs another call, or the stream is closing
        or has failed.
        """
        with self._lock:
            while not has_ended.is_set() and self._error is None:
                if self._sent < len(self._pending):
                    batch = self._pending[self._sent]
                    if not batch.rows.schema.equals(schema):
                        return None
                    # Its answer may come before the sender runs again.
                    self._sent += 1
                    return batch
                if self._is_closing:
                    return None
                self._work.wait()
            return None

    def wait_failed(self, seconds: float) -> None:
        """Waits, but not longer than until the stream fails."""
        with self._lock:
            self._work.wait_for(lambda: self._error is not None, seconds)

    def wake_sender(self) -> None:
        """Lets `next` look again whether its call has ended."""
        with self._lock:
            self._work.notify_all()

    def end(self, error: BaseException | None) -> None:
        """Ends the stream. All batches without an answer fail, with the error that has ended the stream first."""
        with self._lock:
            self._error = self._error or error
            self._is_closing = True
            self._last_removed = self._last_accepted
            pending, self._pending = self._pending, deque()
            self._bytes = 0
            self._room.notify_all()
            self._failures.add_of_end(batch.future for batch in pending)
            self._completing_thread = threading.get_ident()
        for batch in pending:
            batch.future.set_exception(_unanswered(batch.sequence, self._error))
        with self._lock:
            self._completing_thread = None
            self._has_ended = True
            self._progress.notify_all()

    # For the thread that reads the answers

    def answer(self, sequence: int, answer: Acknowledgement | Error, limit_bytes: int | None = None) -> None:
        """Completes the first batch. Does nothing if the batch of this number has been answered before.

        Raises `InternalError` if the number is that of a later batch.
        """
        with self._lock:
            if sequence <= self._last_answered:
                return
            if not self._pending or self._pending[0].sequence != sequence:
                expected = self._pending[0].sequence if self._pending else "none"
                raise InternalError(f"the gateway has answered batch {sequence}, and the next to answer is {expected}")
            batch = self._pending.popleft()
            self._last_removed = sequence
            self._sent = max(0, self._sent - 1)
            self._bytes = self._bytes - batch.rows.size_bytes if self._pending else 0
            self._set_limit(limit_bytes)
            self._room.notify_all()
            goes_on = self._error is None
            if not goes_on:
                self._failures.add_of_end([batch.future])
            elif isinstance(answer, Error):
                self._failures.add_refused(batch.future)
            self._completing_thread = threading.get_ident()
        if isinstance(answer, Acknowledgement):
            batch.future.set_result(answer)
        else:
            batch.future.set_exception(answer)
        with self._lock:
            self._completing_thread = None
            if isinstance(answer, Acknowledgement):
                self._last_committed = sequence
            if isinstance(answer, Acknowledgement) or goes_on:
                self._last_answered = sequence
            self._progress.notify_all()

    @property
    def _last_accepted(self) -> int:
        return self._pending[-1].sequence if self._pending else self._last_removed

    def _check_sequence(self, last_sequence: int) -> None:
        if last_sequence > self._last_accepted:
            raise AlreadyExistsError(
                f"the gateway has batches up to {last_sequence} of this producer, and this stream has written up to "
                f"{self._last_accepted}: another stream uses the same producer; give each stream its own"
            )
        if last_sequence < self._last_committed:
            raise NotFoundError(
                f"the gateway knows batches up to {last_sequence} of this producer, but has acknowledged up to "
                f"{self._last_committed}: it has forgotten the producer, or the table is another one; open a new stream"
            )

    def _set_limit(self, limit_bytes: int | None) -> None:
        # A limit of the program is one of its memory, which does not depend on the gateway.
        if self._given_limit is None and limit_bytes is not None:
            self._limit = max(1, limit_bytes)

    def _has_room(self, rows: Rows) -> bool:
        # A batch that is larger than the window gets it alone.
        return not self._pending or self._bytes + rows.size_bytes <= self._limit

    def _wait_for_room(self, rows: Rows, waiter: Waiter) -> None:
        turn = object()
        try:
            self._queue.append(turn)
            while self._queue[0] is not turn or not self._has_room(rows):
                if waiter.is_late:
                    raise DeadlineExceededError(
                        f"the batch was not accepted: the window of {self._limit} bytes is full, and no answer of the "
                        f"gateway has made room for {rows.size_bytes} bytes within {waiter.seconds:g} s; write it "
                        "again, or give the stream a longer timeout"
                    )
                self._wait(self._room, waiter)
                self._check()
        finally:
            # Ctrl-C may have come before the first line.
            if turn in self._queue:
                self._queue.remove(turn)
            self._room.notify_all()

    def _wait(self, condition: threading.Condition, waiter: Waiter) -> None:
        if self._completing_thread == threading.get_ident():
            raise RuntimeError("a callback of a future must not wait for its stream, which waits for the callback")
        waiter.wait(condition)

    def _check(self, may_close: bool = False) -> None:
        if self._error is not None:
            self._failures.is_end_taken = True
            raise again(self._error)
        if self._is_closing and not may_close:
            raise RuntimeError("the stream is closed")


def _unanswered(sequence: int, error: BaseException | None) -> BaseException:
    text = f"batch {sequence} is not acknowledged, because its stream has ended"
    if not isinstance(error, Error):
        return RuntimeError(f"{text}: {error}")
    unanswered = with_message(error, f"{text}: {error.message}")
    unanswered.__cause__ = error
    return unanswered
