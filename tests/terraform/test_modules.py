"""Tests that the module and its examples are valid, and runs the tests that are written in Terraform's language."""

from __future__ import annotations

import ast
import inspect
import json
import re

import pytest
from programs import TERRAFORM

import volary

pytestmark = pytest.mark.downloads

DIRECTORIES = ["aws", *sorted(f"aws/examples/{path.name}" for path in (TERRAFORM / "aws" / "examples").iterdir())]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_it_is_valid_and_its_own_tests_pass(module, directory):
    module.run("init", "-no-color", "-input=false", within=directory)
    module.run("validate", "-no-color", within=directory)
    tested = module.run("test", "-no-color", within=directory)
    # A run without a single test would end well, too.
    assert " passed, 0 failed." in tested.stdout
    assert "Success! 0 passed" not in tested.stdout


def test_all_examples_are_tested():
    assert {path.rsplit("/", 1)[1] for path in DIRECTORIES[1:]} == {"minimal", "existing-vpc", "production"}


def test_the_number_of_variables_stays_small():
    variables = (TERRAFORM / "aws" / "variables.tf").read_text().count('\nvariable "') + 1
    assert 20 <= variables <= 25


@pytest.mark.parametrize("directory", ["aws/examples/minimal", "aws/examples/production"])
def test_the_snippet_of_python_calls_the_client_as_it_is(module, directory):
    module.run("init", "-no-color", "-input=false", within=directory)
    told = module.run("test", "-json", "-verbose", within=directory).stdout.splitlines()
    (plan,) = [line["test_plan"] for line in map(json.loads, told) if "test_plan" in line]
    calls = [
        node
        for node in ast.walk(ast.parse(plan["output_changes"]["python"]["after"]))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "volary.connect"
    ]
    (call,) = calls
    known = inspect.signature(volary.connect).parameters
    given = {keyword.arg for keyword in call.keywords}
    assert given <= set(known)
    assert ("tls_certificate" in given) == (directory == "aws/examples/production")


def test_the_readme_names_inputs_and_outputs_that_exist():
    readme = (TERRAFORM / "README.md").read_text()
    inputs = set(re.findall(r'^variable "(\w+)"', (TERRAFORM / "aws" / "variables.tf").read_text(), re.MULTILINE))
    outputs = set(re.findall(r'^output "(\w+)"', (TERRAFORM / "aws" / "outputs.tf").read_text(), re.MULTILINE))
    table = readme[readme.index("| input | meaning") :].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert len(named) > 8
    assert named <= inputs
    listed = re.search(r"Outputs: ([^.]*)\.", readme)
    assert listed
    assert set(re.findall(r"`(\w+)`", listed[1])) == outputs
