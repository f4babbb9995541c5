"""Tests COPY from roots with links: links that never end, and links that lead out of a root and back into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import LocalCluster
from processes import within

import volary

pytestmark = pytest.mark.server

REFUSALS = (volary.NotFoundError, volary.InvalidArgumentError, volary.PermissionDeniedError, volary.UnavailableError)
SECRET = 4711
"""The value in a file outside of the root."""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allowed root with links that never end, next to a file that nobody may read."""
    outside = tmp_path_factory.mktemp("linked")
    (outside / "secret.csv").write_text(f"{SECRET}\n")
    root = outside / "root"
    below = root / "sub"
    below.mkdir(parents=True)
    (root / "plain").mkdir()
    (root / "plain" / "rows.csv").write_text("4\n")
    (root / "rows.csv").write_text("1\n2\n")
    (below / "more.csv").write_text("3\n")
    # Links to other links, which lead back to the first one.
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "a.csv").symlink_to("b.csv")
    (root / "b.csv").symlink_to("a.csv")
    (root / "itself.csv").symlink_to("itself.csv")
    # Directories that contain themselves.
    (below / "loop").symlink_to("..")
    (below / "here").symlink_to(".")
    (root / "plain_too").symlink_to("sub/loop/plain")
    # Links that lead out of the root, from where a path can lead back into it.
    (root / "up").symlink_to("..")
    (below / "up").symlink_to("../..")
    return root


@pytest.fixture(scope="module")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allowed root with links to a directory that nobody may read. None of the links is endless."""
    outside = tmp_path_factory.mktemp("open_door")
    (outside / "secrets").mkdir()
    (outside / "secrets" / "secret.csv").write_text(f"{SECRET}\n")
    root = outside / "root"
    (root / "sub").mkdir(parents=True)
    (root / "out").symlink_to("../secrets")
    (root / "sub" / "out").symlink_to(outside / "secrets")
    (root / "sub" / "secret.csv").symlink_to("../out/secret.csv")
    return root


@pytest.fixture(scope="module")
def cluster(linked: Path, open_door: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=2, allow_roots=[linked, open_door]) as cluster:
        yield cluster


def copied(connection: volary.Connection, table: str, location: str) -> list[int] | None:
    """Returns the loaded keys, or None if COPY is refused. A refusal must name the location and load nothing."""
    with within():
        said = None
        try:
            connection.sql(f"COPY {table} (k) FROM '{location}'")
        except REFUSALS as error:
            said = error.message
    keys = [key for (key,) in connection.sql(f"SELECT k FROM {table} ORDER BY k").rows()]
    if said is None:
        return keys
    assert str(Path(location.split("*")[0]).parent) in said
    assert keys == []
    return None


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("rows.csv", [1, 2]),
        ("sub/loop/rows.csv", [1, 2]),
        ("sub/loop/sub/loop/sub/here/more.csv", [3]),
        ("plain_too/", [4]),
        ("sub/loop/plain/*.csv", [4]),
    ],
)
def test_a_file_is_read_through_links_that_stay_in_the_root(linked, connection, empty_table, location, expected):
    assert copied(connection, empty_table, f"{linked}/{location}") == expected


@pytest.mark.parametrize(
    "location", ["a", "a/", "a/rows.csv", "a.csv", "itself.csv", "a/*.csv", "[ab].csv", "sub/loop/a"]
)
def test_a_link_that_leads_to_itself_is_no_file(linked, connection, empty_table, location):
    with pytest.raises(volary.InvalidArgumentError, match="symbolic links form a loop"):
        connection.sql(f"COPY {empty_table} (k) FROM '{linked}/{location}'")
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


@pytest.mark.parametrize(
    "location", ["", "*.csv", "**/*.csv", "*/*.csv", "sub", "sub/", "sub/*", "sub/**/*.csv", "sub/loop/", "sub/loop/**"]
)
def test_directories_within_themselves_are_read_once_or_refused(linked, connection, empty_table, location):
    keys = copied(connection, empty_table, f"{linked}/{location}")
    if keys is not None:
        assert set(keys) <= {1, 2, 3}
        assert len(keys) == len(set(keys)), "a file was read more than once"


@pytest.mark.parametrize(
    "location",
    [
        "up/secret.csv",
        "up/*.csv",
        "up/**/secret.csv",
        "sub/up/secret.csv",
        "sub/loop/up/secret.csv",
        "up/root/up/secret.csv",
    ],
)
def test_no_link_that_never_ends_leads_to_a_file_outside_of_the_root(linked, connection, empty_table, location):
    assert copied(connection, empty_table, f"{linked}/{location}") is None


@pytest.mark.parametrize(
    "location",
    [
        "out/secret.csv",
        "out/",
        "out/*.csv",
        "*/secret.csv",
        "**/secret.csv",
        "**/*.csv",
        "sub/out/",
        "sub/*.csv",
        "sub/",
        "",
    ],
)
def test_no_link_leads_to_a_file_outside_of_the_root(open_door, connection, empty_table, location):
    assert copied(connection, empty_table, f"{open_door}/{location}") is None


def test_a_link_out_of_the_root_and_into_it_again_leads_to_the_file(linked, connection, empty_table):
    """The real location of a file decides, and not the path by which it is reached."""
    assert copied(connection, empty_table, f"{linked}/up/root/rows.csv") == [1, 2]
