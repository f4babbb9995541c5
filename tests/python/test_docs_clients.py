"""Runs the examples of docs/clients unchanged."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs" / "clients"
ADDRESS = "grpc://127.0.0.1:7100"
EXAMPLES = {
    page.stem: re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for page in PAGES.glob("*.md")
}


@pytest.mark.parametrize("page", [page for page, examples in EXAMPLES.items() if examples])
def test_the_examples_of_a_page_run_one_after_another(cluster, page, capsys):
    names: dict[str, object] = {}
    for number, example in enumerate(EXAMPLES[page], start=1):
        assert number > 1 or ADDRESS in example
        exec(compile(example.replace(ADDRESS, cluster.uri), f"{page}.md, example {number}", "exec"), names)
    assert capsys.readouterr().out


def test_every_page_is_listed():
    listed = set(re.findall(r"\]\((\w+)\.md\)", (PAGES / "README.md").read_text(encoding="utf-8")))
    assert listed == set(EXAMPLES) - {"README"}
