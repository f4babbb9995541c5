"""Writes the licences and notices of the libraries in the program, which each package must bring.

    tools/third_party.py CARGO_ABOUT    writes packaging/licenses/third-party.txt

CARGO_ABOUT is the program `cargo-about`. It decides which licence applies to a library, and finds its text. The texts
are written once, although many libraries have their own copy, with other spaces or line breaks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LICENSES = ROOT / "packaging" / "licenses"
WRITTEN = LICENSES / "third-party.txt"
LINE = "=" * 80


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    about = json.loads(
        subprocess.run(
            [
                *(sys.argv[1], "generate", "--format", "json", "--fail", "--locked"),
                *("--manifest-path", ROOT / "cli" / "Cargo.toml", "--config", LICENSES / "about.toml"),
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    parts = ["The program `volary` contains these libraries, each under the licence that it is listed with.\n"]
    for (name, _), (text, libraries) in sorted(grouped(about["licenses"]).items()):
        parts.append(f"{LINE}\n{name}, for:\n\n{indented(libraries)}\n\n{text}\n")
    for text, libraries in sorted(notices(about["licenses"]).items()):
        parts.append(f"{LINE}\nNotice of:\n\n{indented(libraries)}\n\n{text}\n")
    WRITTEN.write_text("\n".join(parts), encoding="utf-8")


def grouped(licenses: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[str, set[str]]]:
    """Returns the text and the libraries of each licence, by its name and its words."""
    texts: dict[tuple[str, str], tuple[str, set[str]]] = {}
    for license in licenses:
        key = license["name"], " ".join(license["text"].split())
        _, libraries = texts.setdefault(key, (tidy(license["text"]), set()))
        libraries.update(name_of(library) for library in crates(license))
    return texts


def notices(licenses: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Returns the libraries of each notice. The Apache License wants notices passed on."""
    texts: dict[str, set[str]] = defaultdict(set)
    for license in licenses:
        for library in crates(license):
            for file in Path(library["manifest_path"]).parent.glob("NOTICE*"):
                texts[tidy(file.read_text(encoding="utf-8"))].add(name_of(library))
    return texts


def crates(license: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (user["crate"] for user in license["used_by"])


def name_of(library: dict[str, Any]) -> str:
    return f"{library['name']} {library['version']}"


def tidy(text: str) -> str:
    """Returns a text without spaces at the ends of its lines, and without empty lines around it."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def indented(libraries: set[str]) -> str:
    return "\n".join(f"    {library}" for library in sorted(libraries))


if __name__ == "__main__":
    main()
