"""Tests the alert rules and the dashboard with promtool, and that they use metrics that exist. No server is needed."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from observability import (
    REPOSITORY,
    RULE_TESTS,
    RULES,
    alerts,
    dashboard,
    dashboard_queries,
    metrics,
    names_in,
    series,
)
from optional_tools import run_tool


def test_promtool_accepts_the_rules():
    checked = run_tool("promtool", "check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout


def test_each_alert_fires_when_it_should_and_only_then():
    tested = run_tool("promtool", "test", "rules", RULE_TESTS.name, directory=RULE_TESTS.parent)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_each_alert_has_a_test_with_series_for_which_it_fires_and_others():
    tests = {test["name"]: test for test in yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]}
    assert len(alerts()) > 20
    for alert in alerts():
        test = tests[alert["alert"]]
        (*pending, last) = test["promql_expr_test"]
        assert all('alertstate="firing"' in sample["labels"] for sample in last["exp_samples"])
        assert bool(pending) == ("for" in alert), alert["alert"]
        assert all('alertstate="pending"' in it["labels"] for test in pending for it in test["exp_samples"])
        # An alert has fewer samples than there are series.
        assert len(test["input_series"]) > len(last["exp_samples"]) or "absent" in alert["expr"]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_says_what_happened_what_to_do_and_where_to_read_more(alert: dict[str, dict[str, str]]):
    assert alert["labels"]["severity"] in ("critical", "warning")
    texts = alert["annotations"]
    assert texts.keys() == {"summary", "description", "runbook"}
    assert len(texts["description"]) > 40
    page, _, anchor = texts["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (REPOSITORY / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}


def test_rules_and_dashboard_name_only_metrics_of_the_list():
    assert len(metrics()) > 50
    for alert in alerts():
        assert names_in(str(alert["expr"])) <= series(), alert["alert"]
    for title, expression in dashboard_queries():
        assert names_in(expression) <= series(), title
    for test in yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]:
        for given in test["input_series"]:
            assert names_in(given["series"]) <= series(), test["name"]


def test_an_unknown_metric_is_found():
    assert names_in('sum(rate(volary_querys_total{job=~"volary_x"}[5m]))') - series() == {"volary_querys_total"}
    assert names_in("volary_query_duration_seconds") - series() == {"volary_query_duration_seconds"}


def test_rules_or_dashboard_show_each_metric():
    shown = {name for _, expression in dashboard_queries() for name in names_in(expression)}
    shown |= {name for alert in alerts() for name in names_in(str(alert["expr"]))}
    for name, kind in metrics().items():
        assert (f"{name}_bucket" if kind == "histogram" else name) in shown, name


def test_the_rate_of_counters_is_shown_and_the_value_of_gauges():
    kinds = metrics()
    for title, expression in dashboard_queries():
        for name in names_in(expression):
            is_counter = kinds.get(name) == "counter" or name.endswith(("_bucket", "_sum", "_count"))
            is_rate = re.search(rf"(?:rate|increase)\({name}\b", expression) is not None
            assert is_counter == is_rate, (title, name)


def test_promtool_accepts_the_example_of_a_configuration(tmp_path: Path):
    page = (RULES.parent / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    for file in ("authority.pem", "token", RULES.name):
        (tmp_path / file).write_text(RULES.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(example, encoding="utf-8")
    checked = run_tool("promtool", "check", "config", "prometheus.yml", directory=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout


def test_promtool_parses_each_expression_of_the_dashboard(tmp_path: Path):
    queries = list(dashboard_queries())
    assert len(queries) > 60
    assert all("$" not in expression for _, expression in queries)
    assert check_expressions(tmp_path, [expression for _, expression in queries]) == ""
    assert "unclosed left parenthesis" in check_expressions(tmp_path, ["sum(rate(volary_queries_total[5m])"])


def check_expressions(directory: Path, expressions: list[str]) -> str:
    """Returns what promtool says against the expressions."""
    rules = [{"record": f"panel:query:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = directory / "dashboard-rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    checked = run_tool("promtool", "check", "rules", file)
    return "" if checked.returncode == 0 else checked.stdout + checked.stderr


def test_each_panel_belongs_to_the_chosen_cluster_and_says_what_it_shows():
    panels = dashboard()["panels"]
    assert [it["name"] for it in dashboard()["templating"]["list"]] == ["datasource", "job", "instance"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == [
        *("Overview", "Queries", "Latency", "Queue", "Memory", "Gather and network", "Workers", "Storage", "Security"),
        "Runtime",
    ]
    for panel in panels:
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            for target in panel["targets"]:
                named = len(re.findall(r"\b(?:volary|process)_\w+\{|\bup\{", target["expr"]))
                assert named == target["expr"].count('job=~"$job"') > 0, panel["title"]


def test_no_panel_covers_another():
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y) for it in places for x in range(it["x"], it["x"] + it["w"]) for y in range(it["y"], it["y"] + it["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(it["x"] + it["w"] <= 24 for it in places)
    assert all(before["y"] <= after["y"] for before, after in pairwise(places))
