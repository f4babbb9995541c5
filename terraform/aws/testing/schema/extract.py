#!/usr/bin/env python3
"""Writes schema.json: the schema of the AWS provider for the types that the modules use.

    extract.py [PACKAGE]     PACKAGE is the unpacked npm package; without it, `npm pack` downloads the package

The package was generated from the provider's own schema. For each type, it contains TypeScript in its source map. Each
attribute has a comment there, which says whether it is required, optional or computed, and a line that says its type.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = "@cdktf/provider-aws@21.22.1"
PROVIDER = "registry.terraform.io/hashicorp/aws"
VERSION = "6.25.0"
"""The release of the provider that the package was generated from."""

_USED = re.compile(r'^\s*(resource|data)\s+"(aws_\w+)"', re.MULTILINE)
_SOURCE_MAP = "sourceMappingURL=data:application/json;base64,"
_ENTRY = re.compile(
    r'^ {4,6}(?P<name>\w+): \{\n\s+value: (?P<value>.*),\n\s+isBlock: (?P<block>true|false),\n\s+type: "(?P<kind>\w+)",'
    r'\n\s+storageClassType: "(?P<storage>\w+)",\n',
    re.MULTILINE,
)
_COMMENT = re.compile(
    r"^  // (?P<name>\w+) - computed: (?P<computed>\w+), optional: (?P<optional>\w+), required: (?P<required>\w+)\n"
    r"(?P<first>.*)\n(?P<second>.*)\n(?P<third>.*)\n",
    re.MULTILINE,
)
_GETTERS = {
    "getStringAttribute": "string",
    "getNumberAttribute": "number",
    "getBooleanAttribute": "bool",
    "getListAttribute": ["list", "string"],
    "getStringMapAttribute": ["map", "string"],
    "getBooleanMapAttribute": ["map", "bool"],
    "getNumberMapAttribute": ["map", "number"],
    "getNumberListAttribute": ["list", "number"],
    "cdktf.StringMap(": ["map", "string"],
    "cdktf.BooleanMap(": ["map", "bool"],
    "cdktf.NumberMap(": ["map", "number"],
}
_SIMPLE = {"string": "string", "number": "number", "boolean": "bool"}


class Flags(NamedTuple):
    """What the comment above an attribute says, and the lines below it."""

    computed: bool
    optional: bool
    required: bool
    text: str

    def of_attribute(self) -> dict[str, bool]:
        return {name: True for name in ("required", "optional", "computed") if getattr(self, name)}


class Source:
    """The TypeScript of one type."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, str] = {}
        self.classes: dict[str, str] = {}
        self.interfaces: dict[str, str] = {}
        for piece in re.split(r"^export (?=function |class |interface )", text, flags=re.MULTILINE):
            if found := re.match(r"function (\w+)\(", piece):
                self.functions[found[1]] = piece
            elif found := re.match(r"class (\w+) extends", piece):
                self.classes[found[1]] = piece
            elif found := re.match(r"interface (\w+)", piece):
                self.interfaces[found[1]] = piece
        self.main = next(name for name, body in self.classes.items() if "synthesizeHclAttributes" in body)

    @classmethod
    def of_file(cls, file: Path) -> Source:
        encoded = file.read_text().rsplit(_SOURCE_MAP, 1)[1].strip()
        return cls(json.loads(base64.b64decode(encoded))["sourcesContent"][0])

    def block(self) -> dict[str, Any]:
        """Returns the schema of the type."""
        body = self.classes[self.main]
        return self._block(dict(_flags(body)), body[body.index("synthesizeHclAttributes") :])

    def _block(self, flags: dict[str, Flags], entries: str) -> dict[str, Any]:
        """Returns the schema of a block. `entries` names what can be set."""
        attributes: dict[str, Any] = {}
        blocks: dict[str, Any] = {}
        for entry in _ENTRY.finditer(entries):
            name = entry["name"]
            said = flags.pop(name)
            if entry["block"] == "true":
                blocks[name] = self._nested(entry, said)
            else:
                attributes[name] = {"type": self._type(entry), **said.of_attribute()}
        # What is left can only be read.
        for name, said in flags.items():
            assert said.of_attribute() == {"computed": True}, f"{name} can be set, but how is not understood"
            attributes[name] = {"type": self._computed(said.text), "computed": True}
        return _without_nothing({"attributes": _ordered(attributes), "block_types": _ordered(blocks)})

    def _nested(self, entry: re.Match[str], said: Flags) -> dict[str, Any]:
        function = re.search(r"(\w+)ToHclTerraform", entry["value"].replace("listMapperHcl", ""))
        assert function, entry[0]
        entries = self.functions[f"{function[1]}ToHclTerraform"]
        name = function[1][0].upper() + function[1][1:]
        reference = self.classes.get(f"{name}OutputReference")
        flags = dict(_flags(reference)) if reference else self._flags_of_interface(name, entries)
        nested: dict[str, Any] = {"block": self._block(flags, entries)}
        if entry["kind"] == "struct":
            return {"nesting_mode": "single", **nested}
        nested = {"nesting_mode": entry["kind"], **nested}
        if said.required:
            nested["min_items"] = 1
        if "listMapperHcl" not in entry["value"]:
            nested["max_items"] = 1
        return nested

    def _flags_of_interface(self, name: str, entries: str) -> dict[str, Flags]:
        """Returns the flags of a block of the provider itself, for which there is no class with comments."""
        flags = {}
        for entry in _ENTRY.finditer(entries):
            field = re.search(r"struct!\.(\w+)", entry["value"])
            assert field, entry[0]
            required = f"readonly {field[1]}:" in self.interfaces[name]
            flags[entry["name"]] = Flags(computed=False, optional=not required, required=required, text="")
        return flags

    def _type(self, entry: re.Match[str]) -> Any:
        kind, storage = entry["kind"], entry["storage"]
        if kind == "simple":
            return _SIMPLE[storage]
        if found := re.fullmatch(r"(string|number|boolean)(List|Map)", storage):
            return [kind, _SIMPLE[found[1]]]
        return [kind, self._object(storage.removesuffix("List").removesuffix("Map"))]

    def _object(self, name: str) -> Any:
        body = self.classes[f"{name}OutputReference"]
        return ["object", {field: self._computed(said.text) for field, said in sorted(_flags(body))}]

    def _computed(self, text: str) -> Any:
        for getter, kind in _GETTERS.items():
            if getter in text:
                # Only sets are made lists for those who read them.
                return ["set", kind[1]] if "Fn.tolist(" in text and isinstance(kind, list) else kind
        found = re.search(r"new (\w+?)(List|Map|OutputReference)\(this, \"\w+\"(?:, (true|false))?", text)
        assert found, text
        kind = {"Map": "map", "List": "set" if found[3] == "true" else "list"}.get(found[2], "list")
        return [kind, self._object(found[1])]


