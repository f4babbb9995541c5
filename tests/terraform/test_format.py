"""Tests that the module is formatted and linted, and that nothing is committed that Terraform writes."""

from __future__ import annotations

import pytest
from programs import REPOSITORY, TERRAFORM, run, tool


def test_all_files_are_formatted():
    # It ends with another exit code if it would change a file.
    run(tool("terraform"), "fmt", "-check", "-recursive", "-diff", TERRAFORM)
    run(tool("terraform"), "fmt", "-check", "-recursive", "-diff", REPOSITORY / "tests" / "terraform")


@pytest.mark.downloads
def test_tflint_finds_nothing():
    linted = run(tool("tflint"), "--recursive", f"--config={TERRAFORM / '.tflint.hcl'}", directory=TERRAFORM)
    assert linted.stdout.strip() == ""


def test_go_files_are_formatted_and_vetted():
    source = TERRAFORM / "aws" / "testing" / "schema"
    assert run(tool("gofmt"), "-l", source).stdout == ""


def test_no_lock_file_and_no_state_is_committed():
    # A lock file would have the checksum of the replica, and no real provider would be accepted.
    # CI copies a fresh clone without its history, so all of its files are committed.
    if (REPOSITORY / ".git").exists():
        committed = run("git", "ls-files", "terraform").stdout.split()
    else:
        committed = [str(path) for path in (REPOSITORY / "terraform").rglob("*")]
    assert committed
    assert not [file for file in committed if ".terraform" in file or ".tfstate" in file]
