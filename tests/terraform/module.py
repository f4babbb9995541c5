"""Copies of the Terraform folder, in which Terraform may write, and the replica of the provider that it finds there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from programs import INSTALLED, TERRAFORM, missing, run, tool

VERSION = "6.25.0"
_LEFT_OUT = shutil.ignore_patterns(".terraform", ".terraform.lock.hcl", "*.tfstate*")


def build_replica(mirror: Path) -> None:
    """Builds the replica of the provider into a mirror, where `terraform init` finds it."""
    go = tool("go")
    source = TERRAFORM / "aws" / "testing" / "schema"
    downloaded = run(go, "mod", "download", directory=source, succeeds=False)
    if downloaded.returncode != 0:
        missing("a Go module of the schema replica")
    platform = "_".join(run(go, "env", "GOOS", "GOARCH").stdout.split())
    place = mirror / "registry.terraform.io" / "hashicorp" / "aws" / VERSION / platform
    run(go, "build", "-o", place / f"terraform-provider-aws_v{VERSION}", ".", directory=source)


class Module:
    """A copy of the Terraform folder. Terraform may write its lock files there, with the replica's checksum."""

    def __init__(self, directory: Path, mirror: Path | None) -> None:
        self.directory = directory / "terraform"
        self.terraform = tool("terraform")
        shutil.copytree(TERRAFORM, self.directory, ignore=_LEFT_OUT)
        settings = directory / "terraform.rc"
        # Terraform looks for providers nowhere else. Without a mirror, there is none.
        where = f"provider_installation {{\n  filesystem_mirror {{\n    path = {json.dumps(str(mirror))}\n  }}\n}}\n"
        settings.write_text("disable_checkpoint = true\n" + (where if mirror else "provider_installation {}\n"))
        self._environment = {"TF_CLI_CONFIG_FILE": str(settings), "TF_IN_AUTOMATION": "1"}

    def run(self, *arguments: str, within: str = "aws", succeeds: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs Terraform in a directory of the copy."""
        return run(
            self.terraform,
            *arguments,
            directory=self.directory / within,
            environment=self._environment,
            succeeds=succeeds,
        )

    def apply(self, within: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Applies a directory of the copy, and returns its outputs."""
        (self.directory / within / "terraform.tfvars.json").write_text(json.dumps(variables))
        self.run("init", "-no-color", "-input=false", within=within)
        self.run("apply", "-no-color", "-input=false", "-auto-approve", within=within)
        ended = subprocess.run(
            [self.terraform, "output", "-json"],
            cwd=self.directory / within,
            env={**os.environ, **self._environment},
            check=True,
            capture_output=True,
        )
        return {name: output["value"] for name, output in json.loads(ended.stdout).items()}


def mirror() -> Path:
    """The directory of the mirror. It stays between runs, because Go builds nothing anew that has not changed."""
    return INSTALLED / "mirror"
