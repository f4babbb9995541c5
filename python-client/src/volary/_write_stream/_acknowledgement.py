"""Acknowledgements of batches, and the futures in which they come."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from ..errors import Error


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Says that all rows of a batch are durable, and that queries see them."""

    sequence: int
    """The number of the batch. The first batch of a producer has number 1."""
    rows: int
    """Number of rows of the batch."""
    is_duplicate: bool
    """True if the gateway had applied the batch before, so that this time it wrote nothing. After a lost connection,
    this is how a batch is acknowledged whose first acknowledgement was lost.
    """


class PendingAcknowledgement(Future[Acknowledgement]):
    """The future of a batch. It knows whether somebody got its error."""

    def __init__(self) -> None:
        super().__init__()
        self.is_error_taken = False
        """True if the program has got the error, or will get it."""
        # A batch that was accepted cannot be taken back, so `cancel` must return False.
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Acknowledgement:
        """Waits for the acknowledgement. Raises the error if the batch was not written."""
        try:
            return super().result(timeout)
        except Error:
            self.is_error_taken = True
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the end of the batch. Returns the error if it was not written, or else None."""
        error = super().exception(timeout)
        self.is_error_taken = self.is_error_taken or error is not None
        return error

    def peek_error(self) -> BaseException | None:
        """Returns the error of a batch that has ended, or None. The error does not count as taken."""
        return super().exception()
