"""Draws lines and bars with their medians and spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from matplotlib.typing import ColorType
from results import Spread

_CAP_POINTS = 2.5
_WIDTH_OF_GROUP = 0.8


def lines(
    axes: Axes, series: Mapping[str, Sequence[tuple[float, Spread]]], *, log_y: bool = False
) -> dict[str, ColorType]:
    """Draws one line per series over a logarithmic axis. Returns the colour of each line."""
    places = sorted({x for points in series.values() for x, _ in points})
    colours = {}
    for name, points in series.items():
        xs = [x for x, _ in points]
        ys = [spread.median for _, spread in points]
        reach = _reach([spread for _, spread in points])
        drawn = axes.errorbar(xs, ys, yerr=reach, marker="o", capsize=_CAP_POINTS, label=name)
        colours[name] = drawn.lines[0].get_color()
    axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    return colours


def bars(axes: Axes, groups: Sequence[str], series: Mapping[str, Mapping[str, Spread]]) -> None:
    """Draws one bar per series in each group. A group need not have a bar for every series."""
    width = _WIDTH_OF_GROUP / len(series)
    for index, (name, by_group) in enumerate(series.items()):
        offset = (index - (len(series) - 1) / 2) * width
        there = [(place, by_group[group]) for place, group in enumerate(groups) if group in by_group]
        axes.bar(
            [place + offset for place, _ in there],
            [spread.median for _, spread in there],
            width,
            yerr=_reach([spread for _, spread in there]),
            capsize=_CAP_POINTS,
            label=name,
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)


def level(axes: Axes, value: float, name: str) -> None:
    """Draws a horizontal line with a name."""
    axes.axhline(value, color="gray", linestyle="--", linewidth=1, label=name)
    _, top = axes.get_ylim()
    axes.set_ylim(top=max(top, 1.1 * value))


def legend(figure: Figure) -> None:
    """Draws a legend next to the panels, if the figure has several names."""
    labelled = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        labelled.update(zip(labels, handles, strict=True))
    if len(labelled) > 1:
        figure.legend(labelled.values(), labelled.keys(), loc="outside right upper")


def _reach(spreads: Sequence[Spread]) -> list[list[float]]:
    """Returns how far each spread reaches below and above its median."""
    return [
        [spread.median - spread.low for spread in spreads],
        [spread.high - spread.median for spread in spreads],
    ]
