"""Fixtures: what `make deb` makes, and Debian with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import Machine, make_root
from podman import podman
from processes import binary
from programs import REPOSITORY, call, need


@pytest.fixture(scope="session")
def program() -> Path:
    """The compiled program."""
    return binary("volary")


@pytest.fixture(scope="session")
def package(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package."""
    need("dpkg-deb")
    cargo_deb = os.environ.get("CARGO_DEB")
    if cargo_deb is None:
        pytest.fail("CARGO_DEB must name the program cargo-deb: run `make test-packaging`")
    made = call(
        REPOSITORY / "packaging" / "debian" / "build.sh",
        cargo_deb,
        tmp_path_factory.mktemp("deb"),
        # The default compression of 120 MB takes minutes.
        "--fast",
        "--compress-type=gz",
        env={**os.environ, "CARGO_TARGET_DIR": str(program.parents[1])},
    )
    return Path(made.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with Debian and the package."""
    need("mmdebstrap", root=True)
    return make_root(tmp_path_factory.mktemp("debian"), package)


@pytest.fixture(scope="module")
def machine(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine with the package."""
    need("systemd-nspawn", root=True)
    with Machine(root, tmp_path_factory.mktemp("machine") / "console.log") as machine:
        yield machine


@pytest.fixture(scope="session")
def image(program: Path) -> Iterator[str]:
    """The name of the container image."""
    need("podman", "mmdebstrap", root=True)
    name = "localhost/volary-test"
    call(REPOSITORY / "packaging" / "container" / "build.sh", program, name)
    yield name
    podman("rmi", "--force", name)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an image with Debian's Prometheus, which is called as that of the project is."""
    need("podman", "mmdebstrap", root=True)
    name = "localhost/prometheus-test"
    file = tmp_path_factory.mktemp("prometheus") / "image.tar"
    call("mmdebstrap", "--quiet", "--variant=essential", "--include=prometheus", "bookworm", file)
    start = 'ENTRYPOINT ["/usr/bin/prometheus"]'
    imported = podman("import", "--quiet", "--change", start, "--change", "WORKDIR /prometheus", str(file), name)
    assert imported.code == 0, imported.output
    yield name
    podman("rmi", "--force", name)
