"""Writes the results as a page of Markdown, in the form of the pages of the other benchmarks."""

from __future__ import annotations

from pathlib import Path

from measured import Spread, Table, Variant

_GIB = 1 << 30
_TIMES = "\N{MULTIPLICATION SIGN}"
_EXPLAINED = (
    f"Each value is the median of the turns (smallest to largest). After {_TIMES} follows the median of the ratios, "
    "turn by turn, to the variant that it is compared with."
)


def write(table: Table, raw: Path) -> None:
    """Writes a page next to the raw results."""
    machine = table.machine
    versions = ", ".join(f"{name} {version}" for name, version in sorted(table.versions.items()))
    ran_on = (
        f"{table.date}; {machine['model']}, {machine['cpus']} processors, {machine['memory'] / _GIB:.1f} GiB; "
        f"{machine['os']}; {versions}. Raw samples: [{raw.name}]({raw.name})."
    )
    raw.with_suffix(".md").write_text("\n\n".join([text(table), table.method, _EXPLAINED, ran_on]) + "\n")


def text(table: Table) -> str:
    """Returns a table of the goals, and a table with one line per variant and a column per metric."""
    return "\n\n".join([f"## {table.title} ({table.size})", _demands(table), _variants(table)])


def _demands(table: Table) -> str:
    lines = ["| figure | goal | result | |", "|---|---|---:|---|"]
    lines += [
        f"| {demand.what} | {demand.goal} | {_spread(demand.measured)} | {'holds' if demand.holds else '**missed**'} |"
        for demand in table.demands
    ]
    return "\n".join(lines)


def _variants(table: Table) -> str:
    by_name = {variant.name: variant for variant in table.variants}
    # Metrics appear in the order in which they were first measured.
    metrics = list(dict.fromkeys(metric for variant in table.variants for metric in variant.samples))
    lines = ["| | " + " | ".join([*metrics, "compared with"]) + " |", "|---" + "|---:" * len(metrics) + "|---|"]
    for variant in table.variants:
        other = by_name[variant.baseline] if variant.baseline is not None else None
        cells = [_cell(variant, other, metric) for metric in metrics]
        lines.append("| " + " | ".join([variant.name, *cells, variant.baseline or ""]) + " |")
    return "\n".join(lines)


def _cell(variant: Variant, other: Variant | None, metric: str) -> str:
    if metric not in variant.samples:
        return ""
    shown = _spread(variant.spread(metric))
    # A ratio to zero has no meaning.
    if other is None or metric not in other.samples or min(other.samples[metric]) <= 0:
        return shown
    return f"{shown}, {_TIMES} {_spread(variant.ratio(other, metric))}"


def _spread(spread: Spread) -> str:
    if spread.low == spread.high:
        return _figure(spread.median)
    return f"{_figure(spread.median)} ({_figure(spread.low)} to {_figure(spread.high)})"


def _figure(value: float) -> str:
    """Formats a number with about three significant digits."""
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{decimals}f}"
