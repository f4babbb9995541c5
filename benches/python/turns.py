"""Measures variants in turns. If the machine is slow for a while, all variants are measured slow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from statistics import quantiles

from measured import Sample, Variant

Measure = Callable[[], Sample]
"""A function that measures a variant once."""


def measure_in_turns(
    measures: Mapping[str, Measure], variants: Mapping[str, Variant], turns: int, warm_ups: int
) -> None:
    """Measures all variants one after another in each turn. The first `warm_ups` turns are not counted."""
    for turn in range(warm_ups + turns):
        for name, measure in measures.items():
            sample = measure()
            if turn >= warm_ups:
                variants[name].add(sample)
                figures = " ".join(f"{metric}={value:.3f}" for metric, value in sample.items())
                print(f"{name}: {figures}", file=sys.stderr)


def latencies(seconds: list[float]) -> Sample:
    """Returns percentiles of the times of requests."""
    percentiles = quantiles(seconds, n=100, method="inclusive")
    return {f"p{percent}_ms": 1000 * percentiles[percent - 1] for percent in (50, 90, 99)}
