"""Tests what checkov and AWS' own lists say about the module."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from programs import INSTALLED, TERRAFORM, missing, run, tool

pytestmark = pytest.mark.downloads

SKIPPED = {
    "CKV2_AWS_5": "the groups are attached to network interfaces, in another module, where checkov does not follow",
    "CKV_AWS_91": "a network load balancer logs only listeners that end TLS, and this one passes it on",
    "CKV_AWS_18": "CloudTrail logs the access to files for a whole account; a bucket of logs is no part of a cluster",
    "CKV_AWS_144": "the bucket has copies of files to load, which stay where they came from",
    "CKV2_AWS_62": "nothing waits for events of the bucket",
    "CKV2_AWS_11": "flow logs are decided for a whole account, with a place for them and how long they are kept",
}
"""The checks of checkov that are left out, and why."""


def checkov(directory: Path, *arguments: str) -> dict[str, list[str]]:
    """Returns the failed checks, each with the resources that fail it."""
    checked = run(
        tool("checkov"),
        f"--directory={directory}",
        "--skip-download",
        "--framework=terraform",
        "--output=json",
        "--quiet",
        *arguments,
        succeeds=False,
    )
    # Warnings come before the report.
    report = json.loads(checked.stdout[checked.stdout.index("{") :])
    assert report["summary"]["parsing_errors"] == 0
    failed: dict[str, list[str]] = {}
    for check in report["results"]["failed_checks"]:
        failed.setdefault(check["check_id"], []).append(check["resource"])
    return failed


def test_checkov_finds_nothing_else_than_what_was_decided():
    failed = checkov(TERRAFORM / "aws")
    assert set(failed) == set(SKIPPED), {check: failed[check] for check in failed if check not in SKIPPED}


def test_all_instance_types_exist():
    """They have no local disks, and the module relies on none: what spills is on the data volume."""
    found = sorted(INSTALLED.glob("lib/python*/site-packages/botocore/data/ec2/*/service-2.json.gz"))
    if not found:
        missing("botocore, which knows the types of machines")
    known = set(json.loads(gzip.decompress(found[-1].read_bytes()))["shapes"]["InstanceType"]["enum"])
    used = {
        kind
        for file in TERRAFORM.rglob("*.tf")
        for kind in re.findall(r'instance_type\s*=\s*(?:optional\(string, )?"([a-z0-9.-]+)"', file.read_text())
    }
    assert len(used) > 3
    assert used <= known, used - known
