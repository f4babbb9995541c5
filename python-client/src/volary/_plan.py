"""Plans of queries, as EXPLAIN and EXPLAIN ANALYZE show them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_METRICS = ", metrics=["
# The title line of a fragment, such as `fragment 1:`. It is not an operator.
_FRAGMENT = re.compile(r"fragment \d+:$")


@dataclass
class PlanNode:
    """An operator of a plan."""

    name: str
    """The name of the operator, such as `GatherExec`."""
    details: str
    """Further properties of the operator: columns, filters, shards."""
    metrics: dict[str, str] = field(default_factory=dict)
    """The measured values of the operator, as text with their units. Empty without `analyze`."""
    notes: list[str] = field(default_factory=list)
    """What the workers of a gather did: rows, bytes and time of each worker, and the slowest worker."""
    children: list[PlanNode] = field(default_factory=list)
    """The operators whose output this operator reads. The children of a gather run on the workers."""

    def walk(self) -> Iterator[PlanNode]:
        """Yields this operator and all operators below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, name: str) -> list[PlanNode]:
        """Returns all operators with this name, at and below this one."""
        return [node for node in self.walk() if node.name == name]


class Plan:
    """How a query is run, or was run. `print` shows the plan as text; a notebook shows it as a tree that folds."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        """All texts of the answer by their kind: `logical_plan`, `physical_plan`, or `Plan with Metrics`."""

    @property
    def text(self) -> str:
        """The physical plan, as text."""
        for kind in ("Plan with Metrics", "physical_plan"):
            if kind in self.texts:
                return self.texts[kind].rstrip()
        return "\n".join(self.texts.values()).rstrip()

    @property
    def root(self) -> PlanNode:
        """The physical plan, as a tree."""
        root = PlanNode("", "")
        open_nodes: list[tuple[int, PlanNode]] = [(-1, root)]
        for line in self.text.splitlines():
            stripped = line.lstrip(" ")
            depth = len(line) - len(stripped)
            if not stripped or (depth == 0 and root.children):
                continue
            if stripped.startswith("| "):
                open_nodes[-1][1].notes.append(stripped[2:])
                continue
            while open_nodes[-1][0] >= depth:
                open_nodes.pop()
            if _FRAGMENT.match(stripped):
                # The operator of the fragment is indented deeper than the gather, so the line of the fragment can be
                # skipped.
                continue
            node = _node(stripped)
            open_nodes[-1][1].children.append(node)
            open_nodes.append((depth, node))
        return root.children[0] if root.children else root

    @property
    def summary(self) -> dict[str, str]:
        """The query's id, its number of rows, and the times of planning and running. Empty without `analyze`."""
        last = self.text.splitlines()[-1] if self.text else ""
        if not last.startswith("query: "):
            return {}
        words = last.removeprefix("query: ").split()
        return {"query_id": words[0]} | dict(word.split("=", 1) for word in words[1:] if "=" in word)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<volary.Plan\n{self.text}\n>"

    def _repr_html_(self) -> str:
        return f"<div style='font-family: monospace'>{_html(self.root)}</div>"


def _node(line: str) -> PlanNode:
    line, _, metrics = line.partition(_METRICS)
    name, _, details = line.partition(":")
    if " " in name or "," in name:
        name, details = line.split(",", 1)[0], line.partition(",")[2]
    pairs = (pair.split("=", 1) for pair in re.split(r", (?=\w+=)", metrics.removesuffix("]")) if "=" in pair)
    return PlanNode(name.strip(), details.strip(), {name: value for name, value in pairs})


def _html(node: PlanNode) -> str:
    facts = [f"{html.escape(name)}={html.escape(value)}" for name, value in node.metrics.items()]
    facts += [html.escape(note) for note in node.notes]
    below = "".join(_html(child) for child in node.children)
    about = f"<div style='margin-left: 2em; color: gray'>{'<br>'.join(facts)}</div>" if facts else ""
    title = f"<b>{html.escape(node.name)}</b> {html.escape(node.details)}"
    return f"<details open style='margin-left: 1em'><summary>{title}</summary>{about}{below}</details>"
