"""Puts the program `volary` into a wheel if the variable VOLARY_WHEEL_BINARY names it. `tools/make_wheel.py` sets it.

Without the variable, the wheel is pure Python, and so is an editable installation. No variant compiles anything.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelWithProgram(BuildHookInterface[Any]):
    """Adds the program as a script, which pip installs in the directory of the commands, and the licences of the
    libraries in it.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs before a wheel is built."""
        named = os.environ.get("VOLARY_WHEEL_BINARY")
        if not named or version == "editable":
            return
        program = Path(named).resolve(strict=True)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        # The program has nothing to do with the version of Python.
        build_data["tag"] = f"py3-none-{platform}"
        build_data["shared_scripts"][str(program)] = "volary"
        licenses = Path(self.root).parent / "packaging" / "licenses" / "third-party.txt"
        build_data["shared_data"][str(licenses)] = "share/doc/volary/third-party.txt"
