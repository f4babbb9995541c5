"""The errors of a stream, and whether the program has got them. No error may go unnoticed."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Error, with_message
from ._acknowledgement import PendingAcknowledgement

# A stream that goes on after refused batches may live for months.
_MOST_FUTURES = 100


class Failures:
    """The futures that have failed. The lock of the window guards it."""

    def __init__(self) -> None:
        self.is_end_taken = False
        """True if a method of the stream has raised the error that has ended it."""
        self._of_end: list[PendingAcknowledgement] = []
        self._refused: list[PendingAcknowledgement] = []

    def add_of_end(self, futures: Iterable[PendingAcknowledgement]) -> None:
        """Adds futures that fail with the error that ends the stream."""
        self._of_end.extend(futures)

    def add_refused(self, future: PendingAcknowledgement) -> None:
        """Adds the future of a refused batch after which the stream goes on."""
        if len(self._refused) >= _MOST_FUTURES:
            self._refused = [future for future in self._refused if not future.is_error_taken]
        if len(self._refused) < _MOST_FUTURES:
            self._refused.append(future)

    def untaken(self, end: BaseException | None) -> BaseException | None:
        """Returns an error that the program has not got yet. `end` is the error that has ended the stream, if any."""
        if end is not None and not self.is_end_taken and not any(future.is_error_taken for future in self._of_end):
            return again(end)
        untaken = [future for future in self._refused if not future.is_error_taken]
        if not untaken or (error := untaken[0].peek_error()) is None:
            return None
        first = again(error)
        if len(untaken) > 1:
            first.add_note(f"{len(untaken)} batches of the stream were refused, and this is the error of the first.")
        return first


def again(error: BaseException) -> BaseException:
    """Returns a copy of an error, for another place where it is raised."""
    if isinstance(error, Error):
        copy: BaseException = with_message(error, error.message)
    else:
        copy = RuntimeError(str(error))
    copy.__cause__ = error
    return copy
