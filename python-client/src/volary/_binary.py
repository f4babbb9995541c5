"""Finds the program `volary` on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ._version import __version__
from .errors import InvalidArgumentError, NotFoundError, UnimplementedError

PROGRAM = "volary"
VARIABLE = "VOLARY_BIN"

_HOW_TO_INSTALL = (
    "install a wheel of this package that brings it (`make wheel` in a checkout makes one), or the Debian package, "
    "or build it with `cargo build --release -p volary-cli`. "
    f"It is looked for in {VARIABLE}, beside this package, and in PATH"
)


def find_binary() -> Path:
    """Returns the path of the program `volary`.

    The variable VOLARY_BIN names it. Without this variable, it is the program that the wheel of this package has
    installed, which has the version of the package. If this package has no program, it is the one in PATH.

    Raises `NotFoundError` if there is no program, and `InvalidArgumentError` if VOLARY_BIN names something else.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not _is_program(Path(named)):
            raise InvalidArgumentError(f"{VARIABLE} is {named}, which is not a program")
        return Path(named)
    for path in _beside_this_package():
        if _is_program(path):
            return path
    found = shutil.which(PROGRAM)
    if found is None:
        raise NotFoundError(f"the program {PROGRAM} is not installed: {_HOW_TO_INSTALL}")
    return Path(found)


def too_old(binary: Path) -> UnimplementedError:
    """Returns the error for a program that does not know an argument of this package."""
    said = subprocess.run([binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    version = said.stdout.strip() or "of an unknown version"
    return UnimplementedError(
        f"{binary} is {version}, which is too old for the Python package volary {__version__}: {_HOW_TO_INSTALL}"
    )


def _beside_this_package() -> Iterator[Path]:
    # pip records where it has put the files of a wheel, in whatever kind of environment.
    try:
        files = metadata.files(PROGRAM) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == PROGRAM and file.parent.name != PROGRAM:
            yield Path(str(file.locate()))
    # `pip install --target DIRECTORY` records a place that it then leaves.
    yield Path(__file__).parents[1] / "bin" / PROGRAM


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
