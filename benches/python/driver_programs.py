"""Builds the programs that ask through the drivers. A driver whose tools are missing is left out, with a reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_GO_MODULE = _HERE.parents[1] / "tests" / "go"
_POM = _HERE.parent / "jdbc" / "pom.xml"
# The first build downloads and compiles the drivers.
_BUILD_SECONDS = 1200
# Java 17 does not let the Flight SQL driver read the buffers of java.nio unless it is told to.
_JAVA = ("java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Xmx512m")


@dataclass
class Programs:
    """The programs by the name of their driver."""

    commands: dict[str, list[str | Path]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """The reason why a driver has no program."""


def build(directory: Path) -> Programs:
    """Builds all programs into a directory. Raises `RuntimeError` if a program does not compile."""
    programs = Programs()
    for driver in ("volary", "volary asyncio", "ADBC"):
        programs.commands[driver] = [sys.executable, _HERE / "askers.py", driver]
    if find_spec("psycopg") is None:
        programs.missing["psycopg"] = "psycopg is not installed; `pip install 'psycopg[binary]'` installs it"
    else:
        programs.commands["psycopg"] = [sys.executable, _HERE / "askers.py", "psycopg"]
    _build_go(directory, programs)
    _build_java(directory, programs)
    return programs


def _build_go(directory: Path, programs: Programs) -> None:
    driver = "ADBC in Go"
    if shutil.which("go") is None:
        programs.missing[driver] = "Go is not installed: https://go.dev/dl"
    elif (done := _run("go", "mod", "download", cwd=_GO_MODULE)).returncode != 0:
        programs.missing[driver] = f"the modules of tests/go cannot be downloaded: {done.stderr.strip()}"
    else:
        program = directory / "asker"
        _succeed("go", "build", "-o", program, "./asker", cwd=_GO_MODULE)
        programs.commands[driver] = [program]


def _build_java(directory: Path, programs: Programs) -> None:
    drivers = {"JDBC": "VOLARY", "pgjdbc": "POSTGRESQL"}
    absent = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if absent:
        missing = f"{' and '.join(absent)} cannot be found; `apt-get install default-jdk maven` installs them"
        programs.missing |= dict.fromkeys(drivers, missing)
        return
    # The tests of the other benchmark of JDBC may be compiling at the same time, into their own directory.
    built = f"-Dbench.build={directory / 'java'}"
    classpath = directory / "classpath"
    prints = ("-Dbench.main=volary.bench.ClassPath", f"-Dbench.arguments={classpath}")
    _succeed("mvn", "--quiet", "--batch-mode", f"--file={_POM}", built, "compile", "exec:exec", *prints, cwd=directory)
    for driver, database in drivers.items():
        programs.commands[driver] = [*_JAVA, "-classpath", classpath.read_text(), "volary.bench.Asker", database]


def _succeed(*command: str | Path, cwd: Path) -> None:
    done = _run(*command, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} has failed:\n{done.stdout}{done.stderr}")


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_BUILD_SECONDS, check=False
    )
