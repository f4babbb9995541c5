"""Results that are read in parts: from the workers themselves, or after a bar has shown how far the query is."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

import adbc_driver_flightsql as flightsql
import adbc_driver_manager as adbc
import pyarrow as pa

from ._interrupt import Interruptible, cancellable
from ._progress import INCREMENTAL, QueryBar, bar
from ._translate import translated

# The server's header: an endpoint for each worker.
_HEADER = flightsql.StatementOptions.RPC_CALL_HEADER_PREFIX.value + "volary-direct-results"
_MOST_THREADS = 16
# Batches that wait for whoever reads the result, for each thread; one is about a mebibyte.
_BATCHES_AHEAD = 2
_LOOK_SECONDS = 0.1


class PartStream:
    """Reads the parts of one query, each over a connection of its own, in the order in which batches arrive.

    With `direct` they come from the workers; a result that has to come from the gateway (it is sorted, limited, grouped
    by something else than the shard key) has one part, which does. `progress` draws a bar: of the query as long as it
    is executed, or of the parts that were read.
    """

    def __init__(
        self,
        database: adbc.AdbcDatabase,
        statement: adbc.AdbcStatement,
        interruptible: Interruptible,
        threads: int | None,
        options: Mapping[str, float],
        *,
        direct: bool,
        progress: bool,
    ) -> None:
        """Executes `statement`, which is prepared and bound, and owns it from here on, also when this raises.

        `options` are those of the connections over which the parts are read.
        """
        self._statement = statement
        self._parts: _Parts | None = None
        self._threads: list[threading.Thread] = []
        self._is_open = True
        self._bar: Any = None
        try:
            with translated(), ExitStack() as shown:
                statement.set_options(**({_HEADER: "on"} if direct else INCREMENTAL))
                if progress and not direct:
                    shown.enter_context(QueryBar(statement))
                parts, schema, _ = interruptible.run(statement.execute_partitions, statement.cancel)
                self.schema: pa.Schema = pa.schema(schema)  # type: ignore[arg-type]  # the stubs lack PyCapsules
        except BaseException:
            self.close()
            raise
        if progress and direct:
            self._bar = bar(len(parts), "parts", "part")
        wanted = threads or min(_MOST_THREADS, 2 * (os.cpu_count() or 1))
        count = max(1, min(wanted, len(parts)))
        self._unread = len(parts)
        self._parts = _Parts(database, parts, count * _BATCHES_AHEAD, options)
        # They hold the parts and not this stream: one that is forgotten ends them.
        self._threads = [
            threading.Thread(target=self._parts.read, name=f"volary-part-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def read(self) -> pa.RecordBatch | None:
        """The next batch, or None after the last one. Raises `RuntimeError` if the stream was closed before its end."""
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
                self._bar.update()
        self.close()
        return None

    def close(self) -> None:
        """Stops the query if it still runs and frees what the server holds for it. May be called again."""
        if not self._is_open:
            return
        self._is_open = False
        if self._bar is not None:
            self._bar.close()
        parts, self._parts = self._parts, None
        if parts is not None:
            # What is cancelled while nothing waits is not cancelled: a thread may be about to.
            while any(thread.is_alive() for thread in self._threads):
                parts.close()
                for thread in self._threads:
                    thread.join(timeout=_LOOK_SECONDS)
        with suppress(adbc.Error):
            self._statement.close()

    def __del__(self) -> None:
        # Not set if __init__ was interrupted at its first line.
        if hasattr(self, "_is_open"):
            self.close()


class _Parts:
    """The parts that are not read yet, and the batches of those that are."""

    def __init__(
        self, database: adbc.AdbcDatabase, parts: list[bytes], batches_ahead: int, options: Mapping[str, float]
    ) -> None:
        self.closed = threading.Event()
        # A batch, why a part failed, or the end of a part (None).
        self.arrived: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(batches_ahead)
        self._database = database
        self._options = options
        self._connections: list[adbc.AdbcConnection] = []
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        for part in parts:
            self._waiting.put(part)

    def next(self) -> pa.RecordBatch | BaseException | None:
        """What arrives next. Raises `RuntimeError` if nothing will, as somebody has closed the stream meanwhile."""
        while not self.closed.is_set():
            with suppress(queue.Empty):
                return self.arrived.get(timeout=_LOOK_SECONDS)
        raise RuntimeError("the result was closed while it was read; run the statement again")

    def close(self) -> None:
        """Ends the reading, also where a worker says nothing."""
        self.closed.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(adbc.Error):
                connection.cancel()

    def read(self) -> None:
        """Reads one part after another, on a thread of its own."""
        try:
            # The next call on a connection ends what the one before has opened: each thread has one of its own.
            with translated():
                connection = adbc.AdbcConnection(self._database)
                if self._options:
                    connection.set_options(**self._options)
            with self._lock:
                self._connections.append(connection)
            with connection:
                while not self.closed.is_set():
                    try:
                        part = self._waiting.get_nowait()
                    except queue.Empty:
                        return
                    self._read(connection, part)
        except BaseException as error:
            # Of one that was closed nobody wants to know.
            self._put(error)

    def _read(self, connection: adbc.AdbcConnection, part: bytes) -> None:
        with translated(), pa.RecordBatchReader.from_stream(connection.read_partition(part)) as reader:
            while not self.closed.is_set():
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    self._put(None)
                    return
                self._put(batch)

    def _put(self, arrived: pa.RecordBatch | BaseException | None) -> None:
        while not self.closed.is_set():
            with suppress(queue.Full):
                self.arrived.put(arrived, timeout=_LOOK_SECONDS)
                return
