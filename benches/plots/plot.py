"""Draws the raw results of the benchmarks, one SVG per table.

    python benches/plots/plot.py benches/results docs/benchmarks

The same results always give the same bytes. A mark is the median of the turns, and its bar is their spread.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl
from charts import draw
from results import Results

_GIB = 1 << 30


def main() -> None:
    """Reads all results in one directory, and writes all plots to another directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="directory of the raw results, a JSON file per table")
    parser.add_argument("plots", type=Path, help="directory of the plots; it is created if it does not exist")
    arguments = parser.parse_args()
    mpl.rcParams.update({"svg.hashsalt": "volary", "svg.fonttype": "none", "font.size": 9})
    arguments.plots.mkdir(parents=True, exist_ok=True)
    paths = sorted(arguments.results.glob("*.json"))
    if not paths:
        parser.error(f"there are no results in {arguments.results}")
    for path in paths:
        results = Results.of(json.loads(path.read_text()))
        figure = draw(results)
        figure.suptitle(results.title)
        figure.supxlabel(caption(results), fontsize=7, color="gray")
        target = arguments.plots / f"{results.table}.svg"
        figure.savefig(target, metadata={"Date": None, "Creator": None})
        print(target)


def caption(results: Results) -> str:
    """Returns what was measured, and on which machine."""
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    return (
        f"{machine['cpus']} processors ({machine['model']}), {machine['memory'] / _GIB:.0f} GiB, {machine['os']}; "
        f"{versions}; size: {results.size}"
    )


if __name__ == "__main__":
    main()
