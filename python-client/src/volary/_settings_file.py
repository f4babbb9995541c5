"""Writes the settings of a cluster as the TOML that the program `volary` reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from .errors import InvalidArgumentError

Setting: TypeAlias = "str | int | float | bool | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""The value of a setting. Sizes and times are strings, such as `1GiB` and `10s`."""

_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


def to_toml(settings: Mapping[str, Setting]) -> str:
    """Returns a file of settings. The keys are those of docs/configuration.md, such as `gateway.query.memory`.

    Raises `InvalidArgumentError` for a key or a value that cannot be that of a setting. The program checks the rest.
    """
    return "".join(f"{_checked(key)} = {_value(key, value)}\n" for key, value in settings.items())


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InvalidArgumentError(f'"{key}" is not the key of a setting: write, for example, gateway.query.memory')
    section, name = key.split(".", 1)
    if section == "local":
        raise InvalidArgumentError(f"{key} is not a setting here: give {name} as an argument")
    return key


def _value(key: str, value: Setting) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str | os.PathLike):
        return _text(os.fspath(value))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return f"[{', '.join(_text(os.fspath(item)) for item in value)}]"
    raise InvalidArgumentError(f"{key} cannot be {value!r}: a setting is a text, a number, a truth value or a list")


def _text(text: str) -> str:
    # The escapes of JSON are escapes of TOML, if no character takes two of them. TOML also escapes DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
