"""Installs the wheel that brings the program into an empty environment, and runs the first example of the README."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyarrow
import pytest
from make_wheel import build
from processes import PATIENCE_SECONDS, binary

pytestmark = pytest.mark.server

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the program of the tests."""
    return build(binary("volary"), tmp_path_factory.mktemp("wheel"), compression=1)


@pytest.fixture(scope="module")
def environment(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel and pyarrow, and nothing else.

    pyarrow is that of the tests: a link in a directory of its own, so that no other package of the tests is found.
    `make test-packaging` downloads it, as a newcomer does.
    """
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", made], check=True)
    libraries = tmp_path_factory.mktemp("libraries")
    (libraries / "pyarrow").symlink_to(Path(pyarrow.__file__).parent)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return directory


def run(environment: Path, *command: str, directory: Path) -> str:
    """Runs a program of the environment on a machine that has no other programs."""
    done = subprocess.run(
        [environment / "bin" / command[0], *command[1:]],
        cwd=directory,
        env={"PATH": str(environment / "bin"), "HOME": str(directory), "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_name_of_the_wheel_says_which_machines_run_it(made: Path):
    assert re.fullmatch(r"volary-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", made.name)
    with zipfile.ZipFile(made) as files:
        (program,) = [file for file in files.infolist() if "/scripts/" in file.filename and not file.is_dir()]
        assert program.filename.endswith(".data/scripts/volary")
        assert program.external_attr >> 16 & 0o111 == 0o111
        assert any(name.endswith("/licenses/LICENSE") for name in files.namelist())
        assert any(name.endswith("/share/doc/volary/third-party.txt") for name in files.namelist())


def test_the_first_example_of_the_readme_runs_where_there_is_no_cargo(environment: Path, tmp_path: Path):
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert "volary.local(" in example
    assert shutil.which("cargo", path=str(environment / "bin")) is None
    shown = run(environment, "python", "-c", example, directory=tmp_path)
    assert "kea" in shown
    assert "shards=1/16 workers=1/4" in shown
    assert list(tmp_path.iterdir()) == [], "the example leaves nothing behind"


def test_the_command_is_in_the_environment_and_is_what_python_starts(environment: Path, tmp_path: Path):
    version = run(environment, "volary", "--version", directory=tmp_path).split()
    script = "import volary, volary._binary as b; print(volary.__version__, b.find_binary())"
    shown, found = run(environment, "python", "-c", script, directory=tmp_path).split()
    assert version == ["volary", shown]
    assert Path(found).resolve() == (environment / "bin" / "volary").resolve()


def test_a_wheel_without_the_program_is_for_every_machine(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=REPOSITORY / "python-client",
        check=True,
        capture_output=True,
    )
    (pure,) = tmp_path.glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(pure) as files:
        assert not any("/scripts/" in name for name in files.namelist())
