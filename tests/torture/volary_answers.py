"""Asks a cluster whose nodes may be starting, and tells what it may answer from what is a bug."""

from __future__ import annotations

import re

from processes import Processes, until

import volary

DEADLINE_SECONDS = 30
"""Longest time that a statement of a test may take."""
_DAMAGE = re.compile("(DATA_LOSS|INTERNAL): ")
ALLOWED = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"})
"""The codes of errors that a cluster whose nodes die may answer with. All others are bugs."""


def check_allowed(error: Exception) -> None:
    """Fails unless a cluster whose nodes die may answer with this error."""
    # A lost connection is reported by pyarrow without a code of the server.
    is_allowed = str(error.code) in ALLOWED if isinstance(error, volary.Error) else not _DAMAGE.search(str(error))
    assert is_allowed, f"a statement failed with {error}"


class Damaged(Exception):
    """The cluster has answered that data is damaged."""


def rows(processes: Processes, query: str) -> list[tuple]:
    """Returns the rows of a query, as soon as the cluster can answer it. Raises `Damaged` for `DATA_LOSS`."""
    found: list[list[tuple]] = []

    def is_answered() -> bool:
        try:
            found.append(processes.sql(query))
        except volary.DataLossError as error:
            raise Damaged(str(error)) from error
        except volary.Error as error:
            check_allowed(error)
            return False
        return True

    until(is_answered, f"the cluster answers {query}")
    return found[0]
