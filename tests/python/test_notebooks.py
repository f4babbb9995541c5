"""Tests what a result shows in a terminal and in a notebook, and what it says about packages that are not installed."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

import volary


def shown(connection: volary.Connection, query: str) -> tuple[str, str]:
    """Returns a result as text and as HTML."""
    return repr(connection.sql(query)), connection.sql(query)._repr_html_()


@pytest.mark.parametrize(
    ("rows", "footer"),
    [(0, "(0 rows)"), (1, "(1 row)"), (10, "(10 rows)"), (11, "(the first 10 of 11 rows)")],
)
def test_a_small_result_says_how_many_rows_it_has(connection, rows, footer):
    query = f"SELECT n FROM generate_series(1, 11) t(n) WHERE n <= {rows} ORDER BY n"
    result = connection.sql(query)
    result.to_arrow()
    assert repr(result).endswith(footer)
    assert footer in result._repr_html_()
    if rows <= 10:
        for text in shown(connection, query):
            assert footer in text
            assert "first" not in text


def test_a_result_says_that_there_are_more_rows_than_it_shows(connection):
    for text in shown(connection, "SELECT n FROM generate_series(1, 9000000000000000000) t(n)"):
        assert "(the first 10 rows, and there are more)" in text
    html = connection.sql("SELECT n FROM generate_series(1, 100000) t(n)")._repr_html_()
    assert html.count("<tr>") == 11


def test_what_is_shown_is_still_there(connection):
    result = connection.sql("SELECT n FROM generate_series(1, 100000) t(n)")
    assert result._repr_html_() == result._repr_html_()
    assert len(result.rows()) == 100_000
    assert "(the first 10 of 100000 rows)" in result._repr_html_()


def test_html_is_escaped_and_long_values_are_cut(connection):
    html = connection.sql("""SELECT '<b>&' AS "<i>", repeat('x', 1000) AS long, NULL AS nothing""")._repr_html_()
    assert "<th>&lt;i&gt;<br><small>string</small></th>" in html
    assert "<td>&lt;b&gt;&amp;</td>" in html
    assert f"<td>{'x' * 99}\u2026</td><td>NULL</td>" in html


def test_many_columns_are_not_all_shown(connection):
    columns = ", ".join(f"{n} AS c{n}" for n in range(60))
    html = connection.sql(f"SELECT {columns}")._repr_html_()
    assert html.count("<td>") == 50
    assert "(1 row, 10 more columns)" in html


def test_a_result_without_rows_is_shown_as_text(connection, empty_table):
    result = connection.sql(f"INSERT INTO {empty_table} (k) VALUES (1)")
    assert result._repr_html_() == "<pre>&lt;volary.Result: no rows, 1 rows affected&gt;</pre>"
    closed = connection.sql("SELECT 1")
    closed.close()
    assert "was closed before it was read" in closed._repr_html_()


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_not_installed_is_named_with_its_extra(connection, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    result = connection.sql("SELECT 1 AS n")
    with pytest.raises(ImportError, match=rf"pip install 'volary\[{package}\]'"):
        getattr(result, f"to_{package}")()
    assert result.rows() == [(1,)]


def test_the_package_says_its_version():
    assert volary.__version__ == importlib.metadata.version("volary")
