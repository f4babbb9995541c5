"""Splits the text of several statements, because the gateway takes one at a time.

Hooks, operations and `sql_header` may have several statements with semicolons between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# What hides a semicolon: quoted texts and names, comments, and texts in dollars. An end that is missing is the end of
# the text; the gateway then says what is wrong.
_TOKEN = re.compile(
    r"""
    (?P<hidden>'(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z) | \$(?P<tag>[A-Za-z_]*)\$.*?(?:\$(?P=tag)\$|\Z))
    | (?P<comment>--[^\n]* | /\*)
    | (?P<semicolon>;)
    | (?P<space>\s+)
    | (?P<other>[^'"$/;\s-]+ | .)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def split(text: str) -> list[str]:
    """Returns the statements, each with the comments before it. Comments behind the last one are left out."""
    if ";" not in text:
        return [text]
    found = list(_statements(text))
    return found or [text]


def _statements(text: str) -> Iterator[str]:
    start = position = 0
    is_empty = True
    while position < len(text):
        token = _TOKEN.match(text, position)
        assert token is not None
        position = token.end()
        if token["semicolon"] is not None:
            if not is_empty:
                yield text[start : token.start()].strip()
                start = position
            is_empty = True
        elif token["comment"] == "/*":
            position = _end_of_comment(text, position)
        elif token["comment"] is None and token["space"] is None:
            is_empty = False
    if not is_empty:
        yield text[start:].strip()


def _end_of_comment(text: str, position: int) -> int:
    """Returns where a comment ends that has begun before `position`. Comments may be within each other."""
    depth = 1
    while depth and (edge := _COMMENT_EDGE.search(text, position)) is not None:
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return len(text) if depth else position
