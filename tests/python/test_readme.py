"""The examples of the client's README run as they stand."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "python-client" / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_has_examples():
    assert len(EXAMPLES) >= 3
    for number, example in enumerate(EXAMPLES, start=1):
        compile(example, f"README example {number}", "exec")


def test_the_examples_run_one_after_another(cluster, monkeypatch, capsys):
    # `volary.connect()` in the README means the cluster of this session, not one at the default port.
    monkeypatch.setenv("VOLARY_URI", cluster.uri)
    names: dict[str, object] = {}
    for number, example in enumerate(EXAMPLES, start=1):
        exec(compile(example, f"README example {number}", "exec"), names)
    assert "kea" in capsys.readouterr().out
