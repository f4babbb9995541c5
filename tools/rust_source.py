"""Reads Rust source for our own checks: splits it into tokens and comments, and removes tests."""

import re
from dataclasses import dataclass
from pathlib import Path

TOKEN = re.compile(r"r#[A-Za-z_]\w*|[A-Za-z_]\w*|'[A-Za-z_]\w*|::|[0-9][\w.]*|\S")
RAW_STRING = re.compile(r'(?:br|cr|r)(#*)"')
CHARACTER = re.compile(r"'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.))'")

# These items end at a semicolon, even if braces come before it.
ENDS_AT_SEMICOLON = {"use", "const", "static", "type", "let"}
# These items end at a semicolon or at a closing brace. Fields and variants also end at a comma.
ENDS_AT_BRACE = {"async", "enum", "extern", "fn", "impl", "macro_rules", "mod", "struct", "trait", "union", "unsafe"}


@dataclass(frozen=True)
class Token:
    """A word or a sign of the source."""

    text: str
    line: int


@dataclass(frozen=True)
class Comment:
    """A comment, with its `//` or `/*`, and the line where it begins."""

    text: str
    line: int


def is_word(text: str) -> bool:
    """Says whether a token can be a name."""
    return text[0].isalpha() or text[0] == "_"


def split_comments(source: str) -> tuple[str, list[Comment]]:
    """Returns the source with comments and string literals replaced by spaces, and the comments."""
    kept: list[str] = []
    comments: list[Comment] = []
    line = 1
    position = 0

    def blank(end: int) -> None:
        nonlocal position, line
        text = source[position:end]
        kept.append("".join("\n" if character == "\n" else " " for character in text))
        line += text.count("\n")
        position = end

    while position < len(source):
        character = source[position]
        if source.startswith("//", position):
            end = source.find("\n", position)
            end = len(source) if end < 0 else end
            comments.append(Comment(source[position:end], line))
            blank(end)
        elif source.startswith("/*", position):
            end = end_of_block_comment(source, position)
            comments.append(Comment(source[position:end], line))
            blank(end)
        elif character == '"':
            blank(end_of_string(source, position))
            kept.append(" ")
        elif character == "'":
            match = CHARACTER.match(source, position)
            if match:
                blank(match.end())
            else:
                kept.append(character)
                position += 1
        elif character in "brc" and not (position and (source[position - 1].isalnum() or source[position - 1] == "_")):
            match = RAW_STRING.match(source, position)
            if match:
                end = source.index('"' + match.group(1), match.end()) + 1 + len(match.group(1))
                blank(end)
            else:
                kept.append(character)
                position += 1
        else:
            line += character == "\n"
            kept.append(character)
            position += 1
    return "".join(kept), comments


def end_of_block_comment(source: str, start: int) -> int:
    """Returns the position after a block comment. Block comments nest."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(source, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    return len(source)


def end_of_string(source: str, start: int) -> int:
    """Returns the position after a string literal."""
    position = start + 1
    while source[position] != '"':
        position += 2 if source[position] == "\\" else 1
    return position + 1


def tokens_of(code: str) -> list[Token]:
    """Splits code without comments into tokens."""
    tokens = []
    line = 1
    last = 0
    for match in TOKEN.finditer(code):
        line += code.count("\n", last, match.start())
        last = match.start()
        tokens.append(Token(match.group().removeprefix("r#"), line))
    return tokens


def matching(tokens: list[Token], opening: int) -> int:
    """Returns the index of the bracket that closes the one at `opening`."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].text in pairs:
            depth += 1
        elif tokens[index].text in pairs.values():
            depth -= 1
            if depth == 0:
                return index
    return len(tokens) - 1


def end_of_item(tokens: list[Token], start: int) -> int:
    """Returns the index after the item, field or statement that begins at `start`, possibly with attributes."""
    index = start
    while tokens[index].text == "#":
        index = matching(tokens, index + 1) + 1
    visibility = tokens[index].text == "pub"
    first = index + 1 if visibility else index
    if visibility and tokens[first].text == "(":
        first = matching(tokens, first) + 1
    is_const_function = tokens[first].text == "const" and tokens[first + 1].text in ("fn", "unsafe", "async")
    ends_at_semicolon = tokens[first].text in ENDS_AT_SEMICOLON and not is_const_function
    ends_at_comma = not ends_at_semicolon and not is_const_function and tokens[first].text not in ENDS_AT_BRACE
    while index < len(tokens):
        text = tokens[index].text
        if text in "([{":
            index = matching(tokens, index)
            if text == "{" and not ends_at_semicolon:
                return index + 1
        elif text == ";" or (text == "," and ends_at_comma):
            return index + 1
        elif text in ")]}":
            return index
        index += 1
    return index


def without_tests(tokens: list[Token]) -> list[Token]:
    """Returns the tokens without the items that have the attribute `#[cfg(test)]` or `#[test]`."""
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        if tokens[index].text == "#" and tokens[index + 1].text == "[":
            close = matching(tokens, index + 1)
            words = [token.text for token in tokens[index + 2 : close]]
            if words == ["cfg", "(", "test", ")"] or words == ["test"]:
                index = end_of_item(tokens, index)
                continue
        kept.append(tokens[index])
        index += 1
    return kept


def read_tokens(path: Path) -> list[Token]:
    """Reads a file's tokens, tests included."""
    return tokens_of(split_comments(path.read_text())[0])
