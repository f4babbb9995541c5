"""Reads raw results as `volary-bench` stores them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple


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
    parameters: dict[str, Any]
    baseline: str | None
    samples: dict[str, list[float]]

    def spread(self, metric: str) -> Spread:
        """Returns the spread of a metric."""
        return Spread.of(self.samples[metric])


@dataclass(frozen=True)
class Results:
    """The results of a table."""

    table: str
    title: str
    size: str
    machine: dict[str, Any]
    versions: dict[str, str]
    variants: list[Variant]

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Results:
        """Creates the results from the content of a file."""
        variants = [
            Variant(each["name"], each["parameters"], each.get("baseline"), each["samples"]) for each in raw["variants"]
        ]
        return cls(raw["table"], raw["title"], raw["size"], raw["machine"], raw["versions"], variants)

    def ratio(self, variant: Variant, metric: str) -> Spread:
        """Returns the ratio of a metric to the baseline's, turn by turn."""
        (baseline,) = (other for other in self.variants if other.name == variant.baseline)
        pairs = zip(variant.samples[metric], baseline.samples[metric], strict=True)
        return Spread.of(ours / theirs for ours, theirs in pairs)

    def metrics(self) -> list[str]:
        """Returns the names of all metrics of all variants, sorted."""
        return sorted({metric for variant in self.variants for metric in variant.samples})
