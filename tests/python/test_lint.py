"""Tests the checks of `tools/lint.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from comments import fragments, long_lines
from lint import findings, main
from module_docs import module_docs
from visibility import unused


def texts(name: str, source: str) -> list[str]:
    """Returns what is found in a file, with the numbers of the lines."""
    path = Path(name)
    found = [*long_lines(path, source), *fragments(path, source)]
    return [f"{finding.line}: {finding.text}" for finding in found]


LONG = "a" * 40 + " " + "b" * 70


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.rs", f"// {LONG}\n"),
        ("a.rs", f"/// Begins. {LONG}\nfn a() {{}}\n"),
        ("a.rs", f"/*\n{LONG}\n*/\n"),
        ("a.rs", f"{' ' * 80}let a = 1; // {'b' * 20}\n"),
        ("a.md", f"{LONG} {LONG}\n"),
        ("a.md", f"[link](https://example.org) {LONG} {LONG}\n"),
    ],
)
def test_long_comments_are_found(name: str, source: str):
    (found,) = texts(name, source)
    assert "is the most" in found


@pytest.mark.parametrize(
    ("name", "source"),
    [
        # rustfmt limits the length of code, and string literals may be long.
        ("a.rs", f'const A: &str = "// {LONG}";\n'),
        ("a.rs", f"// https://example.org/{'a' * 100}\n"),
        ("a.rs", f"/// | {LONG} |\n"),
        ("a.md", f"| {LONG} | {LONG} |\n"),
        ("a.md", f"```\n{LONG} {LONG}\n```\n"),
        ("docs/limits.md", f"{LONG} {LONG}\n"),
        # ruff checks the length of all lines of Python.
        ("a.py", f"# {LONG} {LONG}\n"),
    ],
)
def test_lines_that_may_be_long_are_not_found(name: str, source: str):
    assert not [text for text in texts(name, source) if "is the most" in text]


@pytest.mark.parametrize(
    ("name", "source", "line"),
    [
        ("a.rs", "/// Of a query: its id.\n", 1),
        ("a.rs", "\n//! Those that nobody reads.\n", 2),
        ("a.rs", "struct A {\n    /// Whether it is.\n    a: bool,\n}\n", 2),
        ("a.rs", "/// the id of a query.\n", 1),
        ("a.rs", "/// `id` of a query.\n", 1),
        ("a.rs", "/// The same for workers.\n", 1),
        ("a.py", "def a():\n    '''Where it is.'''\n", 2),
        ("a.py", '"""which features there are."""\n', 1),
    ],
)
def test_doc_comments_that_begin_no_sentence_are_found(name: str, source: str, line: int):
    (found,) = texts(name, source)
    assert found.startswith(f"{line}: a doc comment")


@pytest.mark.parametrize(
    ("parent", "child", "what"),
    [
        ("mod a;\n", "", "must say in one sentence"),
        ("/// Reads rows.\n\nmod a;\n", "", "must say in one sentence"),
        ("/// Reads rows. A row is long.\nmod a;\n", "", "is one sentence"),
        ("/// Reads rows\n/// of [`A`].\npub(super) mod a;\n", "//! Reads rows of `A`. Rows are long.\n", "repeats"),
    ],
)
@pytest.mark.parametrize(("parent_file", "child_file"), [("x/lib.rs", "x/a.rs"), ("x/y.rs", "x/y/a/mod.rs")])
def test_modules_that_are_described_not_at_all_or_twice_are_found(
    parent: str, child: str, what: str, parent_file: str, child_file: str
):
    (found,) = module_docs({Path(parent_file): parent, Path(child_file): child})
    assert found.file == Path(parent_file)
    assert what in found.text


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ("/// Reads rows, i.e. `mod a;`.\n#[cfg(unix)]\nmod a;\n", "//! A row has columns. Reads rows, too.\n"),
        ("#[cfg(test)]\nmod a;\n", ""),
        ("mod a {\n}\n", ""),
        ("// mod a;\n", ""),
    ],
)
def test_modules_that_are_described_once_are_not_found(parent: str, child: str):
    assert not list(module_docs({Path("x/mod.rs"): parent, Path("x/a.rs"): child}))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.rs", "/// Returns the id.\n/// of a query, on a line that only goes on.\n"),
        ("a.rs", "/// gRPC's name is written so.\n"),
        ("a.rs", "// of a comment that is no doc comment\n//// neither is this one\n"),
        ("a.rs", 'const A: &str = "/// of a text";\n'),
        ("a.rs", 'const A: &str = r#"\n/// of a text "#;\n'),
        ("a.py", "def a():\n    '''\n    Returns the id.\n\n    of which nothing is said'''\n    'of a text'\n"),
        ("a.md", "of a page\n"),
    ],
)
def test_other_comments_are_not_found(name: str, source: str):
    assert not texts(name, source)


def public(library: str, outside: str = "") -> set[str]:
    """Returns the public names of a library that nobody uses, if other code is `outside`."""
    files = {Path("node/src/lib.rs"): library, Path("tests/src/lib.rs"): outside}
    return {finding.text.split("`")[1] for finding in unused(files)}


def test_public_items_that_nobody_uses_are_found():
    library = """
        pub struct Unused { pub field: u32 }
        pub(crate) struct Narrow;
        #[derive(Debug)]
        pub enum Used { First }
        impl Used {
            pub fn forgotten(&self) {}
            pub const fn called(&self) -> u32 { 1 }
            fn private() {}
        }
        pub mod inner { pub async fn deep() {} }
        pub const LIMIT: [u8; 2] = [0; 2];
        pub trait Apart { fn method(&self); }
    """
    assert public(library, "use node::Used; fn a(used: Used) { used.called(); }") == {
        "Unused",
        "forgotten",
        "inner",
        "deep",
        "LIMIT",
        "Apart",
    }


def test_a_name_in_a_comment_or_in_a_text_is_no_use():
    assert public("pub fn a() {}", '// a\n/* a */ const TEXT: &str = "a";') == {"a"}


def test_what_a_used_item_shows_is_used():
    library = """
        pub struct Returned;
        pub fn used() -> Option<Returned> { Hidden::new() }
        pub struct Hidden;
        pub struct Settings { pub limits: Limits, pub(crate) secret: Secret }
        pub struct Limits;
        pub struct Secret;
        pub struct Rows;
        impl Iterator for Settings { type Item = Rows; }
        pub fn generic<A, B>(a: A, b: B) -> Made<A, B> where A: Into<B> { todo!() }
        pub struct Made<A, B>(A, pub Inside, B);
        pub struct Inside;
    """
    assert public(library, "fn a(settings: Settings) { used(); generic() }") == {"Hidden", "Secret"}


def test_tests_of_the_library_itself_are_no_use_of_its_public_items():
    assert public("pub fn a() {}\n#[cfg(test)]\nmod tests { fn b() { a() } pub fn c() {} }") == {"a"}


def test_all_that_is_found_is_printed_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = tmp_path / "node" / "src"
    source.mkdir(parents=True)
    (source / "lib.rs").write_text("//! Holds a node.\n\n/// Of a node.\npub struct Node;\n", encoding="utf-8")
    for made in ("target", ".venv", ".venv-dbt"):
        (tmp_path / made).mkdir()
        (tmp_path / made / "made.rs").write_text("/// of nobody\n", encoding="utf-8")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "node/src/lib.rs:3: a doc comment that begins with 'Of' is a fragment: Of a node.",
        "node/src/lib.rs:4: `Node` is public, and only its own crate uses it",
    ]
    (source / "lib.rs").write_text("//! Holds a node.\n\n/// Represents a node.\nstruct Node;\n", encoding="utf-8")
    assert main(tmp_path) == 0
    assert not list(findings({}))
