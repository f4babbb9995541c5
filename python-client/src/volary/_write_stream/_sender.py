"""The threads of a stream: one sends batches and connects again after a loss, and another one reads the answers."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from .._channel import Channel
from .._translate import CANCELLED_HERE
from ..errors import (
    AlreadyExistsError,
    CancelledError,
    Error,
    InternalError,
    InvalidArgumentError,
    UnauthenticatedError,
    UnavailableError,
    with_message,
)
from ._acknowledgement import Acknowledgement
from ._backoff import Backoff
from ._call import Batches, Call
from ._notes import Committed, Opened, Refused, parse_answer
from ._status import STATUS_ACTION, parse_status, status_question
from ._window import Window

_SENDER = "volary-stream"
_READER = "volary-acknowledgements"
_JOIN_SECONDS = 5.0
_STATUS_SECONDS = 30.0

_NO_COLUMNS = pa.schema([])


class Session(Protocol):
    """The session of a stream."""

    def new_channel(self) -> Channel:
        """Returns a channel that has its own network connection."""

    def log_in_again(self) -> bool:
        """Logs in with the password, if there is one, and says whether there is."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a stream's batches to their table."""

    session: Session
    command: bytes
    """The command of the stream's calls."""
    table: str
    """The name of the table, as SQL writes it."""
    producer: str
    continue_on_error: bool
    retry_seconds: float


