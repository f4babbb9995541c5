"""Tests that docs/functions.md is made of tests/sql/functions_*.slt, and lists each function once.

The tests of `tests/sql` run its examples.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from functions_page import KINDS, SPELLING, SYNTAX, Entry, Malformed, sections, sections_of

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "functions.md"
FOREIGN = REPOSITORY / "gateway" / "src" / "sql" / "foreign_functions.rs"
FOREIGN_TOKENS = REPOSITORY / "gateway" / "src" / "sql" / "foreign_tokens.rs"


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return [entry for section in sections() for entry in section.entries]


def test_the_page_is_what_the_script_makes():
    printed = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "functions_page.py"], check=True, capture_output=True, encoding="utf-8"
    )
    assert printed.stdout == PAGE.read_text(encoding="utf-8")


def test_the_page_has_each_function_of_the_server_once_and_no_other(connection, entries):
    listed = connection.sql("SELECT DISTINCT function_type, routine_name FROM information_schema.routines").rows()
    described = Counter((entry.kind, name) for entry in entries if entry.kind in KINDS for name in entry.names)
    assert [function for function, count in described.items() if count > 1] == []
    assert sorted(set(listed) - set(described)) == [], "these functions have no entry"
    assert sorted(set(described) - set(listed)) == [], "there are no such functions"


def test_show_functions_lists_each_function_once_with_its_kind_and_its_call(connection):
    shown = connection.sql("SHOW FUNCTIONS").rows()
    listed = connection.sql("SELECT DISTINCT routine_name, function_type FROM information_schema.routines").rows()
    assert sorted((name, kind) for name, kind, *_ in shown) == sorted(listed)
    # The call of another name is that of the function that it stands for.
    assert [name for name, _, call, _ in shown if not re.search(r"\w", call or "")] == []
    calls = {name: call for name, _, call, _ in shown}
    assert (calls["timestampdiff"], calls["now"]) == ("timestampdiff(unit, begin, end)", "now()")
    assert {name for name, *_ in connection.sql("SHOW FUNCTIONS LIKE 'approx%'").rows()} == {
        name for name in calls if name.startswith("approx")
    }


def test_other_names_are_those_of_the_same_function(connection, entries):
    routines = connection.sql(
        "SELECT DISTINCT function_type, routine_name, description, syntax_example FROM information_schema.routines"
    ).rows()
    documentation = {(kind, name): documents for kind, name, *documents in routines}
    for entry in entries:
        for alias in entry.aliases:
            assert documentation[entry.kind, alias] == documentation[entry.kind, entry.name], (entry.name, alias)


def test_the_page_has_each_spelling_of_other_databases(entries):
    functions, tokens = (
        file.read_text(encoding="utf-8").partition("#[cfg(test)]")[0] for file in (FOREIGN, FOREIGN_TOKENS)
    )
    tables = re.findall(r"^const (?:NAMES|PARTS): .*?^\];", functions, re.DOTALL | re.MULTILINE)
    assert len(tables) == 2
    understood = set(re.findall(r'\("(\w+)", "\w+"\)', "".join(tables)))
    understood |= set(re.findall(r'^ +\("(\w+)", \[', functions, re.MULTILINE))
    (without_parentheses,) = re.findall(r"^const WITHOUT_PARENTHESES: .*?^\];", tokens, re.DOTALL | re.MULTILINE)
    understood |= {name.lower() for name in re.findall(r"Keyword::(\w+),", without_parentheses)}
    # DataFusion has functions of these names, and there is no function that tells about roles.
    understood -= {"rand", "timestampdiff", "current_role"}
    spelled = [entry.name for entry in entries if entry.kind == SPELLING]
    assert sorted(spelled) == sorted(understood)


def test_examples_call_what_they_are_an_example_of(entries):
    for entry in entries:
        if entry.kind != SYNTAX:
            assert re.search(rf"\b({'|'.join(entry.names)})\b", entry.statement), entry


ENTRY = "# SCALAR upper(text)\n# Returns the text in upper case.\nquery T\nSELECT upper('kea')\n----\nKEA"


def test_an_entry_is_read():
    (section,) = sections_of(
        f"# A file.\n\n# SECTION Text\n# Some text.\n#\n# More.\n\n{ENTRY}\n\nstatement ok\nSELECT 1\n"
    )
    assert (section.title, section.text) == ("Text", "Some text.\n\nMore.")
    (entry,) = section.entries
    assert (entry.kind, entry.names, entry.sentence) == ("SCALAR", ("upper",), "Returns the text in upper case.")
    assert (entry.statement, entry.rows) == ("SELECT upper('kea')", ("KEA",))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(ENTRY.replace("Returns", "Makes"), id="other verb"),
        pytest.param(ENTRY.replace("case.", "case"), id="no full stop"),
        pytest.param(ENTRY.replace("query T", "query TT"), id="two columns"),
        pytest.param(ENTRY.replace("SELECT", "SELECT\n"), id="two lines"),
        pytest.param(ENTRY.replace("\nKEA", ""), id="no result"),
    ],
)
def test_a_malformed_entry_is_named(broken):
    with pytest.raises(Malformed, match=r"SCALAR upper\(text\)"):
        list(sections_of(f"# SECTION Text\n# Some text.\n\n{broken}\n"))
    with pytest.raises(Malformed, match="no section"):
        list(sections_of(ENTRY))
