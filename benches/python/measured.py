"""Results as they are kept: every sample of every variant, in the form that all tables of the benchmarks have."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

Sample = dict[str, float]
"""What one turn of a variant measured, by metric. The unit is last in a metric's name."""


class Spread(NamedTuple):
    """Median, smallest and largest of the turns."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Iterable[float]) -> Spread:
        """Of at least one sample."""
        samples = list(samples)
        return cls(median(samples), min(samples), max(samples))


@dataclass(frozen=True)
class Variant:
    """What is measured side by side with others."""

    name: str
    """Which no other one of the table has."""
    parameters: dict[str, Any]
    """What tells it from the others."""
    baseline: str | None = None
    """The name of the variant that it is compared with."""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """By metric, in the order of the turns."""

    def add(self, sample: Sample) -> None:
        """One more turn."""
        for metric, value in sample.items():
            self.samples.setdefault(metric, []).append(value)

    def spread(self, metric: str) -> Spread:
        """Of a metric."""
        return Spread.of(self.samples[metric])

    def ratio(self, other: Variant, metric: str) -> Spread:
        """What a metric is in terms of another variant's, turn by turn."""
        pairs = zip(self.samples[metric], other.samples[metric], strict=True)
        return Spread.of(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True)
class Demand:
    """What a figure is to be. It holds by its median."""

    what: str
    goal: str
    """`≤` or `≥`, a number, and perhaps a unit."""
    measured: Spread

    @property
    def holds(self) -> bool:
        """Whether the figure is so."""
        sign, number, *_ = self.goal.split()
        return self.measured.median <= float(number) if sign == "≤" else self.measured.median >= float(number)


@dataclass(frozen=True)
class Table:
    """A table with all that is needed to judge it."""

    table: str
    title: str
    method: str
    size: str
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    """When it ended, in UTC (RFC 3339)."""
    variants: list[Variant]
    demands: list[Demand]

    def write(self, directory: Path) -> Path:
        """Into `<table>.json` of a directory, which is made if need be."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.table}.json"
        raw = asdict(self)
        for demand, described in zip(self.demands, raw["demands"], strict=True):
            described["measured"] = demand.measured._asdict()
            described["holds"] = demand.holds
        path.write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n")
        return path
