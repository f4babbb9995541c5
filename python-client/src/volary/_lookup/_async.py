"""Joins single keys that several tasks of an event loop ask for at about the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pyarrow as pa

from ..errors import Error, InvalidArgumentError, with_message
from ._answer import Answer

_Row: TypeAlias = "asyncio.Future[tuple[Answer, range | None]]"
LookUp: TypeAlias = "Callable[[pa.Array[Any]], Awaitable[Answer]]"


class AsyncJoiner:
    """Collects keys for a short time, and looks them up together. Must be used in one event loop."""

    def __init__(self, look_up: LookUp, window_seconds: float) -> None:
        self._look_up = look_up
        self._window_seconds = window_seconds
        # By the type of the keys: each key as an array, and the future of its answer.
        self._groups: dict[pa.DataType, list[tuple[pa.Array[Any], _Row]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def one(self, key: Any, array: pa.Array[Any]) -> dict[str, Any] | None:
        """Returns the row of a key, which is the only element of `array`: see `volary.Lookup.one`."""
        loop = asyncio.get_running_loop()
        row: _Row = loop.create_future()
        group = self._groups.get(array.type)
        if group is None:
            group = self._groups[array.type] = []
            loop.call_later(self._window_seconds, self._begin, array.type)
        group.append((array, row))
        try:
            answer, place = await row
        except InvalidArgumentError:
            # The key of another task may be the wrong one.
            answer = await self._look_up(array)
            place = answer.places().get(0)
        return answer.row(key, place)

    def _begin(self, key_type: pa.DataType) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(self._groups.pop(key_type)))
        # An event loop forgets tasks to which nobody refers.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, group: list[tuple[pa.Array[Any], _Row]]) -> None:
        try:
            answer = await self._look_up(pa.concat_arrays([array for array, _ in group]))
        except Exception as error:
            for _, row in group:
                if not row.done():
                    # Each task raises an error of its own.
                    row.set_exception(with_message(error, error.message) if isinstance(error, Error) else error)
            return
        except BaseException:
            for _, row in group:
                row.cancel()
            raise
        places = answer.places()
        for position, (_, row) in enumerate(group):
            if not row.done():
                row.set_result((answer, places.get(position)))
