"""The version of the package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("volary")
except PackageNotFoundError:  # the sources are used without being installed
    __version__ = "unknown"
