"""Tests the check of what a task needs, with tools that only print a version."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tools" / "check-needs.sh"
BASH = shutil.which("bash") or "/bin/bash"

# What each tool does on a machine that has all that is needed. `df` and `getconf` say that there is room.
TOOLS = {
    "apt-get": "exit 1",
    "cargo": "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'",
    "cat": "exit 1",
    "cc": "exit 0",
    "curl": "exit 0",
    "dpkg-deb": "exit 0",
    "lintian": "exit 0",
    "mmdebstrap": "exit 0",
    "podman": "exit 0",
    "podman-compose": "exit 0",
    "runc": "exit 0",
    "strip": "exit 0",
    "systemd-analyze": "exit 0",
    "systemd-nspawn": "exit 0",
    "df": "echo Filesystem; echo '/dev/disk 100000000 1 90000000 1% /'",
    "du": "echo '0 target'",
    "flock": "exit 0",
    "getconf": "[ $1 = PAGESIZE ] && echo 4096 || echo 4194304",
    "go": "echo go1.26.8",
    "helm": "exit 0",
    "javac": "echo 'javac 17.0.15'",
    "make": "exit 0",
    "mvn": "exit 0",
    "promtool": "exit 0",
    "python3": "case $2 in *version_info*) echo 3.11;; esac",
    "rsync": "exit 0",
    "mkfs.xfs": "exit 0",
    "npm": "exit 0",
    "rustup": "exit 0",
    "shellcheck": "exit 0",
    "sudo": 'exec "$@"',
    "terraform": """echo '{ "terraform_version": "1.11.4", "platform": "linux_amd64" }'""",
}
# These tools are the real ones.
REAL = ["dirname", "mktemp", "rm"]


class Machine:
    """A machine that has only the tools in one directory."""

    def __init__(self, directory: Path) -> None:
        self.tools = directory / "bin"
        self.home = directory / "home"
        self.target = directory / "target"
        for path in (self.tools, self.home, self.target):
            path.mkdir()
        for name in REAL:
            (self.tools / name).symlink_to(str(shutil.which(name)))
        for name, does in TOOLS.items():
            self.has(name, does)

    def has(self, name: str, does: str, directory: Path | None = None) -> None:
        """Gives the machine a tool, or another one in its place."""
        tool = (directory or self.tools) / name
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text(f"#!{BASH}\n{does}\n")
        tool.chmod(0o755)

    def lacks(self, *names: str) -> None:
        """Takes tools away."""
        for name in names:
            (self.tools / name).unlink()

    def check(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs the script."""
        return subprocess.run(
            [BASH, str(SCRIPT), *arguments],
            env={
                "PATH": str(self.tools),
                "HOME": str(self.home),
                "CARGO_TARGET_DIR": str(self.target),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def refusal(self, task: str, **environment: str) -> str:
        """Returns what the script says when it refuses the task."""
        checked = self.check(task, **environment)
        assert checked.returncode == 1, checked.stderr
        return checked.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("task", ["build", "test", "ci", "packaging", "terraform"])
def test_nothing_is_said_where_nothing_is_missing(machine: Machine, task: str):
    checked = machine.check(task)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("tool", "task", "said"),
    [
        ("cargo", "build", ["cargo (Rust 1.95 or newer) is not installed", "sh.rustup.rs"]),
        ("cc", "build", ["C compiler", "apt-get install build-essential"]),
        ("make", "build", ["make is not installed", "apt-get install make"]),
        ("python3", "test", ["Python 3.11 or newer", "apt-get install python3 python3-venv"]),
        ("javac", "test", ["a JDK (17 or newer)", "apt-get install default-jdk-headless"]),
        ("mvn", "test", ["Maven", "apt-get install maven"]),
        ("rsync", "ci", ["rsync", "apt-get install rsync"]),
        ("podman", "packaging", ["podman", "apt-get install podman"]),
        ("systemd-nspawn", "packaging", ["systemd-nspawn", "apt-get install systemd-container"]),
        ("go", "packaging", ["Go is not installed", "go.dev/dl"]),
        ("helm", "ci", ["helm is not installed", "go install helm.sh/helm/v3/cmd/helm@"]),
        ("promtool", "ci", ["Prometheus (promtool)", "apt-get install prometheus"]),
        ("terraform", "terraform", ["Terraform (1.11 or newer)", "developer.hashicorp.com/terraform/install"]),
        ("go", "terraform", ["Go, which builds the replica", "go.dev/dl"]),
        ("npm", "terraform", ["npm", "apt-get install npm"]),
        ("shellcheck", "terraform", ["shellcheck", "apt-get install shellcheck"]),
    ],
)
def test_a_missing_tool_is_named_with_the_command_that_installs_it(
    machine: Machine, tool: str, task: str, said: list[str]
):
    machine.lacks(tool)
    refusal = machine.refusal(task)
    for text in said:
        assert text in refusal


@pytest.mark.parametrize(
    ("tool", "does", "said"),
    [
        ("cargo", "echo 'cargo 1.94.1 (abc 2026-02-01)'", ["cargo is 1.94.1; Rust 1.95", "rustup update stable"]),
        ("cargo", "exit 1", ["`cargo --version` fails", "rustup default stable"]),
        ("cargo", "[ $1 = --version ] && echo 'cargo 1.95.0'", ["cargo fmt", "rustup component add rustfmt"]),
        ("cc", "exit 1", ["cannot link", "apt-get install build-essential"]),
        ("python3", "echo 3.9", ["Python 3.9; Python 3.11", "apt-get install -y python3.11", "PYTHON=python3.11"]),
        (
            "python3",
            "case $2 in *version_info*) echo 3.12;; *) exit 1;; esac",
            ["venv", "apt-get install python3.12-venv"],
        ),
        ("javac", "echo 'javac 11.0.2'", ["the JDK is 11.0.2; 17", "apt-get install openjdk-17-jdk-headless"]),
        ("javac", "echo 'javac 1.8.0_402' >&2", ["the JDK is 1.8.0; 17", "openjdk-17-jdk-headless"]),
    ],
)
def test_a_tool_that_is_too_old_or_broken_is_named_with_what_it_should_be(
    machine: Machine, tool: str, does: str, said: list[str]
):
    machine.has(tool, does)
    refusal = machine.refusal("test")
    for text in said:
        assert text in refusal


@pytest.mark.parametrize("version", ["1.95.0", "1.100.0", "2.0.0", "1.97.0-nightly"])
def test_a_newer_cargo_will_do(machine: Machine, version: str):
    machine.has("cargo", f"echo 'cargo {version} (abc 2026-10-01)'")
    assert machine.check("test").returncode == 0


def test_ci_does_not_ask_for_what_only_tests_of_packages_need(machine: Machine):
    tools = ["dpkg-deb", "lintian", "mmdebstrap", "podman", "podman-compose", "runc", "strip"]
    machine.lacks(*tools, "systemd-analyze", "systemd-nspawn")
    assert machine.check("ci").returncode == 0


def test_a_build_does_not_ask_for_what_only_tests_need(machine: Machine):
    machine.lacks("python3", "javac", "mvn", "rsync", "flock")
    machine.has("cargo", "[ $1 = --version ] && echo 'cargo 1.95.0'")
    assert machine.check("build").returncode == 0


def test_all_that_is_missing_is_said_at_once(machine: Machine):
    machine.lacks("cargo", "cc", "python3", "mvn")
    refusal = machine.refusal("test")
    for name in ["cargo", "cc", "python3", "mvn"]:
        assert name in refusal
    assert "JDK" not in refusal


def test_a_cargo_that_only_the_path_lacks_is_found(machine: Machine):
    machine.lacks("cargo")
    machine.has("cargo", TOOLS["cargo"], machine.home / ".cargo" / "bin")
    refusal = machine.refusal("build")
    assert "not in PATH" in refusal
    assert f'. "{machine.home}/.cargo/env"' in refusal


@pytest.mark.parametrize(
    ("does", "said"),
    [(None, "Go (1.25 or newer) is not installed"), ("exit 1", "is not installed"), ("echo go1.24.4", "Go is 1.24.4")],
)
def test_without_go_only_its_tests_are_skipped_and_that_is_said_in_a_line(
    machine: Machine, does: str | None, said: str
):
    machine.lacks("go")
    if does:
        machine.has("go", does)
    for task, code in (("test", 0), ("ci", 0), ("go", 1)):
        checked = machine.check(task)
        assert (checked.returncode, checked.stderr) == (code, "")
        (line,) = checked.stdout.splitlines()
        assert said in line
        assert "the tests of Go clients are skipped" in line
    assert machine.check("build").stdout == ""


@pytest.mark.parametrize(
    ("tool", "skipped"), [("helm", "the tests of the Helm chart"), ("promtool", "the tests of alerts")]
)
def test_without_an_optional_tool_only_its_tests_are_skipped(machine: Machine, tool: str, skipped: str):
    machine.lacks(tool)
    checked = machine.check("test")
    assert (checked.returncode, checked.stderr) == (0, "")
    (line,) = checked.stdout.splitlines()
    assert f"{tool} is not installed: {skipped} are skipped" in line
    assert machine.check("build").stdout == ""


def test_a_helm_that_go_has_installed_is_found(machine: Machine):
    machine.lacks("helm")
    machine.has("helm", "exit 0", machine.home / "go" / "bin")
    assert machine.check("ci").returncode == 0


def test_ci_without_go_and_helm_says_how_to_get_helm(machine: Machine):
    machine.lacks("go", "helm")
    assert "install Go, or Helm 3: https://helm.sh" in machine.refusal("ci")


def test_go_is_found(machine: Machine):
    checked = machine.check("go")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_another_python_and_another_jdk_can_be_named(machine: Machine):
    machine.lacks("python3", "javac")
    machine.has("python3.13", "case $2 in *version_info*) echo 3.13;; esac")
    machine.has("javac", "echo 'javac 21.0.1'", machine.home / "jdk" / "bin")
    assert machine.check("test", PYTHON="python3.13", JAVA_HOME=str(machine.home / "jdk")).returncode == 0


def disk(free_mib: int) -> str:
    return f"echo Filesystem; echo '/dev/disk 100000000 1 {free_mib * 1024} 1% /'"


def memory(mib: int) -> str:
    return f"[ $1 = PAGESIZE ] && echo 4096 || echo {mib * 256}"


def test_little_room_is_a_warning_with_the_number(machine: Machine):
    machine.has("df", disk(1234))
    machine.has("getconf", memory(2345))
    checked = machine.check("test")
    assert checked.returncode == 0
    assert "warning: only 1234 MiB are free" in checked.stderr
    assert "warning: this machine has 2345 MiB of memory" in checked.stderr


def test_a_disk_that_is_certainly_too_small_is_refused(machine: Machine):
    machine.has("df", disk(100))
    refusal = machine.refusal("build")
    assert "only 100 MiB are free" in refusal
    assert "CARGO_TARGET_DIR" in refusal


def test_memory_that_is_certainly_too_small_is_refused(machine: Machine):
    machine.has("getconf", memory(512))
    assert "512 MiB of memory" in machine.refusal("build")


def test_the_limit_of_a_container_counts_as_its_memory(machine: Machine):
    machine.has("cat", f"echo {2000 * 1024 * 1024}")
    assert "this machine has 2000 MiB of memory" in machine.check("build").stderr


def test_what_is_built_already_needs_no_room(machine: Machine):
    machine.has("df", disk(3000))
    machine.has("du", f"echo '{6000 * 1024} target'")
    assert machine.check("test").stderr == ""
    machine.has("df", disk(100))
    machine.has("getconf", memory(512))
    machine.has("volary", "exit 0", machine.target / "release")
    assert machine.check("test").stderr == ""


def test_a_bare_machine_installs_what_is_missing(machine: Machine):
    absent = ["cargo", "cc", "curl", "javac", "mvn", "rsync"]
    kept = machine.home / "kept"
    kept.mkdir()
    for name in absent:
        shutil.move(machine.tools / name, kept / name)
    cp = shutil.which("cp")
    log = machine.home / "log"
    machine.has(
        "apt-get",
        f'echo "$@" >> {log}; if [ $1 = install ]; then '
        f"{cp} {kept}/cc {kept}/javac {kept}/mvn {kept}/rsync {machine.tools}; "
        # The script that `curl` downloads installs cargo where rustup does.
        f"echo '#!{BASH}' > {machine.tools}/curl; echo 'echo installs rust' >> {machine.tools}/curl; "
        f"{shutil.which('chmod')} +x {machine.tools}/curl; fi",
    )
    machine.has(
        "sh",
        f"{shutil.which('mkdir')} -p {machine.home}/.cargo/bin; {cp} {kept}/cargo {machine.home}/.cargo/bin/cargo",
    )
    (machine.tools / "bash").symlink_to(BASH)
    checked = machine.check("--install", "ci")
    assert checked.returncode == 0, checked.stderr
    update, install = log.read_text().splitlines()
    assert update.startswith("update")
    packages = [word for word in install.split()[1:] if not word.startswith("-")]
    assert packages == ["build-essential", "curl", "ca-certificates", "default-jdk-headless", "maven", "rsync"]


def test_a_machine_that_has_everything_installs_nothing(machine: Machine):
    assert machine.check("--install", "ci").returncode == 0


def test_an_installation_that_does_not_help_fails(machine: Machine):
    machine.lacks("mvn")
    machine.has("apt-get", "exit 0")
    checked = machine.check("--install", "test")
    assert checked.returncode == 1
    assert "Maven" in checked.stderr


@pytest.mark.parametrize("task", ["demo", "test"])
def test_make_checks_before_it_builds_and_says_how_long_a_first_build_takes(tmp_path: Path, task: str):
    planned = subprocess.run(
        ["make", "--dry-run", task, f"CARGO_TARGET_DIR={tmp_path}"],
        cwd=REPOSITORY,
        # Leaves out the variables that an outer make passes on to its children.
        env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    check = planned.index("check-needs.sh " + {"demo": "build", "test": "test"}[task])
    hint = planned.index("half an hour")
    assert check < hint < planned.index("cargo ", hint)


def test_an_old_terraform_is_named(machine: Machine):
    machine.has("terraform", """echo '{ "terraform_version": "1.9.8" }'""")
    assert "Terraform is 1.9.8; 1.11 or newer is needed" in machine.refusal("terraform")


def test_the_tests_of_terraform_get_what_debian_has(machine: Machine):
    machine.lacks("shellcheck")
    shellcheck = machine.tools / "shellcheck"
    machine.has("apt-get", f"[ $1 != install ] || {{ echo '#!{BASH}' >{shellcheck}; chmod +x {shellcheck}; }}")
    machine.has("chmod", 'exec /bin/chmod "$@"')
    installed = machine.check("--install", "terraform")
    assert (installed.returncode, installed.stderr) == (0, "")
