"""Looks at what `pip install volary` installs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[2] / "python-client"
SOURCES = {
    path.relative_to(CLIENT / "src").as_posix()
    for path in (CLIENT / "src" / "dbt").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
FINDS_THE_ADAPTER = """
import sys
from dbt.adapters.factory import FACTORY
plugin = FACTORY.load_plugin("volary").__module__
from dbt.adapters import volary
from dbt.include.volary import PACKAGE_PATH
print(volary.__file__, PACKAGE_PATH, volary.Plugin.project_name)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory of the wheel and the source distribution."""
    directory = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(directory)], cwd=CLIENT, check=True)
    return directory


def test_both_distributions_have_all_files_of_the_adapter(built):
    assert {"dbt/include/volary/dbt_project.yml", "dbt/include/volary/macros/adapters/relation.sql"} < SOURCES
    (wheel,) = built.glob("*.whl")
    assert set(zipfile.ZipFile(wheel).namelist()) >= SOURCES
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        assert {name.partition("/src/")[2] for name in file.getnames()} >= SOURCES


def test_dbt_finds_the_adapter_of_the_wheel(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    found = subprocess.run(
        [sys.executable, "-c", FINDS_THE_ADAPTER],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    adapter, macros, name = found.stdout.split()
    assert Path(adapter).is_relative_to(tmp_path)
    assert Path(macros).is_relative_to(tmp_path)
    assert name == "dbt_volary"
