"""Joins single keys that several threads ask for at about the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

import pyarrow as pa

from ..errors import DeadlineExceededError, Error, InvalidArgumentError, with_message
from ._answer import Answer

LookUp: TypeAlias = "Callable[[pa.Array[Any], float], Answer]"
"""Looks up keys within some seconds."""

_Places = tuple[Answer, dict[int, range]]


class _Group:
    """Keys of one type that are looked up together."""

    def __init__(self, key_type: pa.DataType) -> None:
        self.key_type = key_type
        self.keys: list[pa.Array[Any]] = []
        self.answer: Future[_Places] = Future()


class Joiner:
    """Collects keys for a short time. The thread that asks first looks them up for all."""

    def __init__(self, look_up: LookUp, window_seconds: float) -> None:
        self._look_up = look_up
        self._window_seconds = window_seconds
        self._lock = threading.Lock()
        self._groups: dict[pa.DataType, _Group] = {}

    def one(self, key: Any, array: pa.Array[Any], seconds: float) -> dict[str, Any] | None:
        """Returns the row of a key, which is the only element of `array`: see `volary.Lookup.one`."""
        deadline = time.monotonic() + seconds
        with self._lock:
            group = self._groups.get(array.type)
            is_first = group is None
            if group is None:
                group = self._groups[array.type] = _Group(array.type)
            position = len(group.keys)
            group.keys.append(array)
        if is_first:
            self._lead(group, seconds)
        try:
            answer, places = group.answer.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise DeadlineExceededError(
                f"the key was not answered within {seconds:g} s, which is the timeout of the lookup"
            ) from None
        except InvalidArgumentError:
            # The key of another thread may be the wrong one.
            answer = self._look_up(array, max(0.0, deadline - time.monotonic()))
            return answer.row(key, answer.places().get(0))
        except Error as error:
            # Each thread raises an error of its own.
            raise with_message(error, error.message) from error
        return answer.row(key, places.get(position))

    def _lead(self, group: _Group, seconds: float) -> None:
        try:
            time.sleep(self._window_seconds)
        finally:
            # If this thread is interrupted, the others must not wait for it.
            with self._lock:
                del self._groups[group.key_type]
            try:
                answer = self._look_up(pa.concat_arrays(group.keys), seconds)
                group.answer.set_result((answer, answer.places()))
            except BaseException as error:
                group.answer.set_exception(error)
