"""Writes the settings that users of the Terraform module may choose: those of docs/configuration.md, without those that
the module decides itself.

    python tools/terraform_settings.py        writes the list
"""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE = REPOSITORY / "docs" / "configuration.md"
LIST = REPOSITORY / "terraform" / "aws" / "modules" / "bootstrap" / "files" / "settings.txt"

_DECIDED = re.compile(
    r"local\."  # no machine runs a cluster in one process
    r"|operations\.(listen|token_file|tls\.)|traces\.(endpoint|sample)"  # variables of their own
    r"|(gateway|worker)\.(listen|advertise|data_dir|gateway|secret|zone|tls\.)"
    r"|gateway\.security\.admin_password"  # a secret
    r"|worker\.clients\."  # no rule lets clients connect to workers
)


def settings(reference: str) -> list[str]:
    """Returns the keys that the reference lists and the module does not decide."""
    keys = []
    section = ""
    for line in reference.splitlines():
        if heading := re.fullmatch(r"## `\[([a-z_.]+)\]`", line):
            section = heading[1]
        elif row := re.match(r"\| `([a-z_]+)` \|", line):
            keys.append(f"{section}.{row[1]}")
    return sorted(key for key in keys if not _DECIDED.match(key))


def text() -> str:
    """Returns the list as it is written."""
    return "".join(f"{key}\n" for key in settings(REFERENCE.read_text()))


if __name__ == "__main__":
    LIST.write_text(text())
