"""Every setting has the same name in all forms in which it can be given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes import run

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def leaves(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Returns the key and the value of each setting."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def in_effect(*arguments: str, **environment: str) -> dict[str, Any]:
    """Returns the settings in effect."""
    ended = run("volary", "config", *arguments, settings=environment)
    assert ended.code == 0, ended.err
    return dict(leaves(json.loads(ended.out)))


def test_the_page_has_every_setting_with_its_default() -> None:
    documented = {}
    section = ""
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"## `\[([a-z_.]+)\]`", line):
            section = heading[1]
        elif row := re.match(r"\| `([a-z_]+)` \| (?:none|`(.*?)`) \|", line):
            documented[f"{section}.{row[1]}"] = json.loads(row[2]) if row[2] else None
    assert documented == in_effect()


def test_the_environment_and_a_file_take_every_setting(tmp_path: Path) -> None:
    defaults = {key: value for key, value in in_effect().items() if value is not None}
    assert len(defaults) > 60

    def text(value: Any) -> str:
        return (
            ",".join(value) if isinstance(value, list) else str(value).lower() if value in (True, False) else str(value)
        )

    environment = {f"VOLARY_{key.upper().replace('.', '__')}": text(value) for key, value in defaults.items()}
    assert in_effect(**environment) == in_effect()
    # Strings, numbers, booleans and lists of strings are written in TOML as in JSON.
    file = tmp_path / "all.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in defaults.items()))
    assert in_effect(f"--config={file}") == in_effect()
    checked = run("volary", "config", "--check", f"--config={file}")
    assert (checked.code, checked.out) == (0, "the settings are valid\n")
