"""volary for asyncio: runs statements without blocking the event loop.

    async with await volary.aio.connect() as connection:
        result = await connection.sql("SELECT * FROM flights WHERE carrier = ?", ["UA"])
        async for batch in result:
            ...

Statements of one connection run concurrently. Each statement uses a thread of its own while it waits. Cancelling a task
cancels its statement.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import pyarrow as pa

from ._connect import connect as _connect
from ._connection import Connection
from ._ingest import IngestData
from ._interrupt import Cancellation
from ._lookup import Answer, Keys, Lookup, to_single_key
from ._lookup._async import AsyncJoiner
from ._parameters import Parameters
from ._plan import Plan
from ._result import Result
from ._statistics import Statistics
from ._write_stream import Acknowledgement, BatchStatus, StreamData, WriteStream
from ._write_stream._async import AsyncAcknowledgement

if TYPE_CHECKING:
    import pandas
    import polars

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Threads that are used only by waiting statements. asyncio's own threads are few, and other code uses them, too.
_threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="volary-aio")
_CANCEL_AGAIN_SECONDS = 0.05

__all__ = ["AsyncConnection", "AsyncLookup", "AsyncResult", "AsyncWriteStream", "connect"]


async def _on_thread(call: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Runs `call` on a thread and returns its result. If the task is cancelled, the thread's blocking call is
    cancelled.
    """
    cancellation = Cancellation()
    work = functools.partial(cancellation.run, functools.partial(call, *arguments, **named))
    thread = asyncio.get_running_loop().run_in_executor(_threads, work)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        # A call does not notice a cancellation just before it starts to wait. So the cancellation is repeated until the
        # call has ended.
        while not thread.done():
            cancellation.cancel()
            await asyncio.wait([thread], timeout=_CANCEL_AGAIN_SECONDS)
        with suppress(Exception):
            thread.result()
        raise


