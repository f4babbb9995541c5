"""A directory in place of a machine: it boots with the files that Terraform rendered. Programs that need root, and AWS,
are replaced by those in `fakes`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

FAKES = Path(__file__).resolve().parent / "fakes"
ACCOUNT = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:"


class Cloud:
    """Secrets, objects and volumes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("secrets", "objects", "volumes"):
            (directory / name).mkdir(parents=True)

    def add_secret(self, name: str, text: str) -> str:
        """Stores a secret, and returns its ARN."""
        (self.directory / "secrets" / name).write_text(text)
        return f"{ACCOUNT}volary/{name}"

    def add_package(self, program: str) -> dict[str, str]:
        """Stores an archive with a program of this text. Returns the package as the module wants it."""
        file = self.directory / "volary"
        file.write_text(program)
        file.chmod(0o755)
        archive = self.directory / "objects" / "volary.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(file, "volary-0.1.0/bin/volary")
        return {"url": "s3://packages/volary.tar.gz", "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}

    def volume(self, name: str) -> Path:
        """Returns the device of a volume, which is empty at first."""
        device = self.directory / "volumes" / name
        device.touch()
        return device


class Machine:
    """A machine with the files of one node. Its settings are in `etc`, and what is outside of it is below `root`."""

    def __init__(self, directory: Path, cloud: Cloud, device: Path | None) -> None:
        self.directory = directory
        self.etc = directory / "etc"
        self.program = directory / "volary"
        self._cloud = cloud
        self._device = device or directory / "no-device"

    def begin(self, files: dict[str, dict[str, Any]]) -> None:
        """Writes the files of the user data, as cloud-init does."""
        for name, file in files.items():
            path = Path(name)
            if not path.is_relative_to(self.directory):
                path = self.directory / "root" / path.relative_to("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"])
            path.chmod(int(file["mode"], 8))
        with (self.etc / "bootstrap.conf").open("a") as conf:
            # Later lines count.
            conf.write(f"DEVICE='{self._device}'\nFSTAB='{self.directory}/fstab'\nPROGRAM='{self.program}'\n")

    @property
    def boot_command(self) -> list[Path]:
        """The script that a machine runs when it boots, with its argument."""
        return [self.directory / "root/usr/local/sbin/volary-bootstrap", self.etc / "bootstrap.conf"]

    def boot(self, first: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Boots. Programs in the directory `first` replace others."""
        return self.run(*self.boot_command, programs=[*([first] if first else []), FAKES])

    def run(self, *command: str | Path, programs: list[Path]) -> subprocess.CompletedProcess[str]:
        """Runs a command that finds programs in these directories first."""
        return subprocess.run(
            [str(word) for word in command],
            env={
                **os.environ,
                "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
                "FAKE_AWS": str(self._cloud.directory),
                "DEVICE_WAIT_SECONDS": "0",
            },
            capture_output=True,
            text=True,
        )

    def environment(self, role: str) -> dict[str, str]:
        """Returns the variables of the environment file, as systemd reads it."""
        variables = {}
        for line in (self.etc / f"{role}.env").read_text().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.partition("=")
                if value.startswith('"'):
                    value = re.sub(r"\\(.)", r"\1", value[1:-1])
                variables[name] = value
        return variables

    def arguments(self, unit: str, line: str) -> list[str]:
        """Returns the arguments of the program in a line of the unit, with the paths of this machine."""
        text = (self.directory / "root/etc/systemd/system" / unit).read_text()
        (command,) = [found.partition("=")[2] for found in text.splitlines() if found.startswith(f"{line}=")]
        program, *arguments = command.replace("/etc/volary", str(self.etc)).split()
        assert program == "/usr/bin/volary"
        return arguments

    def calls(self) -> list[str]:
        """Returns the calls of programs that were only noted."""
        file = self._cloud.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def end(self) -> None:
        """Deletes all that was not on the data volume."""
        shutil.rmtree(self.directory / "root")
        shutil.rmtree(self.etc)
        self.program.unlink()
        (self.directory / "fstab").unlink()
