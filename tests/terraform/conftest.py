"""What the tests of the Terraform module share. They run in the order of `_ORDER`: first what takes least time."""

from __future__ import annotations

from pathlib import Path

import pytest
from module import Module, build_replica, mirror

_ORDER = [
    "test_format",
    "test_schema",
    "test_modules",
    "test_bootstrap",
    "test_boot",
    "test_cluster",
    "test_policy",
    "test_mistakes",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _ORDER.index(item.path.stem))


@pytest.fixture(scope="session")
def replica() -> Path:
    """The mirror with the replica of the provider."""
    build_replica(mirror())
    return mirror()


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory, replica: Path) -> Module:
    """A copy of the module that no test changes."""
    copy = Module(tmp_path_factory.mktemp("module"), replica)
    copy.run("init", "-no-color", "-input=false")
    return copy


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Module:
    """A copy for what needs no provider."""
    return Module(tmp_path_factory.mktemp("bootstrap"), None)
