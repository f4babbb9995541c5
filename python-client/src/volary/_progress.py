"""Progress bars, which tqdm draws: in a terminal, or in a notebook."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

import adbc_driver_manager as adbc

from .errors import InvalidArgumentError

# Of the driver: it then polls the gateway while it executes a statement.
INCREMENTAL = {"adbc.statement.exec.incremental": "true"}
_PROGRESS = "adbc.statement.exec.progress"
_STEPS = 100
_LOOK_SECONDS = 0.1


def bar(total: int, description: str, unit: str) -> Any:
    """A bar of so many steps; it goes away when it is closed."""
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError as error:
        raise InvalidArgumentError("progress bars are drawn by tqdm: pip install 'volary[progress]'") from error
    return tqdm(total=total, desc=description, unit=unit, leave=False)


class QueryBar:
    """Shows how far the workers are with a statement, as long as it is executed."""

    def __init__(self, statement: adbc.AdbcStatement) -> None:
        self._statement = statement
        self._bar = bar(_STEPS, "query", "%")
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, name="volary-progress", daemon=True)

    def __enter__(self) -> QueryBar:
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._looking.join()
        if kind is None:
            self._show(1.0)
        self._bar.close()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            with suppress(adbc.Error):
                self._show(self._statement.get_option_float(_PROGRESS))

    def _show(self, done: float) -> None:
        self._bar.update(round(min(max(done, 0.0), 1.0) * _STEPS) - self._bar.n)
