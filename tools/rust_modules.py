"""Finds which files of a crate use items of which others, and whether these uses form circles.

A file is a module. It uses another file if its code names an item that is defined there: with `use`, or with a path.
A re-export (`pub use`) alone does not count as a use. The use of a re-exported name is a use of the file that defines
it. Methods have no paths, so calling a method is not a use of the file with its `impl` block. Naming a type is a use of
the file that defines the type. Tests do not count.

A circle is a set of files in which each file uses all others, directly or through other files of the set. Uses of
children by their parent do not count: a parent divides its work among its children, and these see its private items, so
they are read together anyway. Uses of a parent by its child do count, because the parent may use the child through the
rest of the crate.
"""

from dataclasses import dataclass, field
from pathlib import Path

from rust_source import Token, is_word, matching, read_tokens, without_tests

DEFINES = {"fn", "struct", "enum", "union", "trait", "type", "const", "static"}


@dataclass
class Import:
    """A name that a `use` brings into a module."""

    path: list[str]
    line: int
    is_reexport: bool


@dataclass
class Module:
    """The items that a module defines, its imports, and the paths in its code."""

    path: tuple[str, ...]
    file: Path
    parent: "Module | None"
    children: dict[str, "Module"] = field(default_factory=dict)
    items: set[str] = field(default_factory=set)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    globs: list[Import] = field(default_factory=list)
    unnamed: list[Import] = field(default_factory=list)
    paths: list[tuple[list[str], int]] = field(default_factory=list)


@dataclass(frozen=True, order=True)
class Use:
    """A line of one file that names an item of another."""

    line: int
    item: str


Uses = dict[tuple[Path, Path], list[Use]]


def read_crate(source: Path) -> Module:
    """Reads the modules of a crate, without its tests."""
    root = Module((), source / "lib.rs", None)
    read_module(root, without_tests(read_tokens(root.file)), source)
    return root


def read_module(module: Module, tokens: list[Token], directory: Path) -> None:
    """Reads the code of a module, whose children are in `directory`."""
    index = 0
    depth = 0
    while index < len(tokens):
        text = tokens[index].text
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if text == "mod" and is_word(following):
            index = read_child(module, tokens, index, directory)
            continue
        if text == "use" and (is_word(following) or following in ("::", "{")):
            index = read_use(module, tokens, index)
            continue
        if text == "{":
            depth += 1
        elif text == "}":
            depth -= 1
        elif text in DEFINES and depth == 0 and is_word(following):
            name = tokens[index + 2].text if following == "mut" else following
            module.items.add(name)
        elif text == "macro_rules" and depth == 0:
            module.items.add(tokens[index + 2].text)
        elif is_word(text) and tokens[index - 1].text != "::":
            index = read_path(module, tokens, index)
            continue
        index += 1


def read_path(module: Module, tokens: list[Token], index: int) -> int:
    """Reads a path, which may be a single name, and returns the index after it."""
    path = [tokens[index].text]
    line = tokens[index].line
    is_field = index > 0 and tokens[index - 1].text == "."
    while index + 2 < len(tokens) and tokens[index + 1].text == "::" and is_word(tokens[index + 2].text):
        index += 2
        path.append(tokens[index].text)
    if not is_field:
        module.paths.append((path, line))
    return index + 1


def read_child(module: Module, tokens: list[Token], index: int, directory: Path) -> int:
    """Reads the child module that a `mod` declares, and returns the index after the declaration."""
    name = tokens[index + 1].text
    below = directory / name
    if tokens[index + 2].text == "{":
        close = matching(tokens, index + 2)
        child = Module((*module.path, name), module.file, module)
        module.children[name] = child
        read_module(child, tokens[index + 3 : close], below)
        return close + 1
    file = below / "mod.rs" if (below / "mod.rs").exists() else directory / f"{name}.rs"
    child = Module((*module.path, name), file, module)
    module.children[name] = child
    read_module(child, without_tests(read_tokens(file)), below)
    return index + 3


def read_use(module: Module, tokens: list[Token], index: int) -> int:
    """Reads a `use`, and returns the index after it."""
    is_reexport = tokens[index - 1].text == "pub" or (
        tokens[index - 1].text == ")" and is_visibility(tokens, index - 1)
    )
    end = index
    while tokens[end].text != ";":
        end += 1
    read_use_tree(module, tokens[index + 1 : end], [], is_reexport)
    return end + 1


def is_visibility(tokens: list[Token], close: int) -> bool:
    """Says whether the bracket that closes at `close` belongs to `pub(...)`."""
    opening = close
    while tokens[opening].text != "(":
        opening -= 1
    return tokens[opening - 1].text == "pub"


