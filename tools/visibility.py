"""Finds what library crates make public although no other crate, binary, test, bench or fuzz target uses it.

An item counts as used if its name occurs in code outside the crate's `src`; the crate's own `tests` and `benches` are
outside. A type also counts as used if a used item shows it: in the signature of a function, the public fields of a
struct, the variants of an enum, the body of a trait, or the associated types of an implementation. Fields and the
methods of traits are not checked.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from comments import Finding
from rust_source import Token, end_of_item, is_word, matching, split_comments, tokens_of, without_tests

KINDS = {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"}
QUALIFIERS = {"async", "unsafe", "extern"}

# Public names that may be unused, with the reason.
ALLOWED: dict[str, str] = {}


def libraries(paths: Collection[Path]) -> list[str]:
    """Returns the directories of the crates that have a library and no binary."""
    crates = [path.parts[0] for path in paths if path.parts[1:] == ("src", "lib.rs")]
    return [crate for crate in crates if not any(is_binary(path, crate) for path in paths)]


def is_binary(path: Path, crate: str) -> bool:
    return path == Path(crate, "src", "main.rs") or path.is_relative_to(Path(crate, "src", "bin"))


@dataclass(frozen=True)
class Item:
    """A public item, and the words that it shows to its users."""

    file: Path
    line: int
    kind: str
    name: str
    shows: frozenset[str] = field(compare=False)


def unused(files: dict[Path, str]) -> Iterator[Finding]:
    """Finds public items that only their own library uses. `files` has the source of each Rust file by its path."""
    tokens = {path: tokens_of(split_comments(source)[0]) for path, source in files.items()}
    words = {path: words_of(found) for path, found in tokens.items()}
    for library in libraries(files):
        own = [path for path in files if path.is_relative_to(Path(library, "src"))]
        outside = {word for path in files if path not in own for word in words[path]}
        items = [item for path in own if not is_test(path) for item in items_of(path, tokens[path])]
        shown = implied(items, outside)
        for item in items:
            if item.name and item.name not in outside | shown and item.name not in ALLOWED:
                yield Finding(item.file, item.line, f"`{item.name}` is public, and only its own crate uses it")


def is_test(path: Path) -> bool:
    """Says whether a file has only tests."""
    return path.name == "tests.rs" or "tests" in path.parts


def words_of(tokens: list[Token]) -> set[str]:
    """Returns all names and keywords in the code."""
    return {token.text for token in tokens if is_word(token.text)}


def implied(items: list[Item], outside: set[str]) -> set[str]:
    """Returns the names that used items show."""
    shown: set[str] = set()
    waiting = [item for item in items if item.name in outside or not item.name]
    rest = [item for item in items if item not in waiting]
    while waiting:
        shown |= {word for item in waiting for word in item.shows}
        waiting = [item for item in rest if item.kind != "fn" and item.name in shown]
        rest = [item for item in rest if item not in waiting]
    return shown


def items_of(path: Path, tokens: list[Token]) -> list[Item]:
    """Returns the public items of a file, and its implementations of traits as items without names."""
    items: list[Item] = []
    read_items(path, without_tests(tokens), items)
    return items


def read_items(path: Path, tokens: list[Token], items: list[Item]) -> None:
    """Reads the items of a module or of an `impl` block."""
    index = 0
    while index < len(tokens):
        end = end_of_item(tokens, index)
        item = tokens[index:end]
        index = max(end, index + 1)
        start = 0
        while start < len(item) and item[start].text == "#":
            start = matching(item, start + 1) + 1
        read_item(path, item[start:], items)


def read_item(path: Path, item: list[Token], items: list[Item]) -> None:
    """Reads one item, without its attributes."""
    if not item:
        return
    if item[0].text == "impl":
        read_implementation(path, item, items)
        return
    is_public = item[0].text == "pub" and item[1].text != "("
    position = 0
    if item[0].text == "pub":
        position = 1 if is_public else matching(item, 1) + 1
    while item[position].text in QUALIFIERS or (item[position].text == "const" and item[position + 1].text == "fn"):
        position += 1
    kind = item[position].text
    if kind not in KINDS or position + 1 >= len(item):
        return
    if kind == "mod" and item[-1].text == "}":
        opening = next(at for at, token in enumerate(item) if token.text == "{")
        read_items(path, item[opening + 1 : -1], items)
    if is_public and is_word(item[position + 1].text):
        name = item[position + 1]
        items.append(Item(path, name.line, kind, name.text, frozenset(shown_by(kind, item[position + 2 :]))))


def read_implementation(path: Path, item: list[Token], items: list[Item]) -> None:
    """Reads an `impl` block. The associated types of a trait implementation are public."""
    opening = next((at for at, token in enumerate(item) if token.text == "{"), len(item))
    body = item[opening + 1 : -1]
    if not any(token.text == "for" for token in item[:opening]):
        read_items(path, body, items)
        return
    for at, token in enumerate(body):
        if token.text == "type":
            end = end_of_item(body, at)
            items.append(Item(path, token.line, "impl", "", frozenset(words_of(body[at:end]))))


def shown_by(kind: str, rest: list[Token]) -> set[str]:
    """Returns the words that an item shows to its users. `rest` has the tokens after its name."""
    if kind == "fn":
        opening = next((at for at, token in enumerate(rest) if token.text == "{"), len(rest))
        return words_of(rest[:opening])
    if kind in ("const", "static"):
        equals = next((at for at, token in enumerate(rest) if token.text == "="), len(rest))
        return words_of(rest[:equals])
    if kind == "mod":
        return set()
    if kind != "struct":
        return words_of(rest)
    shown: set[str] = set()
    for at, token in enumerate(rest):
        if token.text == "pub" and rest[at + 1].text != "(":
            end = at + 1
            depth = 0
            while end < len(rest) and (depth > 0 or rest[end].text not in (",", "}", ")", ";")):
                depth += (rest[end].text in "(<[") - (rest[end].text in ")>]")
                end += 1
            shown |= words_of(rest[at + 1 : end])
    return shown
