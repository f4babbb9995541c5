"""A machine that boots systemd in a container, with the Debian package installed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from processes import PATIENCE_SECONDS, until
from programs import call


def make_root(directory: Path, package: Path, suite: str = "bookworm") -> Path:
    """Installs Debian and the package below `directory`, as apt does it on a machine."""
    root = directory / "root"
    call(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=systemd,systemd-sysv,dbus,ca-certificates",
        f"--customize-hook=copy-in {package} /tmp",
        f'--customize-hook=chroot "$1" apt-get install --quiet --yes --no-install-recommends /tmp/{package.name}',
        suite,
        root,
    )
    return root


class Machine:
    """A booted machine with a loopback network of its own. `root` is its directory."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [
                "systemd-nspawn",
                "--boot",
                "--quiet",
                f"--directory={root}",
                "--private-network",
                "--register=no",
                "--keep-unit",
                "--console=pipe",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Machine:
        try:
            until(lambda: self.run("systemctl", "is-system-running", check=False).strip() == "running", "it has booted")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a program on the machine as root, and returns what it prints."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children:
            assert not check, "the machine has not booted"
            return ""
        enter = ["nsenter", f"--target={children[0]}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        return call(*enter, *command, check=check)

    def property(self, unit: str, name: str) -> str:
        """Returns a property of a unit, such as ActiveState."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def await_state(self, unit: str, state: str) -> None:
        """Waits until a unit has a state. Shows its log if it does not reach it."""
        try:
            until(lambda: self.property(unit, "ActiveState") == state, f"{unit} is {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.journal(unit)}") from None

    def journal(self, unit: str) -> str:
        """Returns the log of a unit."""
        return self.run("journalctl", "--no-pager", f"--unit={unit}")

    def sql(self, statement: str) -> str:
        """Runs a statement as the user of the nodes, and returns the rows as CSV."""
        return self.run(
            "setpriv", "--reuid=volary", "--regid=volary", "--clear-groups", "volary", "sql", "-o", "csv", statement
        )

    def kill(self, unit: str) -> None:
        """Ends the processes of a unit as a crash does."""
        self.run("systemctl", "kill", f"--signal={signal.SIGKILL.name}", unit)
