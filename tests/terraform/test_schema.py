"""Tests the replica of the provider: it knows all types that the module uses, and it finds mistakes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import extract
import pytest
from module import Module
from programs import TERRAFORM, missing, run, tool

SCHEMA = TERRAFORM / "aws" / "testing" / "schema" / "schema.json"


@pytest.fixture(scope="module")
def provider() -> dict[str, dict[str, dict]]:
    return json.loads(SCHEMA.read_text())["provider_schemas"][extract.PROVIDER]


def test_the_schema_has_exactly_the_types_that_the_module_uses(provider):
    used = extract.used_types()
    assert used["resource"]
    assert set(provider["resource_schemas"]) == used["resource"], "run terraform/aws/testing/schema/extract.py"
    assert set(provider["data_source_schemas"]) == used["data"], "run terraform/aws/testing/schema/extract.py"


def test_the_schema_says_what_is_required_optional_and_computed(provider):
    attributes = provider["resource_schemas"]["aws_ebs_volume"]["block"]["attributes"]
    assert attributes["availability_zone"] == {"type": "string", "required": True}
    assert attributes["encrypted"] == {"type": "bool", "optional": True, "computed": True}
    assert attributes["arn"] == {"type": "string", "computed": True}
    blocks = provider["resource_schemas"]["aws_lb_listener"]["block"]["block_types"]
    assert (blocks["default_action"]["nesting_mode"], blocks["default_action"]["min_items"]) == ("list", 1)
    assert blocks["default_action"]["block"]["block_types"]["redirect"]["max_items"] == 1


@pytest.mark.downloads
def test_the_schema_is_the_one_of_the_package(tmp_path: Path):
    try:
        package = extract.downloaded(tmp_path, tool("npm"))
    except subprocess.CalledProcessError:
        missing(f"the package {extract.PACKAGE}")
    written = extract.schema(package / "lib", extract.used_types())
    assert written == json.loads(SCHEMA.read_text()), "run terraform/aws/testing/schema/extract.py"


_USE = """
terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

resource "aws_ebs_volume" "probe" {
  availability_zone = "eu-central-1a"
  size              = 1
}
"""


@pytest.mark.downloads
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("size  ", "sise  ", 'An argument named "sise" is not expected here'),
        ("= 1", '= ["one"]', 'Inappropriate value for attribute "size": number required'),
        ('  availability_zone = "eu-central-1a"\n', "", 'The argument "availability_zone" is required'),
        (
            "= 1",
            "= aws_ebs_volume.probe.sise",
            'no argument, nested block, or exported attribute named "sise"',
        ),
        ("= 1", '= 1\n  arn = "arn:aws:ec2:::volume/vol-1"', "its value will be decided automatically"),
        ("= 1", "= 1\n  timeouts {\n    crate = 1\n  }", 'An argument named "crate" is not expected here'),
        ("aws_ebs_volume", "aws_ebs_volumes", 'does not support resource type "aws_ebs_volumes"'),
    ],
    ids=["misspelt", "type", "missing", "unknown", "computed", "nested", "no-type"],
)
def test_the_replica_finds_mistakes(replica, tmp_path, old, new, complaint):
    copy = Module(tmp_path, replica)
    probe = copy.directory / "probe"
    probe.mkdir()
    (probe / "main.tf").write_text(_USE)
    copy.run("init", "-no-color", "-input=false", within="probe")
    copy.run("validate", "-no-color", within="probe")
    assert old in _USE
    (probe / "main.tf").write_text(_USE.replace(old, new))
    found = copy.run("validate", "-no-color", within="probe", succeeds=False)
    assert found.returncode != 0
    # Terraform breaks lines where it likes, and draws a frame.
    assert complaint in " ".join(found.stdout.replace("│", "").split())


@pytest.mark.downloads
def test_the_replica_does_not_plan(replica, tmp_path):
    copy = Module(tmp_path, replica)
    probe = copy.directory / "probe"
    probe.mkdir()
    (probe / "main.tf").write_text(_USE)
    copy.run("init", "-no-color", "-input=false", within="probe")
    planned = copy.run("plan", "-no-color", "-input=false", within="probe", succeeds=False)
    assert planned.returncode != 0
    assert "plugin crashed" in planned.stdout or "did not respond" in planned.stdout


@pytest.mark.downloads
def test_the_replica_has_no_warning_of_go():
    run(tool("go"), "vet", "./...", directory=SCHEMA.parent)