class Sender:
    """Sends the batches of a window until the stream ends.

    Its threads refer to the window, and not to the object that the program has. So a stream that the program forgets
    can end.
    """

    def __init__(self, window: Window, route: Route) -> None:
        """Starts the thread that sends."""
        self.query_id = ""
        """The id of the statement that the latest call is for the gateway."""
        self._window = window
        self._route = route
        self._backoff = Backoff(route.retry_seconds)
        self._channel: Channel | None = None
        self._call: Call | None = None
        self._retry_after: float | None = None
        self._thread = threading.Thread(target=self._run, name=_SENDER, daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Says whether the stream has no call now."""
        return self._call is None

    def cancel(self, error: BaseException) -> None:
        """Ends the stream at once, with this error. Any thread may call this, more than once."""
        self._window.fail(error)
        if (call := self._call) is not None:
            call.cancel()

    def join(self) -> None:
        """Waits until the thread has ended, but not for one that is just connecting, which may take longer."""
        # The program's code also runs in the stream's threads: as a callback of a future, or of the garbage collector.
        if threading.current_thread().name not in (_SENDER, _READER):
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._send_all()
        except BaseException as raised:
            error = raised
        self._disconnect()
        self._window.end(error)

    def _send_all(self) -> None:
        """Returns when the stream is closed and all batches are answered. Raises the error that ends the stream."""
        self._check()
        while self._window.wait_for_work():
            try:
                self._send()
            except Error as error:
                self._disconnect()
                self._recover(error)

    def _check(self) -> None:
        """Makes a call without batches. The program waits for this, so that it gets the error of a stream that cannot
        be opened, and the last batch of the producer.
        """
        call, opened = self._open(_NO_COLUMNS, Batches.NONE)
        self._window.resume(opened.last_sequence, opened.window_bytes)
        # The gateway has said what was asked. If the connection is lost now, the next call finds out.
        with suppress(Error):
            while call.read() is not None:
                pass
        self._end(call)

    def _send(self) -> None:
        """Sends batches in one call, until the stream or the next batch needs no more of it. Raises the error of the
        call.
        """
        schema = self._window.next_schema()
        try:
            call, opened = self._open(schema, Batches.FOLLOW)
        except InvalidArgumentError as error:
            # The table does not have these columns.
            self._refuse(Refused(self._window.next_to_answer, error, None))
            return
        reader = threading.Thread(target=self._read, args=(call,), name=_READER, daemon=True)
        failed: Error | None = None
        try:
            self._backoff.note_connected()
            self._window.resume(opened.last_sequence, opened.window_bytes)
            reader.start()
            for sequence in self._window.left_out():
                call.send_nothing(sequence)
            while (batch := self._window.next(schema, call.has_ended)) is not None:
                call.send(batch)
            if self._window.error is None:
                call.finish()
            else:
                call.cancel()
        except Error as error:
            # The gateway has ended the call, and this is the error that it ended it with.
            failed = error
            call.cancel()
        except BaseException:
            call.cancel()
            raise
        finally:
            if reader.ident is not None:
                reader.join()
            self._end(call)
        if failed is not None and isinstance(call.error, CancelledError | None):
            raise failed
        if call.error is not None:
            raise call.error
        if self._window.is_waiting_for_answers:
            raise UnavailableError("the gateway has ended the stream before it has answered all batches")

    def _open(self, schema: pa.Schema, batches: Batches) -> tuple[Call, Opened]:
        """Begins a call, and returns it with its first note."""
        try:
            return self._open_once(schema, batches)
        except UnauthenticatedError:
            # The last call may have taken longer than the session's token is valid.
            if not self._route.session.log_in_again():
                raise
            return self._open_once(schema, batches)

    def _open_once(self, schema: pa.Schema, batches: Batches) -> tuple[Call, Opened]:
        if self._channel is None:
            self._channel = self._route.session.new_channel()
        call = Call(self._channel, self._route.command, schema)
        try:
            self._call = call
            # `cancel` may just have come before the call was known.
            if self._window.error is not None:
                raise CancelledError(CANCELLED_HERE)
            opened = call.open(batches)
            self.query_id = opened.query_id
            return call, opened
        except BaseException:
            self._end(call)
            raise

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _end(self, call: Call) -> None:
        self._call = None
        call.close()

    def _read(self, call: Call) -> None:
        """Reads the answers of a call. Another thread runs this method."""
        try:
            while (note := call.read()) is not None:
                answer = parse_answer(note)
                if isinstance(answer, Committed):
                    self._backoff.reset()
                    done = Acknowledgement(answer.sequence, answer.rows, answer.is_duplicate)
                    self._window.answer(answer.sequence, done, answer.window_bytes)
                elif isinstance(answer, Refused):
                    self._refuse(answer)
        except BaseException as error:
            call.error = error if isinstance(error, Error) else InternalError(f"an answer cannot be read: {error!r}")
        finally:
            call.has_ended.set()
            self._window.wake_sender()
            if call.error is not None:
                # The sender must not wait for a gateway to which nobody listens.
                call.cancel()

    def _refuse(self, answer: Refused) -> None:
        if answer.error.retryable:
            # The call ends with this error. The batch is not decided, and is sent again in the next call.
            self._retry_after = answer.error.retry_after
            return
        if not self._route.continue_on_error:
            self._window.fail(
                with_message(
                    answer.error,
                    f"batch {answer.sequence} was refused, which has ended the stream: {answer.error.message}",
                )
            )
        self._backoff.reset()
        self._window.answer(answer.sequence, answer.error, answer.window_bytes)

    def _recover(self, error: Error) -> None:
        """Returns when the batches without an answer may be sent again. Raises the error that ends the stream if they
        may not.
        """
        if self._window.error is not None:
            raise self._window.error
        # Nobody has cancelled the call here, so something on its way has reset it.
        was_reset = isinstance(error, CancelledError) and error.message == CANCELLED_HERE
        if not error.retryable and not was_reset:
            self._settle(error)
            raise error
        if not self._window.pending:
            # The next batch is what needs another call. Otherwise, a stream that the gateway has ended because nobody
            # writes would begin again at once.
            return
        # The gateway asks for a pause with the error of the call, and perhaps before that with the refusal of a batch.
        asked = [seconds for seconds in (self._retry_after, error.retry_after) if seconds is not None]
        self._retry_after = None
        retry_after = max(asked, default=None)
        pause = self._backoff.next_pause(retry_after or 0.0)
        if pause is None:
            kind = type(error) if error.retryable else UnavailableError
            raise kind(
                f"the stream was interrupted and could not go on within {self._route.retry_seconds:g} s; "
                f"{self._window.pending} batches are not acknowledged, and some of them may have been written: "
                f"Connection.batch_status says which of producer {self._route.producer}, and another stream of this "
                f"producer can go on. The last error was {error}",
                sqlstate=error.sqlstate,
                retry_after=retry_after,
            ) from error
        self._window.wait_failed(pause)

    def _settle(self, error: Error) -> None:
        """Asks which batches are in the table, at the end of the stream.

        pyarrow may lose answers that have arrived when a message cannot be sent because the gateway has ended the call.
        """
        # With `continue_on_error`, a batch may be decided and refused. If there is another stream of the producer, it
        # has written other rows under the same numbers.
        if not self._window.pending or self._route.continue_on_error or isinstance(error, AlreadyExistsError):
            return
        question = status_question(self._route.table, self._route.producer, None)
        try:
            if self._channel is None:
                self._channel = self._route.session.new_channel()
            status = parse_status(self._channel.act(STATUS_ACTION, question, timeout=_STATUS_SECONDS))
            self._window.settle(status.last_sequence)
        except Error:
            # The batches fail with the error that has ended the stream, which is why the gateway was asked.
            return
