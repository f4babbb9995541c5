"""Makes a wheel of the Python package that brings the program `volary`. Compiles nothing, and prints the wheel's path.

    tools/make_wheel.py PROGRAM DIRECTORY

The name of the wheel says on which machines it runs: auditwheel reads from the program which version of the C library
it needs. pip refuses the wheel on an older machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "python-client"


def build(program: Path, directory: Path, compression: int = 6) -> Path:
    """Makes the wheel in `directory`, and returns its path. An earlier wheel of the same name is replaced.

    `compression` is the level of the archive: with 1, the wheel is made in half the time, and is larger.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        stripped = Path(temporary, "volary")
        _strip(program, stripped)
        untagged = Path(temporary, "untagged")
        _run(
            ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(untagged)],
            {"VOLARY_WHEEL_BINARY": str(stripped)},
        )
        (wheel,) = untagged.glob("*.whl")
        if sys.platform == "linux":
            tagged = Path(temporary, "tagged")
            # The program needs only libraries that every Linux has, so nothing has to be patched into it.
            options = ["--patcher", "none", "--zip-compression-level", str(compression), "--wheel-dir", str(tagged)]
            _run(["-m", "auditwheel", "repair", *options, str(wheel)], {})
            (wheel,) = tagged.glob("*.whl")
        return Path(shutil.copy2(wheel, directory / wheel.name))


def _strip(program: Path, stripped: Path) -> None:
    """Copies the program without the names of its functions, which take a fifth of its size."""
    if shutil.which("strip"):
        subprocess.run(["strip", "-o", stripped, program], check=True)
    else:
        shutil.copy2(program, stripped)


def _run(arguments: list[str], variables: dict[str, str]) -> None:
    """Runs a tool of this Python. Its output is shown if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=CLIENT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stdout}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1]).resolve(strict=True), Path(sys.argv[2]).resolve()))