def read_use_tree(module: Module, tree: list[Token], prefix: list[str], is_reexport: bool) -> None:
    """Reads the tokens after `use`, and calls itself for each part in braces."""
    path = list(prefix)
    index = 0
    while index < len(tree):
        text = tree[index].text
        if text == "{":
            for part in parts(tree[index + 1 : matching(tree, index)]):
                read_use_tree(module, part, path, is_reexport)
            return
        if text == "*":
            module.globs.append(Import(path, tree[index].line, is_reexport))
            return
        if text == "as":
            add_import(module, tree[index + 1].text, Import(path, tree[index].line, is_reexport))
            return
        if text == "self" and path:
            break
        if text != "::":
            path.append(text)
        index += 1
    add_import(module, path[-1], Import(path, tree[0].line, is_reexport))


def parts(tokens: list[Token]) -> list[list[Token]]:
    """Splits tokens at the commas outside of braces."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "{") - (token.text == "}")
        if token.text == "," and depth == 0:
            found.append([])
        else:
            found[-1].append(token)
    return [part for part in found if part]


def add_import(module: Module, name: str, an_import: Import) -> None:
    """Adds an import under the name that it has in the module."""
    if name == "_":
        module.unnamed.append(an_import)
    else:
        module.imports.setdefault(name, []).append(an_import)


Seen = frozenset[tuple[tuple[str, ...], str]]
Found = tuple[Path, str]


class Resolver:
    """Finds the file that defines what a path names."""

    def __init__(self, root: Module) -> None:
        self.root = root

    def definer(self, module: Module, path: list[str]) -> Found | None:
        """Returns the file and the name of the item, or None if the path names a module or is not of this crate."""
        return self.walk(module, path, frozenset())

    def walk(self, module: Module, path: list[str], seen: Seen) -> Found | None:
        """Follows a path from its beginning."""
        if path[0] == "crate":
            return self.descend(self.root, path[1:], seen)
        if path[0] == "self":
            return self.descend(module, path[1:], seen)
        return self.descend(module, path, seen)

    def descend(self, module: Module, path: list[str], seen: Seen) -> Found | None:
        """Follows the rest of a path, beginning in `module`."""
        if not path:
            return None
        name, rest = path[0], path[1:]
        if name == "super":
            return self.descend(module.parent, rest, seen) if module.parent else None
        # A module and a function may have the same name.
        if rest and name in module.children:
            found = self.descend(module.children[name], rest, seen)
            if found:
                return found
        if name in module.items:
            return module.file, name
        if (module.path, name) in seen:
            return None
        seen = seen | {(module.path, name)}
        for an_import in module.imports.get(name, []):
            found = self.walk(module, an_import.path + rest, seen)
            if found:
                return found
        for glob in module.globs:
            found = self.walk(module, glob.path + path, seen)
            if found:
                return found
        return None


def uses_of(root: Module) -> Uses:
    """Returns the uses between the files of a crate."""
    resolver = Resolver(root)
    uses: dict[tuple[Path, Path], set[Use]] = {}

    def add(module: Module, path: list[str], line: int) -> None:
        found = resolver.definer(module, path)
        if found and found[0] != module.file:
            uses.setdefault((module.file, found[0]), set()).add(Use(line, found[1]))

    def visit(module: Module) -> None:
        for path, line in module.paths:
            add(module, path, line)
        for imports in [*module.imports.values(), module.unnamed]:
            for an_import in imports:
                if not an_import.is_reexport:
                    add(module, an_import.path, an_import.line)
        for child in module.children.values():
            visit(child)

    visit(root)
    return {pair: sorted(found) for pair, found in uses.items()}


def directory_of(file: Path) -> Path:
    """Returns the directory of the children of a file."""
    return file.parent if file.name in ("lib.rs", "mod.rs") else file.with_suffix("")


def circles(uses: Uses) -> list[list[Path]]:
    """Returns the sets of files that use each other."""
    following: dict[Path, set[Path]] = {}
    for user, used in uses:
        if not used.is_relative_to(directory_of(user)):
            following.setdefault(user, set()).add(used)
    reached = {file: reachable(file, following) for file in following}
    found = {
        frozenset(other for other in reached[file] if file in reached.get(other, ()))
        for file in following
        if file in reached[file]
    }
    return sorted(sorted(circle) for circle in found)


def reachable(start: Path, following: dict[Path, set[Path]]) -> set[Path]:
    """Returns the files that a file uses, directly or through others."""
    reached: set[Path] = set()
    waiting = [start]
    while waiting:
        for file in following.get(waiting.pop(), ()):
            if file not in reached:
                reached.add(file)
                waiting.append(file)
    return reached


def described(circle: list[Path], uses: Uses, base: Path) -> str:
    """Describes a circle, with a line for each file that uses another one."""
    lines = [f"{len(circle)} files use each other:"]
    for (user, used), found in sorted(uses.items()):
        if user in circle and used in circle and not used.is_relative_to(directory_of(user)):
            place = f"{user.relative_to(base)}:{found[0].line}"
            names = ", ".join(sorted({use.item for use in found}))
            lines.append(f"  {place} uses {names} of {used.relative_to(base)}")
    return "\n".join(lines)
