"""Joins single keys that several threads ask for at about the same time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from ..errors import DeadlineExceededError, Error, InvalidArgumentError, with_message
from ._answer import Answer
from ._pending import PendingLookup

_Places: TypeAlias = "tuple[Answer, dict[int, range]]"


class Submit(Protocol):
    """Sends keys."""

    def __call__(self, keys: pa.Array[Any], seconds: float, until: float = ...) -> PendingLookup:
        """Sends keys that must be answered within some seconds. Waits no longer than `until`, a time of the monotonic
        clock.
        """


class _Group:
    """Keys of one type that are looked up together. One of their threads leads: it sends them and waits for the answer.
    If it leaves before that, another one goes on.
    """

    def __init__(self, key_type: pa.DataType) -> None:
        self.key_type = key_type
        self.keys: list[pa.Array[Any]] = []
        self.deadline = 0.0
        """The latest of the deadlines, by the monotonic clock."""
        self.pending: PendingLookup | None = None
        self.answer: Future[_Places | None] = Future()
        """What the present leader finds. None says that it has left."""


class Joiner:
    """Collects keys for a short time. The thread that asks first looks them up for all."""

    def __init__(self, submit: Submit, window_seconds: float) -> None:
        self._submit = submit
        self._window_seconds = window_seconds
        self._lock = threading.Lock()
        self._groups: dict[pa.DataType, _Group] = {}

    def one(self, key: Any, array: pa.Array[Any], seconds: float) -> dict[str, Any] | None:
        """Returns the row of a key, which is the only element of `array`: see `volary.Lookup.one`."""
        deadline = time.monotonic() + seconds
        group = _Group(array.type)
        position = 0
        led: Future[_Places | None] | None = group.answer
        found: _Places | None = None
        try:
            with self._lock:
                if (open_group := self._groups.get(array.type)) is not None:
                    group, led, position = open_group, None, len(open_group.keys)
                else:
                    self._groups[array.type] = group
                group.deadline = max(group.deadline, deadline)
                group.keys.append(array)
            if led is not None:
                time.sleep(max(0.0, min(self._window_seconds, deadline - time.monotonic())))
                self._shut(group)
            while found is None:
                if led is not None:
                    found = self._lead(group, led, deadline)
                    break
                awaited = group.answer
                found = awaited.result(max(0.0, deadline - time.monotonic()))
                with self._lock:
                    # If the leader has left, the first thread that notices it leads.
                    if found is None and group.answer is awaited:
                        led = group.answer = Future()
        except TimeoutError:
            raise DeadlineExceededError(
                f"the key was not answered within {seconds:g} s, which is the timeout of the lookup"
            ) from None
        except InvalidArgumentError:
            if len(group.keys) == 1:
                raise
            # The key of another thread may be the wrong one.
            answer = self._submit(array, max(0.0, deadline - time.monotonic())).answer()
            found, position = (answer, answer.places()), 0
        except Error as error:
            # Each thread raises an error of its own.
            raise with_message(error, error.message) from error
        finally:
            if led is not None and not led.done():
                # This thread was interrupted, or its time has passed. The others must not share its fate.
                self._shut(group)
                led.set_result(None)
        answer, places = found
        return answer.row(key, places.get(position))

    def _shut(self, group: _Group) -> None:
        """Lets no other key join a group."""
        with self._lock:
            if self._groups.get(group.key_type) is group:
                del self._groups[group.key_type]

    def _lead(self, group: _Group, led: Future[_Places | None], deadline: float) -> _Places:
        """Looks up the keys. Raises `TimeoutError` at the deadline of this thread if that of the group is later."""
        try:
            if group.pending is None:
                left = max(0.0, group.deadline - time.monotonic())
                group.pending = self._submit(pa.concat_arrays(group.keys), left, deadline)
            answer = group.pending.answer(deadline)
            found = answer, answer.places()
        except Error as error:
            led.set_exception(error)
            raise
        led.set_result(found)
        return found
