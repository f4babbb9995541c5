"""The tests of Ibis that Volary does not pass, and why."""

from __future__ import annotations

SKIPPED = {
    "snapshot": "compares SQL with files that Ibis keeps for its own backends",
    "assert_sql": "compares SQL with files that Ibis keeps for its own backends",
}


def reason_of(test: str) -> str | None:
    """Returns why a test, written as `file::name`, fails."""
    return None
