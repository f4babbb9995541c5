"""Finds the tests of `dbt-tests-adapter`, so that each release of it brings its new ones along."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import dbt.tests.adapter
import pytest

_PREFIX = dbt.tests.adapter.__name__ + "."


def test_classes(left_out: Mapping[str, str], changed: Iterable[type]) -> dict[str, type]:
    """Returns a class for pytest for each class of the suite that has tests and no subclass in the suite.

    `left_out` has the reasons by the names of modules, classes or methods, such as `hooks.test_run_hooks.TestX`. These
    tests are shown as skipped. A class of `changed` is taken in place of its last base class.
    """
    found = {_name(kind): kind for module in _modules() for kind in vars(module).values() if _has_tests(kind, module)}
    bases = {base for kind in found.values() for base in kind.__mro__[1:]}
    replaced = {kind.__bases__[-1]: kind for kind in changed}
    classes, used = {}, set()
    for name, kind in found.items():
        replacement = replaced.pop(kind, None)
        if kind in bases and replacement is None:
            continue
        own = type("Test" + kind.__name__, (replacement or kind,), {"__module__": kind.__module__})
        for key, reason in left_out.items():
            if f"{name}.".startswith(f"{key}."):
                own = pytest.mark.skip(reason=reason)(own)
            elif key.startswith(f"{name}."):
                method = key.removeprefix(f"{name}.")
                setattr(own, method, pytest.mark.skip(reason=reason)(_copy_of(getattr(own, method))))
            else:
                continue
            used.add(key)
        classes["Test_" + name.replace(".", "_")] = own
    unknown = {*(set(left_out) - used), *(kind.__name__ for kind in replaced)}
    assert not unknown, f"the suite has no such tests: {', '.join(sorted(unknown))}"
    return classes


def _modules() -> Iterator[ModuleType]:
    # Some of the directories are no packages, so pkgutil does not find what is in them.
    for root in map(Path, dbt.tests.adapter.__path__):
        for file in sorted(set(root.rglob("*.py")) - set(root.rglob("__init__.py"))):
            yield importlib.import_module(_PREFIX + ".".join(file.relative_to(root).with_suffix("").parts))


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix(_PREFIX)}.{kind.__name__}"


def _has_tests(kind: object, module: ModuleType) -> bool:
    return (
        isinstance(kind, type)
        and kind.__module__ == module.__name__
        and any(name.startswith("test_") and callable(getattr(kind, name)) for name in dir(kind))
    )


def _copy_of(method):
    """Returns a function of its own, so that a mark stays with one class."""
    return lambda self, *_: method(self)
