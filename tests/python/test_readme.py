"""Runs the examples of the READMEs unchanged."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from cluster import LocalCluster
from processes import PATIENCE_SECONDS, binary

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CLIENT_README = (REPOSITORY / "python-client" / "README.md").read_text(encoding="utf-8")


def examples(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


CLIENT_EXAMPLES = examples(CLIENT_README, "python")


def test_the_readme_of_the_client_has_examples():
    assert len(CLIENT_EXAMPLES) >= 3
    for number, example in enumerate(CLIENT_EXAMPLES, start=1):
        compile(example, f"README example {number}", "exec")


def test_the_examples_of_the_client_run_one_after_another(cluster, monkeypatch, capsys):
    monkeypatch.setenv("VOLARY_BIN", str(binary("volary")))
    # In the README, `volary.connect()` means the cluster of this session, and not a cluster at the default port.
    monkeypatch.setenv("VOLARY_URI", cluster.uri)
    names: dict[str, object] = {}
    for number, example in enumerate(CLIENT_EXAMPLES, start=1):
        exec(compile(example, f"README example {number}", "exec"), names)
    assert "kea" in capsys.readouterr().out


@pytest.mark.server
def test_what_the_readme_does_by_hand_can_be_done(tmp_path):
    (commands,) = [example for example in examples(README, "sh") if "volary sql" in example]
    # tests/python/test_wheel.py runs the first example.
    _, python = examples(README, "python")
    with LocalCluster(tmp_path, workers=4, allow_roots=[REPOSITORY / "tests" / "data"]) as cluster:
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PATH": f"{binary('volary').parent}:{os.environ['PATH']}",
                "VOLARY_URI": cluster.uri,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "shards=1/16 workers=1/4" in done.stdout
        assert "AIRBUS INDUSTRIE" in done.stdout
        lines = python.replace("grpc://127.0.0.1:7100", cluster.uri).rstrip().splitlines()
        # The last line shows its value, as in a notebook.
        indent = re.match(r"\s*", lines[-1]).group()
        lines[-1] = f"{indent}shown = {lines[-1].strip()}"
        names: dict[str, object] = {}
        exec(compile("\n".join(lines), "README", "exec"), names)
        assert list(names["shown"]["tailnum"]) == ["N10156"]
