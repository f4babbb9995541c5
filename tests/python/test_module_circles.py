"""Tests that the files of a library crate do not use each other in circles, and the reader that finds circles."""

from __future__ import annotations

from pathlib import Path

import pytest
from rust_modules import circles, described, read_crate, uses_of

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARIES = sorted(path.parents[1].name for path in REPOSITORY.glob("*/src/lib.rs"))


@pytest.mark.parametrize("crate", LIBRARIES)
def test_files_of_a_crate_do_not_use_each_other_in_circles(crate):
    source = REPOSITORY / crate / "src"
    uses = uses_of(read_crate(source))
    assert uses, f"no uses were found in {source}"
    found = [described(circle, uses, REPOSITORY) for circle in circles(uses)]
    if found:
        explanation = "tools/rust_modules.py says what a circle is. Move an item to the file where it belongs."
        pytest.fail("\n".join([*found, explanation]), pytrace=False)


def crate(directory: Path, **files: str) -> list[str]:
    """Writes a crate, and returns its circles as texts. `__` in a name stands for `/`."""
    for name, text in files.items():
        path = directory / (name.replace("__", "/") + ".rs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    uses = uses_of(read_crate(directory))
    return [described(circle, uses, directory) for circle in circles(uses)]


def test_two_files_that_use_each_other_are_a_circle(tmp_path):
    (circle,) = crate(
        tmp_path,
        lib="mod a;\nmod b;\n",
        a="use crate::b::{self, B};\npub struct A(B);\n",
        b="pub struct B;\n\nfn of(a: &super::a::A) {}\n",
    )
    assert circle.splitlines() == [
        "2 files use each other:",
        "  a.rs:1 uses B of b.rs",
        "  b.rs:3 uses A of a.rs",
    ]


def test_a_circle_may_go_through_modules_that_are_imported_and_names_that_are_exported_again(tmp_path):
    (circle,) = crate(
        tmp_path,
        lib="mod a;\nmod b;\nmod front;\n",
        a="use crate::front;\npub fn of(b: front::Other) {}\n",
        front__mod="mod hidden;\npub use hidden::B as Other;\n",
        front__hidden="pub struct B(crate::b::C);\n",
        b="pub struct C;\npub fn again() { crate::a::of(todo!()) }\n",
    )
    assert "a.rs:2 uses B of front/hidden.rs" in circle
    assert "mod.rs" not in circle


def test_a_parent_and_its_child_are_no_circle(tmp_path):
    assert not crate(
        tmp_path,
        lib="mod a;\npub struct Root;\nfn all() { a::start() }\n",
        a__mod="mod below;\npub struct A(below::Below);\npub fn start() {}\n",
        a__below="use super::A;\nuse crate::Root;\npub struct Below;\nfn of(a: &A, root: Root) {}\n",
    )


def test_a_way_from_a_parent_around_to_its_child_is_a_circle(tmp_path):
    (circle,) = crate(
        tmp_path,
        lib="mod a;\nmod b;\n",
        a__mod="pub mod below;\npub struct A(crate::b::B);\n",
        a__below="use super::A;\npub struct Below(A);\n",
        b="pub struct B(Vec<crate::a::below::Below>);\n",
    )
    assert circle.startswith("3 files")


def test_tests_comments_and_texts_make_no_circle(tmp_path):
    assert not crate(
        tmp_path,
        lib="mod a;\nmod b;\n",
        a="pub struct A(crate::b::B);\n",
        b=(
            "/// See [`crate::a::A`].\npub struct B; // crate::a::A\n/* use crate::a::A; /* */ */\n"
            'const TEXT: &str = "crate::a::A"; const RAW: &str = r#"" crate::a::A "#; const QUOTE: char = \'"\';\n'
            "#[cfg(test)]\nuse crate::a::A;\n"
            "#[cfg(test)]\nmod tests { use crate::a::A; fn of(_: A) {} }\n#[cfg(test)]\nmod more_tests;\n"
        ),
        b__more_tests="use crate::a::A;\n",
    )


def test_a_function_and_its_module_may_have_the_same_name(tmp_path):
    (circle,) = crate(
        tmp_path,
        lib="mod read;\nmod b;\n",
        read="pub fn read() { crate::b::start() }\n",
        b="use crate::read::read;\npub fn start() { read() }\n",
    )
    assert "b.rs:1 uses read of read.rs" in circle
