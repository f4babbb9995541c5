"""The stream of `volary.aio`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from ._acknowledgement import Acknowledgement, PendingAcknowledgement


class AsyncAcknowledgement(asyncio.Future[Acknowledgement]):
    """The acknowledgement of a batch, for an event loop. Awaiting it takes the error of the batch."""

    def __init__(self, pending: PendingAcknowledgement) -> None:
        """Must be called in the event loop."""
        super().__init__()
        self._pending = pending
        pending.add_done_callback(self._schedule)

    def result(self) -> Acknowledgement:
        """Returns the acknowledgement. Raises the error if the batch was not written."""
        self._take()
        return super().result()

    def exception(self) -> BaseException | None:
        """Returns the error if the batch was not written, or else None."""
        self._take()
        return super().exception()

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        self._take()
        return super().__await__()

    def _take(self) -> None:
        # Whoever waits for the acknowledgement gets its error.
        self._pending.is_error_taken = True

    def _schedule(self, _: object) -> None:
        # The event loop may end before the stream does.
        with suppress(RuntimeError):
            self.get_loop().call_soon_threadsafe(self._complete)

    def _complete(self) -> None:
        if self.cancelled():
            return
        error = self._pending.peek_error()
        if error is None:
            self.set_result(self._pending.result())
        else:
            self.set_exception(error)
            # asyncio would log an error that nobody has got. The stream raises it when it is closed.
            super().exception()
