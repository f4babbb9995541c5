"""Installs the Python package as a newcomer does, with what PyPI has, and without cargo."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from programs import REPOSITORY, call

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def pip(tmp_path: Path) -> Path:
    """The pip of an empty environment."""
    call(sys.executable, "-m", "venv", tmp_path / "environment")
    return tmp_path / "environment" / "bin" / "pip"


def clean(pip: Path) -> dict[str, str]:
    """An environment in which nothing but the directory of pip is in PATH."""
    return {"PATH": str(pip.parent), "HOME": str(pip.parents[2])}


def test_the_wheel_alone_runs_the_first_example(pip: Path, program: Path, tmp_path: Path):
    wheel = call(sys.executable, REPOSITORY / "tools" / "make_wheel.py", program, tmp_path).strip()
    call(pip, "install", "--quiet", wheel, env=clean(pip))
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    shown = call(pip.with_name("python"), "-c", example, env=clean(pip), cwd=tmp_path)
    assert "shards=1/16 workers=1/4" in shown
    assert call(pip.with_name("volary"), "--version", env=clean(pip)).startswith("volary ")


@pytest.mark.parametrize("options", [[], ["--editable"]])
def test_a_checkout_is_installed_without_cargo(pip: Path, options: list[str]):
    call(pip, "install", "--quiet", *options, REPOSITORY / "python-client", env=clean(pip))
    assert call(pip.with_name("python"), "-c", "import volary; print(volary.__version__)", env=clean(pip)).strip()
    assert not pip.with_name("volary").exists()
