"""Tests that the tests named in docs/clients/support.md exist. No server is needed."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "clients" / "support.md"
PYTHON = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
SQL = re.compile(r"`tests/(sql/\w+\.slt)`")
GO = re.compile(r"`(\w+_test\.go)::(Test\w+)`")
JAVA = re.compile(r"`(\w+Test)\.(\w+)`")
# The last cell of each row. In a row without a test, the cell says why.
SHOWN_BY = [
    line.strip("|").rsplit("|", 1)[1].strip()
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not re.fullmatch(r"\|.*\| shown by \||[|-]+", line)
]


def python_tests(file: str) -> set[str]:
    module = ast.parse((TESTS / "python" / file).read_text(encoding="utf-8"))
    return {node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def java_tests(name: str) -> set[str]:
    (source,) = (TESTS / "jdbc").glob(f"src/test/java/**/{name}.java")
    # The name of a method comes after its annotations, whose arguments may be on several lines.
    annotated = re.split(r"@(?:Parameterized)?Test\b", source.read_text(encoding="utf-8"))[1:]
    return {found[1] for part in annotated if (found := re.search(r"^  (?:static )?void (\w+)\(", part, re.MULTILINE))}


def go_tests(file: str) -> set[str]:
    return set(re.findall(r"^func (Test\w+)\(t \*testing\.T\)", (TESTS / "go" / file).read_text("utf-8"), re.MULTILINE))


def test_rows_have_a_test_or_say_why_not():
    assert len(SHOWN_BY) > 60
    for cell in SHOWN_BY:
        named = PYTHON.findall(cell) + GO.findall(cell) + JAVA.findall(cell) + SQL.findall(cell)
        assert cell.count("`") == 2 * len(named), cell
        assert named or cell.startswith("none: "), cell


@pytest.mark.parametrize("file", sorted({file for cell in SHOWN_BY for file, _ in PYTHON.findall(cell)}))
def test_python_tests_are_there(file):
    named = {name for cell in SHOWN_BY for its_file, name in PYTHON.findall(cell) if its_file == file}
    assert named - python_tests(file) == set()


@pytest.mark.parametrize("file", sorted({file for cell in SHOWN_BY for file in SQL.findall(cell)}))
def test_files_of_sql_cases_are_there(file):
    assert (TESTS / file).is_file()


@pytest.mark.parametrize("file", sorted({file for cell in SHOWN_BY for file, _ in GO.findall(cell)}))
def test_go_tests_are_there(file):
    named = {name for cell in SHOWN_BY for its_file, name in GO.findall(cell) if its_file == file}
    assert named - go_tests(file) == set()


@pytest.mark.parametrize("kind", sorted({kind for cell in SHOWN_BY for kind, _ in JAVA.findall(cell)}))
def test_java_tests_are_there(kind):
    named = {name for cell in SHOWN_BY for its_class, name in JAVA.findall(cell) if its_class == kind}
    assert named - java_tests(kind) == set()


def test_a_test_that_is_gone_would_be_missed():
    assert "test_a_test_that_is_gone_would_be_missed" in python_tests(Path(__file__).name)
    assert "TestADBCConnects" in go_tests("connect_test.go")
    assert "TestMain" not in go_tests("main_test.go")
    assert "python_tests" not in java_tests("ConnectTest")
    assert {"byPassword", "withAPoolOfThreads"} <= java_tests("ConnectTest")
    assert "answer" not in java_tests("ConnectTest")
