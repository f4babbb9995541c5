"""Reads results whose parts come directly from the workers."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
from pyarrow import flight

from ._answers import Answer
from ._channel import Channel
from ._deadline import Deadline
from ._exchange import Note
from ._interrupt import cancellable
from ._progress import PartBar
from ._translate import PYARROW_ERRORS, translate

_MOST_THREADS = 16
# Number of batches per thread that may have arrived and not been read. A batch has about one mebibyte.
_BATCHES_AHEAD = 2
_LOOK_SECONDS = 0.1
# Maximum time to wait for threads to end, in seconds. A thread that is connecting to a worker cannot be stopped.
_JOIN_SECONDS = 2.0

ChannelTo = Callable[[str | None], Channel]
"""Returns the channel to a server, or to the gateway if the address is None. Raises `ValueError` for an address that
cannot be used.
"""


class PartStream:
    """Reads the parts of one query, several at the same time. The batches come in the order of their arrival."""

    def __init__(
        self,
        info: flight.FlightInfo,
        channel_to: ChannelTo,
        *,
        threads: int | None,
        deadline: Deadline,
        statistics: Note | None,
        progress: bool,
    ) -> None:
        self.schema: pa.Schema = info.schema
        self.statistics = statistics
        endpoints = info.endpoints
        self._is_open = True
        self._bar = PartBar(len(endpoints)) if progress else None
        wanted = threads or min(_MOST_THREADS, 2 * (os.cpu_count() or 1))
        count = max(1, min(wanted, len(endpoints)))
        self._unread = len(endpoints)
        self._parts: _Parts | None = _Parts(endpoints, channel_to, count * _BATCHES_AHEAD, deadline)
        # The threads hold `_parts` and not this stream. If the stream is dropped, `__del__` therefore runs and ends
        # them.
        self._threads = [
            threading.Thread(target=self._parts.read, name=f"volary-part-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def read(self) -> pa.RecordBatch | None:
        """Returns the next batch, or None after the last one. Raises `RuntimeError` if the stream was closed before its
        end.
        """
        while self._unread:
            parts = self._parts
            if parts is None:
                raise RuntimeError("the result was closed before it was read; run the statement again")
            try:
                arrived = cancellable(parts.next, parts.close)
            except BaseException:
                self.close()
                raise
            if isinstance(arrived, BaseException):
                self.close()
                raise arrived
            if arrived is not None:
                return arrived
            self._unread -= 1
            if self._bar is not None:
                self._bar.step()
        self.close()
        return None

    def read_all(self) -> list[pa.RecordBatch]:
        """Returns the remaining batches."""
        return list(iter(self.read, None))

    def close(self) -> None:
        """Stops the query if it still runs, and frees what the servers hold for it. May be called more than once."""
        if not self._is_open:
            return
        self._is_open = False
        if self._bar is not None:
            self._bar.close()
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.close()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(timeout=_JOIN_SECONDS)

    def __del__(self) -> None:
        # The attribute is missing if __init__ was interrupted at its first lines.
        if hasattr(self, "_threads"):
            self.close()


class _Parts:
    """The parts that are still to be read, and the batches that have arrived."""

    def __init__(
        self, endpoints: list[flight.FlightEndpoint], channel_to: ChannelTo, batches_ahead: int, deadline: Deadline
    ) -> None:
        self.closed = threading.Event()
        # Holds batches, the errors of parts that failed, and None for each part that has ended.
        self.arrived: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(batches_ahead)
        self._channel_to = channel_to
        self._deadline = deadline
        self._lock = threading.Lock()
        self._readers: set[flight.FlightStreamReader] = set()
        self._waiting: queue.SimpleQueue[flight.FlightEndpoint] = queue.SimpleQueue()
        for endpoint in endpoints:
            self._waiting.put(endpoint)

    def next(self) -> pa.RecordBatch | BaseException | None:
        """Returns what arrives next. Raises `RuntimeError` if another thread has closed the stream, so that nothing
        will arrive.
        """
        while not self.closed.is_set():
            with suppress(queue.Empty):
                return self.arrived.get(timeout=_LOOK_SECONDS)
        raise RuntimeError("the result was closed while it was read; run the statement again")

    def close(self) -> None:
        """Ends the reading, even while a worker sends nothing."""
        self.closed.set()
        with self._lock:
            for reader in self._readers:
                reader.cancel()

    def read(self) -> None:
        """Reads one part after another. Each reading thread runs this method."""
        try:
            while not self.closed.is_set():
                try:
                    endpoint = self._waiting.get_nowait()
                except queue.Empty:
                    return
                self._read(endpoint)
        except PYARROW_ERRORS as error:
            self._put(translate(error))
        except BaseException as error:
            # `_put` drops the errors of a stream that was closed.
            self._put(error)

    def _read(self, endpoint: flight.FlightEndpoint) -> None:
        reader, answer = self._open(endpoint)
        with self._lock:
            if self.closed.is_set():
                reader.cancel()
                return
            self._readers.add(reader)
        try:
            while not self.closed.is_set():
                try:
                    batch = reader.read_chunk().data
                except StopIteration:
                    self._put(None)
                    return
                except PYARROW_ERRORS as error:
                    raise translate(error, answer) from error
                if batch is not None:
                    self._put(batch)
        finally:
            with self._lock:
                self._readers.discard(reader)

    def _open(self, endpoint: flight.FlightEndpoint) -> tuple[flight.FlightStreamReader, Answer]:
        """Opens a part at the first of its servers that answers."""
        failed: Exception | None = None
        # The gateway (None) comes last, because it redeems every ticket.
        for uri in [*map(_uri, endpoint.locations), None]:
            try:
                channel = self._channel_to(uri)
                return channel.get(endpoint.ticket, timeout=self._deadline.seconds_left())
            except (flight.FlightUnavailableError, ValueError) as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _put(self, arrived: pa.RecordBatch | BaseException | None) -> None:
        while not self.closed.is_set():
            with suppress(queue.Full):
                self.arrived.put(arrived, timeout=_LOOK_SECONDS)
                return


def _uri(location: flight.Location) -> str | None:
    """Returns the address of a location, or None for the server that named the location."""
    uri = location.uri.decode()
    return None if uri.startswith("arrow-flight-reuse-connection:") else uri
