"""Runs many rounds: `make torture ROUNDS=500 SEED=7`."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path

from nemesis import KINDS
from run_rounds import run_rounds


def main() -> None:
    """Runs what the arguments say. The directory is deleted if nothing fails."""
    parser = argparse.ArgumentParser(prog="torture")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, help="the same seed makes the same statements and strikes")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of rounds, separated by commas")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    directory = Path(tempfile.mkdtemp(prefix="volary-torture-"))
    print(f"seed {seed}, {arguments.rounds} rounds in {directory}", flush=True)
    torture = run_rounds(
        directory, seed, arguments.rounds, lambda line: print(line, flush=True), arguments.kinds.split(",")
    )
    print("kill points, how often they were armed, and how often they ended a process:")
    for point, count in sorted(torture.armed.items()):
        print(f"  {point}: {count}, {torture.fired[point]}")
    print(f"all {arguments.rounds} rounds passed; errors of statements: {torture.history.errors}")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
