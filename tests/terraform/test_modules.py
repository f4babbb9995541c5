"""Tests that the module and its examples are valid, and runs the tests that are written in Terraform's language."""

from __future__ import annotations

import pytest
from programs import TERRAFORM

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