class AsyncResult:
    """The answer to one statement: a `volary.Result` that waits for rows without blocking the event loop."""

    def __init__(self, result: Result) -> None:
        self._result = result

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows. A statement without rows has no columns."""
        return self._result.schema

    @property
    def rows_affected(self) -> int | None:
        """The number of rows that an INSERT or COPY wrote, 0 for DDL, or None for a query."""
        return self._result.rows_affected

    @property
    def query_id(self) -> str:
        """The id of the statement in logs, errors, `system.query_log` and KILL."""
        return self._result.query_id

    @property
    def statistics(self) -> Statistics | None:
        """What the statement took. None until all rows of the statement are read."""
        return self._result.statistics

    async def to_arrow(self) -> pa.Table:
        """Returns all rows as an Arrow table."""
        return await _on_thread(self._result.to_arrow)

    async def to_pandas(self) -> pandas.DataFrame:
        """Returns all rows as a pandas DataFrame."""
        return await _on_thread(self._result.to_pandas)

    async def to_polars(self) -> polars.DataFrame:
        """Returns all rows as a polars DataFrame."""
        return await _on_thread(self._result.to_polars)

    async def rows(self) -> list[tuple[Any, ...]]:
        """Returns all rows as tuples of Python values."""
        return await _on_thread(self._result.rows)

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Yields the batches as they arrive, each of them once."""
        batches = self._result.batches()
        try:
            while (batch := await _on_thread(next, batches, None)) is not None:
                yield batch
        finally:
            await self.close()

    async def close(self) -> None:
        """Stops the query if it still runs. May be called more than once."""
        await _on_thread(self._result.close)

    async def __aenter__(self) -> AsyncResult:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncWriteStream:
    """A stream of batches to one table: a `volary.WriteStream` that waits without blocking the event loop.

    `write` returns a future of the acknowledgement as soon as the batch is accepted, so `await (await
    stream.write(batch))` waits for the acknowledgement. Leaving the block waits for all of them, and raises the
    error of a batch whose future nobody has awaited.
    """

    def __init__(self, open_stream: Callable[[], WriteStream]) -> None:
        self._open = open_stream
        self._stream: WriteStream | None = None

    @property
    def stream(self) -> WriteStream:
        """The `volary.WriteStream` that this stream uses on its threads. Raises `RuntimeError` outside of the block."""
        if self._stream is None:
            raise RuntimeError("the stream is not open: use `async with`")
        return self._stream

    async def write(self, data: StreamData, *, timeout: float | None = None) -> asyncio.Future[Acknowledgement]:
        """Writes one batch: see `volary.WriteStream.write`. Waits only until the batch is accepted."""
        return AsyncAcknowledgement(await _on_thread(self.stream.write, data, timeout=timeout))

    async def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything that was written so far is acknowledged: see `volary.WriteStream.flush`."""
        await _on_thread(self.stream.flush, timeout=timeout)

    async def close(self, *, timeout: float | None = None) -> None:
        """Waits for all acknowledgements and ends the stream: see `volary.WriteStream.close`."""
        await _on_thread(self.stream.close, timeout=timeout)

    async def cancel(self) -> None:
        """Ends the stream at once: see `volary.WriteStream.cancel`."""
        await _on_thread(self.stream.cancel)

    async def __aenter__(self) -> AsyncWriteStream:
        self._stream = await _on_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.cancel())


class AsyncLookup:
    """Looks up rows by the shard key of one table: a `volary.Lookup` that waits without blocking the event loop.

    With a `join_window`, single keys that tasks ask for at about the same time are sent as one batch.
    """

    def __init__(self, open_lookup: Callable[[], Lookup], join_window: float | None) -> None:
        self._open = open_lookup
        self._lookup: Lookup | None = None
        self._joiner = None if join_window is None else AsyncJoiner(self._answer, join_window)

    @property
    def lookup(self) -> Lookup:
        """The `volary.Lookup` that this lookup uses on its threads. Raises `RuntimeError` outside of the block."""
        if self._lookup is None:
            raise RuntimeError("the lookup is not open: use `async with`")
        return self._lookup

    async def get(self, keys: Keys, *, positions: str | None = None, timeout: float | None = None) -> pa.Table:
        """Returns the rows of the keys, in the order of the keys: see `volary.Lookup.get`."""
        return await _on_thread(self.lookup.get, keys, positions=positions, timeout=timeout)

    async def contains(self, keys: Keys, *, timeout: float | None = None) -> pa.BooleanArray:
        """Returns whether each key has a row: see `volary.Lookup.contains`."""
        return await _on_thread(self.lookup.contains, keys, timeout=timeout)

    async def one(self, key: Any) -> dict[str, Any] | None:
        """Returns the row of one key, or None: see `volary.Lookup.one`."""
        if self._joiner is None:
            return await _on_thread(self.lookup.one, key)
        return await self._joiner.one(key, to_single_key(key))

    async def close(self) -> None:
        """Ends the lookup at once: see `volary.Lookup.close`."""
        await _on_thread(self.lookup.close)

    async def __aenter__(self) -> AsyncLookup:
        self._lookup = await _on_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _answer(self, keys: pa.Array[Any]) -> Answer:
        return await _on_thread(lambda: self.lookup.submit(keys).answer())


class AsyncConnection:
    """A session on a gateway. `volary.aio.connect` creates it. `connection` is the `volary.Connection` that it uses on
    its threads.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def sql(
        self,
        query: str,
        parameters: Parameters | None = None,
        *,
        timeout: float | None = None,
        direct: bool = False,
        batch_id: str | None = None,
    ) -> AsyncResult:
        """Runs one statement: see `volary.Connection.sql`."""
        run = functools.partial(
            self.connection.sql, query, parameters, timeout=timeout, direct=direct, batch_id=batch_id
        )
        return AsyncResult(await _on_thread(run))

    async def call(self, query: str, *arguments: Any, **named: Any) -> AsyncResult:
        """Calls a saved query: see `volary.Connection.call`."""
        return AsyncResult(await _on_thread(self.connection.call, query, *arguments, **named))

    async def explain(self, query: str, parameters: Parameters | None = None, *, analyze: bool = False) -> Plan:
        """Returns how a query is run: see `volary.Connection.explain`."""
        return await _on_thread(self.connection.explain, query, parameters, analyze=analyze)

    async def ingest(
        self,
        table: str,
        data: IngestData,
        *,
        schema: str | None = None,
        mode: Literal["create", "append", "replace", "create_append"] = "create_append",
        **layout: Any,
    ) -> int:
        """Writes rows into a table: see `volary.Connection.ingest`."""
        return await _on_thread(self.connection.ingest, table, data, schema=schema, mode=mode, **layout)

    def stream(self, table: str, **options: Any) -> AsyncWriteStream:
        """Opens a stream that writes batches, in an `async with` block: see `volary.Connection.stream`."""
        return AsyncWriteStream(functools.partial(self.connection.stream, table, **options))

    async def lookup(self, table: str, keys: Keys, **options: Any) -> pa.Table:
        """Returns the rows of keys, in the order of the keys: see `volary.Connection.lookup`."""
        return await _on_thread(self.connection.lookup, table, keys, **options)

    def lookups(self, table: str, *, join_window: float | None = None, **options: Any) -> AsyncLookup:
        """Looks up rows of one table, in an `async with` block: see `volary.Connection.lookups`."""
        return AsyncLookup(functools.partial(self.connection.lookups, table, **options), join_window)

    async def batch_status(
        self, table: str, producer: str, sequence: int | None = None, *, schema: str | None = None
    ) -> BatchStatus:
        """Returns whether a batch was committed: see `volary.Connection.batch_status`."""
        return await _on_thread(self.connection.batch_status, table, producer, sequence, schema=schema)

    async def read_table(
        self,
        table: str,
        *,
        schema: str | None = None,
        columns: list[str] | None = None,
        threads: int | None = None,
    ) -> pa.Table:
        """Returns a whole table, read from its workers: see `volary.Connection.read_table`."""
        return await _on_thread(self.connection.read_table, table, schema=schema, columns=columns, threads=threads)

    async def tables(self, *, schema: str | None = None) -> list[str]:
        """Returns the names of the tables and views of a schema, sorted: see `volary.Connection.tables`."""
        return await _on_thread(self.connection.tables, schema=schema)

    async def close(self) -> None:
        """Ends all statements, open results and the session. May be called more than once."""
        await _on_thread(self.connection.close)

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def connect(uri: str | None = None, **arguments: Any) -> AsyncConnection:
    """Connects to a gateway, with the arguments of `volary.connect`."""
    cancellation = Cancellation()
    connecting = _threads.submit(cancellation.run, functools.partial(_connect, uri, **arguments))
    try:
        return AsyncConnection(await asyncio.wrap_future(connecting))
    except asyncio.CancelledError:
        # Nothing can end a login, which may take a minute. Nobody waits for its thread.
        cancellation.cancel()
        connecting.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(connecting: Future[Connection]) -> None:
    """Closes a connection that nobody waits for any more. This may run in the event loop, so it must not block."""
    if not connecting.cancelled() and connecting.exception() is None:
        _threads.submit(connecting.result().close)
