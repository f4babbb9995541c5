"""Checks the form of comments: the length of their lines, and how doc comments begin."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rust_source import split_comments

# ruff checks the lines of Python.
MOST_CHARACTERS = {".rs": 100, ".md": 120}

# Programs generate these pages, and do not wrap lines.
GENERATED = ["docs/configuration.md", "docs/limits.md", "benches/results/"]

# A doc comment that begins with one of these words is a fragment of a sentence.
FRAGMENTS = {
    "And", "As", "But", "For", "Like", "Of", "Or", "So", "Such", "Than", "That", "Those", "To", "When", "Where",
    "Whether", "Which", "Who", "Whose", "With", "Without",
}  # fmt: skip
FRAGMENTS_OF_WORDS = ["The same"]

# Beginnings of doc comments that are allowed in spite of the rules, with the reason.
ALLOWED_BEGINNINGS = {
    "gRPC": "the name begins with a small letter",
    "jemalloc": "the name begins with a small letter",
    "volary ": "the name of the Python package begins with a small letter",
}


@dataclass(frozen=True, order=True)
class Finding:
    """A line that breaks a rule."""

    file: Path
    line: int
    text: str


def long_lines(file: Path, source: str) -> Iterator[Finding]:
    """Finds comments, and lines of Markdown, that are too long."""
    most = MOST_CHARACTERS.get(file.suffix)
    if most is None or any(file.as_posix().startswith(page) for page in GENERATED):
        return
    lines = source.splitlines()
    for number in sorted(lines_of_text(file, source)):
        line = lines[number - 1]
        if len(line) > most and not is_excepted(line, most):
            yield Finding(file, number, f"{len(line)} characters; {most} is the most")


def is_excepted(line: str, most: int) -> bool:
    """Says whether a line cannot be broken: it is a row of a table, or would fit without its URLs."""
    without_urls = re.sub(r"\S*://\S*", "", line)
    return line.lstrip("/! ").startswith("|") or len(without_urls) <= most


def lines_of_text(file: Path, source: str) -> set[int]:
    """Returns the numbers of the lines that have comments, or that are Markdown outside of code blocks."""
    if file.suffix == ".rs":
        return {
            line
            for comment in split_comments(source)[1]
            for line in range(comment.line, comment.line + comment.text.count("\n") + 1)
        }
    lines = set()
    is_code = False
    for number, line in enumerate(source.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            lines.add(number)
    return lines


def docstrings(source: str) -> Iterator[tuple[ast.Constant, str]]:
    """Finds the docstrings of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                text = first.value.value
                if isinstance(text, str):
                    yield first.value, text


def doc_comments(file: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yields the line number at which each doc comment begins, and its first line of text."""
    if file.suffix == ".md":
        return
    if file.suffix == ".py":
        for node, text in docstrings(source):
            yield node.lineno, text.strip().split("\n")[0]
        return
    last_line, last_mark = -1, ""
    for comment in split_comments(source)[1]:
        mark = comment.text[:3]
        is_doc = mark in ("///", "//!") and not comment.text.startswith("////")
        if is_doc and not (comment.line == last_line + 1 and mark == last_mark):
            yield comment.line, comment.text[3:].strip()
        if is_doc:
            last_line, last_mark = comment.line, mark


def fragments(file: Path, source: str) -> Iterator[Finding]:
    """Finds doc comments that do not begin with a sentence."""
    for line, text in doc_comments(file, source):
        why = fault(text)
        if why and not any(text.startswith(beginning) for beginning in ALLOWED_BEGINNINGS):
            yield Finding(file, line, f"{why}: {text[:60]}")


def fault(text: str) -> str | None:
    """Returns what is wrong with the beginning of a doc comment."""
    word = re.match(r"[^\W_][\w'-]*", text)
    if not word or not word.group()[0].isupper():
        return "a doc comment begins with a capitalised word"
    if word.group() in FRAGMENTS or any(re.match(rf"{words}\b", text) for words in FRAGMENTS_OF_WORDS):
        return f"a doc comment that begins with {word.group()!r} is a fragment"
    return None
