"""Checks that each `mod` line has a doc comment of one sentence, which the file of the module does not repeat."""

import re
from collections.abc import Iterator
from pathlib import Path

from comments import Finding

MODULE = re.compile(r"\s*(?:pub(?:\([a-z ]+\))? )?mod (\w+);")
# A sentence ends within a text if a new one begins after it.
NEXT_SENTENCE = re.compile(r"[.:!?] +[A-Z\[]")
# The children of these files are beside them. The children of other files are in a directory.
PARENTS_OF_THEIR_DIRECTORY = ("lib.rs", "main.rs", "mod.rs")


def module_docs(files: dict[Path, str]) -> Iterator[Finding]:
    """Finds modules that lack a description or have it twice. `files` has the source of each path."""
    for path, source in files.items():
        lines = source.splitlines()
        for index, line in enumerate(lines):
            module = MODULE.fullmatch(line)
            if not module or is_only_for_tests(lines, index):
                continue
            child = child_of(path, module[1], files)
            if child is None:
                continue
            why = fault(doc_above(lines, index), first_sentence(inner_doc(files[child])))
            if why:
                yield Finding(path, index + 1, f"module {module[1]}: {why}")


def fault(doc: str, first_of_file: str) -> str | None:
    """Returns what is wrong with the doc comment of a module. `first_of_file` is the first sentence in its file."""
    if not doc:
        return "a doc comment above this line must say in one sentence what the module does"
    if NEXT_SENTENCE.search(doc):
        return "this doc comment is one sentence; more is said at the beginning of the file"
    if normalised(doc) == normalised(first_of_file):
        return "the beginning of the file repeats this sentence"
    return None


def child_of(parent: Path, name: str, files: dict[Path, str]) -> Path | None:
    """Returns the file of a module."""
    within = parent.parent if parent.name in PARENTS_OF_THEIR_DIRECTORY else parent.with_suffix("")
    for child in (within / f"{name}.rs", within / name / "mod.rs"):
        if child in files:
            return child
    return None


def is_only_for_tests(lines: list[str], index: int) -> bool:
    """Returns whether a module is compiled only for tests."""
    return any("cfg(test)" in line for line in above(lines, index, "#["))


def doc_above(lines: list[str], index: int) -> str:
    """Returns the text of the doc comment above a line."""
    return " ".join(line.strip().removeprefix("///").strip() for line in above(lines, index, "///"))


def above(lines: list[str], index: int, mark: str) -> list[str]:
    """Returns the lines that begin with `mark` among the attributes and doc comments directly above a line."""
    first = index
    while first > 0 and lines[first - 1].lstrip().startswith(("#[", "///")):
        first -= 1
    return [line for line in lines[first:index] if line.lstrip().startswith(mark)]


def inner_doc(source: str) -> str:
    """Returns the text of the doc comment at the beginning of a file."""
    text = []
    for line in source.splitlines():
        if not line.startswith("//!"):
            break
        text.append(line.removeprefix("//!").strip())
    return " ".join(text)


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text."""
    end = NEXT_SENTENCE.search(text)
    return text[: end.start() + 1] if end else text


def normalised(sentence: str) -> str:
    """Returns a sentence in lower case and without punctuation."""
    return re.sub(r"[^a-z0-9 ]", "", sentence.lower())
