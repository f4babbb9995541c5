"""Reads the alert rules, the dashboard and the list of metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DIRECTORY = REPOSITORY / "packaging" / "observability"
RULES = DIRECTORY / "volary-alerts.yaml"
RULE_TESTS = DIRECTORY / "volary-alerts-tests.yaml"
DASHBOARD = DIRECTORY / "volary-dashboard.json"

_ROW = re.compile(r"\| `((?:volary|process)_\w+)` \| (counter|gauge|histogram) \|")
_NAME = re.compile(r"\b(?:volary|process)_\w+")
_SERIES_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")
# What Grafana puts in the place of its variables.
_VARIABLES = {"$job": ".*", "$instance": ".*", "$__rate_interval": "5m"}


def metrics() -> dict[str, str]:
    """Returns the type of each metric that docs/metrics.md lists."""
    page = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    return dict(found.groups() for line in page.splitlines() if (found := _ROW.match(line)))


def series() -> set[str]:
    """Returns the names of all series of these metrics."""
    names = set()
    for name, kind in metrics().items():
        names |= {name + end for end in _SERIES_OF_A_HISTOGRAM} if kind == "histogram" else {name}
    return names


def alerts() -> list[dict[str, Any]]:
    """Returns the alerts of all groups."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """Returns the dashboard."""
    content: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return content


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Returns the title and the expression of each query of the dashboard, as Grafana sends it."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for variable, value in _VARIABLES.items():
                expression = expression.replace(variable, value)
            yield panel["title"], expression


def names_in(expression: str) -> set[str]:
    """Returns the names of metrics of Volary in an expression."""
    without_texts = re.sub(r"\"[^\"]*\"|'[^']*'", "", expression)
    return set(_NAME.findall(without_texts))
