"""Joins single keys that several tasks of an event loop ask for at about the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from ..errors import Error, InvalidArgumentError, with_message
from ._answer import Answer

_Row: TypeAlias = "asyncio.Future[tuple[Answer, range | None]]"
LookUp: TypeAlias = "Callable[[pa.Array[Any]], Awaitable[Answer]]"


@dataclass(slots=True, eq=False)
class _Group:
    """Keys of one type that are looked up together."""

    loop: asyncio.AbstractEventLoop
    # Each key as an array, and the future of its answer.
    members: list[tuple[pa.Array[Any], _Row]] = field(default_factory=list)


class AsyncJoiner:
    """Collects keys for a short time, and looks them up together."""

    def __init__(self, look_up: LookUp, window_seconds: float) -> None:
        self._look_up = look_up
        self._window_seconds = window_seconds
        # By the type of the keys: those that may still be joined.
        self._groups: dict[pa.DataType, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def one(self, key: Any, array: pa.Array[Any]) -> dict[str, Any] | None:
        """Returns the row of a key, which is the only element of `array`: see `volary.Lookup.one`."""
        loop = asyncio.get_running_loop()
        row: _Row = loop.create_future()
        group = self._groups.get(array.type)
        # A program may run several event loops, one after another. A group of one that has ended is never looked up.
        if group is None or group.loop is not loop:
            group = self._groups[array.type] = _Group(loop)
            loop.call_later(self._window_seconds, self._begin, array.type, group)
        group.members.append((array, row))
        try:
            answer, place = await row
        except InvalidArgumentError:
            # The key of another task may be the wrong one.
            answer = await self._look_up(array)
            place = answer.places().get(0)
        return answer.row(key, place)

    def _begin(self, key_type: pa.DataType, group: _Group) -> None:
        if self._groups.get(key_type) is group:
            del self._groups[key_type]
        task = group.loop.create_task(self._answer(group.members))
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