def _flags(body: str) -> Iterator[tuple[str, Flags]]:
    for found in _COMMENT.finditer(body):
        words = (found[name] == "true" for name in ("computed", "optional", "required"))
        # The type is in the getter: in the first two lines, or in the third if a private field comes before it.
        yield found["name"], Flags(*words, "\n".join((found["first"], found["second"], found["third"])))


def _ordered(by_name: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(by_name.items()))


def _without_nothing(by_name: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in by_name.items() if value}


def used_types(root: Path = ROOT) -> dict[str, set[str]]:
    """Returns the types that the files below `root` use, by `resource` and `data`."""
    used: dict[str, set[str]] = {"resource": set(), "data": set()}
    for file in root.rglob("*.tf"):
        if ".terraform" not in file.parts:
            for kind, name in _USED.findall(file.read_text()):
                used[kind].add(name)
    return used


def schema(library: Path, used: dict[str, set[str]]) -> dict[str, Any]:
    """Returns the schema of the provider for these types, in the form of `terraform providers schema -json`."""

    def of_types(kind: str, prefix: str) -> dict[str, Any]:
        return {name: of(prefix + name.removeprefix("aws_").replace("_", "-")) for name in sorted(used[kind])}

    def of(folder: str) -> dict[str, Any]:
        return {"version": 0, "block": Source.of_file(library / folder / "index.js").block()}

    provider = {
        "provider": of("provider"),
        "resource_schemas": of_types("resource", ""),
        "data_source_schemas": of_types("data", "data-aws-"),
    }
    return {"format_version": "1.0", "provider_schemas": {PROVIDER: provider}}


def downloaded(directory: Path, npm: str = "npm") -> Path:
    """Downloads the package into a directory, and returns where it was unpacked."""
    subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    (archive,) = directory.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / "package"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        package = Path(sys.argv[1]) if len(sys.argv) > 1 else downloaded(Path(temporary))
        written = schema(package / "lib", used_types())
    text = json.dumps(written, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"')
    (HERE / "schema.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
