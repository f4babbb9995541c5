"""Checks the rules of this repository that no other tool knows, and prints each line that breaks one.

`make lint` runs it. CONTRIBUTING.md says what the rules are.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from comments import Finding, fragments, long_lines
from module_docs import module_docs
from visibility import unused

# Directories with files that programs build, install or write.
SKIPPED_DIRECTORIES = {".git", "target", "volary-data", "__pycache__", "corpus"}
# Each Python environment of the Makefile has a name that begins so.
ENVIRONMENT = ".venv"


def files_of(repository: Path) -> dict[Path, str]:
    """Reads the files to check. Returns the source of each file by its path relative to the repository."""
    files = {}
    for directory, directories, names in os.walk(repository):
        read = set(directories) - SKIPPED_DIRECTORIES
        directories[:] = sorted(name for name in read if not name.startswith(ENVIRONMENT))
        for name in sorted(names):
            path = Path(directory, name)
            if path.suffix in (".rs", ".py", ".md"):
                files[path.relative_to(repository)] = path.read_text(encoding="utf-8")
    return files


def findings(files: dict[Path, str]) -> Iterator[Finding]:
    """Finds the lines that break a rule."""
    for path, source in files.items():
        yield from long_lines(path, source)
        yield from fragments(path, source)
    rust = {path: source for path, source in files.items() if path.suffix == ".rs"}
    yield from module_docs(rust)
    yield from unused(rust)


def main(repository: Path) -> int:
    """Prints the findings, and returns the exit code."""
    found = sorted(findings(files_of(repository)))
    for finding in found:
        print(f"{finding.file}:{finding.line}: {finding.text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
