"""A batch of keys on its way to the gateway."""

from __future__ import annotations

import math
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..errors import CancelledError, DeadlineExceededError
from ._answer import Answer

NOT_SENT = "the keys could not be sent within the timeout of the lookup: the gateway was not reached, or took no keys"


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of keys, and what became of it."""

    asked: int
    """How many keys it has."""
    deadline: float
    """When its caller stops waiting, as a time of the monotonic clock."""
    future: Future[Answer] = field(default_factory=Future)
    number: int = 0
    """Its number on the call, from 1. 0 until it is sent."""
    write_until: float = math.inf
    """When a write that has not ended is broken off."""
    is_given_up: bool = False
    """Says whether its caller waits no longer."""

    def check(self) -> None:
        """Raises an error if the keys should not be sent any more."""
        if self.is_given_up or self.deadline <= time.monotonic():
            raise self.not_sent()

    def not_sent(self) -> CancelledError | DeadlineExceededError:
        """Returns the error of a batch that was not sent in time."""
        return CancelledError("the task was cancelled") if self.is_given_up else DeadlineExceededError(NOT_SENT)

    def fail(self, error: BaseException) -> None:
        """Answers the batch with an error. It must have been removed from those that are not answered."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)
