"""The stream that a program writes batches to."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType

from .._interrupt import cancellable
from ..errors import CancelledError, DeadlineExceededError
from ._acknowledgement import PendingAcknowledgement
from ._rows import ColumnTypes, StreamData, is_list_of_rows, to_rows
from ._sender import Route, Sender
from ._waiter import Waiter
from ._window import Window

_NO_TYPES: ColumnTypes = {}


class WriteStream:
    """A stream of batches to one table. `volary.Connection.stream` creates it.

        with connection.stream("birds") as stream:
            future = stream.write([{"k": 1, "name": "kea"}])
            print(future.result().rows)

    A batch is written whole or not at all, and the batches in their order. Batches are sent while earlier ones are not
    acknowledged yet. If the connection is lost, the stream connects again and goes on, and no batch is written twice.
    All threads may write to one stream.

    Leaving the block waits for all acknowledgements. It raises the error of a batch if the program has not got that
    error before. If the block is left with an error, the stream is cancelled: batches that are not acknowledged may or
    may not be written.
    """

    def __init__(
        self, route: Route, column_types: Callable[[], ColumnTypes], *, window_bytes: int | None, timeout: float
    ) -> None:
        """Opens the stream. Raises the gateway's error if it does not accept it.

        `column_types` asks for the types of the table's columns.
        """
        self.producer = route.producer
        """The name under which the gateway remembers what this stream has written. Another stream of the same producer
        goes on after it, also in another process.
        """
        self._timeout = timeout
        self._column_types = column_types
        self._known_types: ColumnTypes | None = None
        self._process = os.getpid()
        self._window = Window(window_bytes)
        self._sender = Sender(self._window, route)
        # This also runs at the end of the process, where a thread that waits in C++ must not be left.
        self._end = weakref.finalize(self, _end, self._sender, self._process)
        try:
            self._wait(self._window.wait_opened, None)
        except BaseException:
            self.cancel()
            raise

    @property
    def last_sequence(self) -> int:
        """The number of the last batch that is acknowledged, or that was refused and left out. The next batch after it
        is the first that a stream of the same producer must write again.
        """
        return self._window.last_answered

    @property
    def query_id(self) -> str:
        """The id of the stream in logs, errors, `system.queries` and KILL. It is another one after the stream has
        connected again.
        """
        return self._sender.query_id

    def write(self, data: StreamData, *, timeout: float | None = None) -> PendingAcknowledgement:
        """Writes one batch, and returns a future that is done when the gateway has acknowledged it.

        `data` is Arrow data, a pandas or polars DataFrame, or a list with a dictionary for each row, in which columns
        that are left out get their default. Columns are matched by name. This method waits if too much is not
        acknowledged yet, and raises `DeadlineExceededError` if that lasts longer than `timeout` seconds (by default,
        that of the stream). Then the batch was not accepted.

        The future raises the gateway's error if the batch was refused or the stream ended before. Unless the stream was
        opened with `continue_on_error`, it ends with the first batch that is refused. A callback of the future runs in
        a thread of the stream, so it should be short, and must not wait for the stream.
        """
        self._check_process()
        rows = to_rows(data, self._types() if is_list_of_rows(data) else _NO_TYPES)
        waiter = Waiter(self._timeout if timeout is None else timeout)
        return cancellable(lambda: self._window.add(rows, waiter), waiter.cancel)

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything that was written so far is acknowledged.

        Raises the error of the stream if it has ended before, and `DeadlineExceededError` after `timeout` seconds (by
        default, that of the stream). Refused batches after which the stream goes on have their errors in their futures.
        """
        self._check_process()
        self._wait(self._window.wait_answered, timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Waits for all acknowledgements and ends the stream. May be called more than once.

        Raises the error of a batch or of the stream if the program has not got it before.
        """
        self._check_process()
        self._window.close()
        waiter = Waiter(self._timeout if timeout is None else timeout)
        try:
            if not cancellable(lambda: self._window.wait_ended(waiter), waiter.cancel):
                raise DeadlineExceededError(
                    f"the stream was cancelled, because {self._window.pending} batches were not acknowledged within "
                    f"{waiter.seconds:g} s; some of them may have been written, and Connection.batch_status says which"
                )
        except BaseException:
            self.cancel()
            raise
        self._end.detach()
        self._sender.join()
        if (error := self._window.untaken_error()) is not None:
            raise error

    def cancel(self) -> None:
        """Ends the stream at once. Batches that are not acknowledged may or may not be written; their futures raise
        `CancelledError`. May be called more than once.
        """
        self._end()

    def __enter__(self) -> WriteStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.cancel()

    def __repr__(self) -> str:
        return f"<volary.WriteStream of producer {self.producer}>"

    def _types(self) -> ColumnTypes:
        if self._known_types is None:
            self._known_types = self._column_types()
        return self._known_types

    def _wait(self, wait: Callable[[Waiter], None], timeout: float | None) -> None:
        waiter = Waiter(self._timeout if timeout is None else timeout)
        cancellable(lambda: wait(waiter), waiter.cancel)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("the stream belongs to the process that opened it; a forked process must open its own")


def _end(sender: Sender, process: int) -> None:
    # A forked process has a copy of the stream, but not its threads.
    if os.getpid() == process:
        sender.cancel(CancelledError("the stream was cancelled by this client"))
        sender.join()
