"""Raw results as `volary-bench` keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple


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
    """What was measured side by side with others."""

    name: str
    parameters: dict[str, Any]
    baseline: str | None
    samples: dict[str, list[float]]

    def spread(self, metric: str) -> Spread:
        """Of a metric."""
        return Spread.of(self.samples[metric])


@dataclass(frozen=True)
class Results:
    """A table."""

    table: str
    title: str
    size: str
    machine: dict[str, Any]
    versions: dict[str, str]
    variants: list[Variant]

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Results:
        """From a file's content."""
        variants = [
            Variant(each["name"], each["parameters"], each.get("baseline"), each["samples"]) for each in raw["variants"]
        ]
        return cls(raw["table"], raw["title"], raw["size"], raw["machine"], raw["versions"], variants)

    def ratio(self, variant: Variant, metric: str) -> Spread:
        """What a metric is in terms of the baseline's, turn by turn."""
        (baseline,) = (other for other in self.variants if other.name == variant.baseline)
        pairs = zip(variant.samples[metric], baseline.samples[metric], strict=True)
        return Spread.of(ours / theirs for ours, theirs in pairs)

    def metrics(self) -> list[str]:
        """All that is measured of any variant, sorted."""
        return sorted({metric for variant in self.variants for metric in variant.samples})
