"""Tests which crates use which others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# The other crates that each crate uses. ARCHITECTURE.md shows them in a map.
ARROWS = {
    "flight-proto": set(),
    "node": {"flight-proto"},
    "exec": {"node", "flight-proto"},
    "gather": {"exec", "node", "flight-proto"},
    "catalog": {"exec", "node", "flight-proto"},
    "planner": {"catalog", "gather", "exec", "node", "flight-proto"},
    "gateway": {"planner", "catalog", "gather", "exec", "node", "flight-proto"},
    "worker": {"gather", "exec", "node", "flight-proto"},
    "cli": {"gateway", "worker", "node", "flight-proto"},
    "tests": {"cli", "exec", "node", "flight-proto"},
    "benches": {"cli", "gateway", "worker", "planner", "catalog", "exec", "node", "flight-proto"},
    "faulty-disk": {"node"},
}
# The crates that only the tests of a crate use.
ARROWS_OF_TESTS = {"catalog": {"faulty-disk"}, "worker": {"faulty-disk"}}


def manifests() -> dict[str, dict]:
    """Returns what cargo reads in the manifest of each crate."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    return {package["name"].removeprefix("volary-"): package for package in json.loads(metadata)["packages"]}


@pytest.fixture(scope="module")
def packages() -> dict[str, dict]:
    return manifests()


def arrows(packages: dict[str, dict], of_tests: bool) -> set[tuple[str, str]]:
    """Returns which crate names which others in its manifest."""
    return {
        (name, used)
        for name, package in packages.items()
        for dependency in package["dependencies"]
        if (used := dependency["name"].removeprefix("volary-")) in packages
        if (dependency["kind"] == "dev") == of_tests
    }


def pairs(table: dict[str, set[str]]) -> set[tuple[str, str]]:
    return {(name, used) for name, all_used in table.items() for used in all_used}


@pytest.mark.parametrize(("of_tests", "table"), [(False, ARROWS), (True, ARROWS_OF_TESTS)])
def test_crates_use_only_the_crates_that_the_table_allows(packages, of_tests, table):
    found = arrows(packages, of_tests)
    new = [f"{name} -> {used}" for name, used in sorted(found - pairs(table))]
    gone = [f"{name} -> {used}" for name, used in sorted(pairs(table) - found)]
    assert not new, f"New arrows between crates: {new}. If they are meant, add them here and to ARCHITECTURE.md's map."
    assert not gone, f"These arrows between crates are gone: {gone}. Remove them here and from ARCHITECTURE.md's map."


def test_the_table_lists_all_crates(packages):
    assert sorted(packages) == sorted(ARROWS)


def test_each_crate_names_all_crates_of_its_manifest_in_its_code(packages):
    unused = []
    for name, used in sorted(arrows(packages, False) | arrows(packages, True)):
        directory = Path(packages[name]["manifest_path"]).parent
        # The directory of the crate `tests` also contains the crate `faulty-disk`, which names no further crates.
        sources = (path.read_text(encoding="utf-8") for path in sorted(directory.rglob("*.rs")))
        if not any(f"volary_{used.replace('-', '_')}" in source for source in sources):
            unused.append(f"{name} -> {used}")
    assert not unused, f"These crates are named in a Cargo.toml, and nowhere in the code: {unused}"
