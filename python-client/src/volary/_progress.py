"""Progress bars, drawn by tqdm in a terminal or in a notebook."""

from __future__ import annotations

from typing import Any

from .errors import InvalidArgumentError

_STEPS = 100


class QueryBar:
    """Shows how far the workers are with a query, from 0 to 1. The bar disappears when it is closed."""

    def __init__(self) -> None:
        self._bar = _bar(_STEPS, "query", "%")

    def show(self, done: float) -> None:
        """Redraws the bar."""
        self._bar.update(round(min(max(done, 0.0), 1.0) * _STEPS) - self._bar.n)

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()


class PartBar:
    """Shows how many parts of a result were read. The bar disappears when it is closed."""

    def __init__(self, parts: int) -> None:
        self._bar = _bar(parts, "parts", "part")

    def step(self) -> None:
        """Counts one more part that was read."""
        self._bar.update()

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()


def _bar(total: int, description: str, unit: str) -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError as error:
        raise InvalidArgumentError("a progress bar needs the package tqdm: pip install 'volary[progress]'") from error
    return tqdm(total=total, desc=description, unit=unit, leave=False)
