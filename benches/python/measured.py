"""Defines the stored results: every sample of every variant, in the format that all benchmarks use."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

Sample = dict[str, float]
"""The values measured in one turn of a variant, by metric. The name of a metric ends with its unit."""


class Spread(NamedTuple):
    """The median, the smallest and the largest of the turns."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Iterable[float]) -> Spread:
        """Returns the spread of at least one sample."""
        samples = list(samples)
        return cls(median(samples), min(samples), max(samples))


@dataclass(frozen=True)
class Variant:
    """A variant with its samples."""

    name: str
    """The name of the variant, which is unique in its table."""
    parameters: dict[str, Any]
    """The parameters in which the variant differs from the others."""
    baseline: str | None = None
    """The name of the variant that this one is compared with."""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """The samples by metric, in the order of the turns."""

    def add(self, sample: Sample) -> None:
        """Adds the sample of one more turn."""
        for metric, value in sample.items():
            self.samples.setdefault(metric, []).append(value)

    def spread(self, metric: str) -> Spread:
        """Returns the spread of a metric."""
        return Spread.of(self.samples[metric])

    def ratio(self, other: Variant, metric: str) -> Spread:
        """Returns the spread of the ratios of a metric to that of another variant, turn by turn."""
        pairs = zip(self.samples[metric], other.samples[metric], strict=True)
        return Spread.of(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True)
class Demand:
    """The goal for a figure. The median of the figure must meet it."""

    what: str
    goal: str
    """The goal: `≤` or `≥`, a number, and perhaps a unit."""
    measured: Spread

    @property
    def holds(self) -> bool:
        """Returns whether the figure meets the goal."""
        sign, number, *_ = self.goal.split()
        return self.measured.median <= float(number) if sign == "≤" else self.measured.median >= float(number)


@dataclass(frozen=True)
class Table:
    """The results of a table, with everything that is needed to judge them."""

    table: str
    title: str
    method: str
    size: str
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    """The time at which the run ended, in UTC (RFC 3339)."""
    variants: list[Variant]
    demands: list[Demand]

    def write(self, directory: Path) -> Path:
        """Writes the results to `<table>.json` in a directory. Creates the directory if it does not exist."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.table}.json"
        raw = asdict(self)
        for demand, described in zip(self.demands, raw["demands"], strict=True):
            described["measured"] = demand.measured._asdict()
            described["holds"] = demand.holds
        path.write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n")
        return path
