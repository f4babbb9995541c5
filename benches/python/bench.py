"""Benchmarks Python clients. Measures variants in turns, prints the results as tables, and stores every sample.

python benches/python/bench.py --only python_concurrency --quick
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import drivers
import lookups_in_process
import machine
import page
import python_concurrency
import result_transfer
from measured import Table
from sizes import NORMAL, QUICK, SMOKE, Size

_TABLES = {module.TABLE: module for module in (python_concurrency, result_transfer, drivers, lookups_in_process)}


def main() -> None:
    """Measures the tables that the arguments name."""
    arguments = _parser().parse_args()
    size = arguments.size
    if arguments.mib is not None:
        size = replace(size, transfer_mib=arguments.mib)
    for name in arguments.only or _TABLES:
        print(f"{name}: {size.name} run", file=sys.stderr)
        table = _measured(_TABLES[name], size)
        raw = table.write(arguments.results)
        page.write(table, raw)
        print(f"{page.text(table)}\n\n{raw}\n")


def _measured(module: ModuleType, size: Size) -> Table:
    with tempfile.TemporaryDirectory(prefix="volary-bench-") as directory:
        variants, demands, versions = module.measure(size, Path(directory))
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Table(
        module.TABLE,
        module.TITLE,
        module.METHOD,
        size.name,
        machine.machine(),
        machine.versions(versions),
        date,
        variants,
        demands,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="append",
        choices=_TABLES,
        metavar="TABLE",
        help=f"a table, by name: {', '.join(_TABLES)}; may be given several times (default: all)",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", dest="size", action="store_const", const=QUICK, help="smaller sizes: about a minute")
    sizes.add_argument(
        "--smoke",
        dest="size",
        action="store_const",
        const=SMOKE,
        help="so small that the figures mean nothing; only shows that everything works",
    )
    parser.add_argument("--mib", type=int, help="size of the table that is transferred (default: 1,000; quick: 128)")
    parser.add_argument("--results", type=Path, default=Path("benches/results"), help="directory of the results")
    parser.set_defaults(size=NORMAL)
    return parser


if __name__ == "__main__":
    main()
