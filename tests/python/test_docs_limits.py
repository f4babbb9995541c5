"""Tests that docs/limits.md is the page of this release. Runs its queries unchanged."""

import re
import subprocess
from pathlib import Path

from processes import binary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"


def test_the_page_is_what_the_binary_prints():
    printed = subprocess.run(
        [binary("volary"), "config", "--limits"], check=True, capture_output=True, encoding="utf-8"
    )
    assert printed.stdout == PAGE.read_text(encoding="utf-8")


def test_the_queries_of_the_page_have_rows_or_none(connection):
    examples = "".join(re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    queries = [query.strip() for query in examples.split(";") if query.strip()]
    assert len(queries) == 4
    for query in queries:
        connection.sql(query).rows()
