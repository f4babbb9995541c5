"""One call of a stream: a DoExchange in which batches go to the gateway, and notes come back."""

from __future__ import annotations

import threading
from enum import Enum, auto

import pyarrow as pa

from .._channel import NO_TIMEOUT, Channel
from .._exchange import Exchange, Note
from ..errors import CancelledError, Error, InternalError, UnavailableError
from ._notes import Opened, batch_note, parse_opened
from ._window import Batch

# Timeout for a gateway that accepts the connection but does not answer, in seconds.
_OPEN_SECONDS = 30.0


class Batches(Enum):
    """Says whether batches follow in a call."""

    NONE = auto()
    FOLLOW = auto()


class Call:
    """A call whose batches have one schema. One thread sends, another one reads, and any thread may cancel."""

    def __init__(self, channel: Channel, command: bytes, schema: pa.Schema) -> None:
        """Starts the call."""
        self.schema = schema
        self.has_ended = threading.Event()
        """Set when the last note was read. `error` then says why the call has ended."""
        self.error: Error | None = None
        self._exchange: Exchange = channel.exchange(command, timeout=NO_TIMEOUT)

    def open(self, batches: Batches) -> Opened:
        """Returns the first note. The gateway has then decided all batches of earlier calls."""
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self.cancel()

        timer = threading.Timer(_OPEN_SECONDS, give_up)
        timer.daemon = True
        timer.start()
        try:
            self._exchange.announce(self.schema)
            if batches is Batches.NONE:
                # A gateway that knows no streams would wait for rows.
                self.finish()
            note = self.read()
        except CancelledError as error:
            if is_late.is_set():
                raise UnavailableError(f"the gateway has not answered within {_OPEN_SECONDS:g} s") from error
            raise
        finally:
            timer.cancel()
        if note is None:
            raise InternalError("the gateway has ended the stream before its first note; does it have another version?")
        return parse_opened(note)

    def send(self, batch: Batch) -> None:
        """Sends a batch. Waits while the gateway reads nothing."""
        *first, last = batch.rows.messages
        for message in first:
            self._exchange.write(message, batch_note(batch.sequence, is_last_message=False))
        self._exchange.write(last, batch_note(batch.sequence, is_last_message=True))

    def send_nothing(self, sequence: int) -> None:
        """Sends a batch without rows."""
        nothing = pa.RecordBatch.from_pylist([], schema=self.schema)
        self._exchange.write(nothing, batch_note(sequence, is_last_message=True))

    def finish(self) -> None:
        """Tells the gateway that no more batches follow. It still answers those that were sent."""
        self._exchange.finish()

    def read(self) -> Note | None:
        """Returns the next note, or None at the end."""
        arrived = self._exchange.read()
        if isinstance(arrived, pa.RecordBatch):
            raise InternalError("the gateway has sent rows to a stream that writes; does it have another version?")
        return arrived

    def cancel(self) -> None:
        """Cancels the call, whatever its state."""
        self._exchange.cancel()

    def close(self) -> None:
        """Ends the call if it has not ended. No other thread may use it any more."""
        self._exchange.close()
