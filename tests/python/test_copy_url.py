"""Tests COPY from a web server or an object store: what it reads, what it does not read, and its errors."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import LocalCluster
from processes import within

import volary

pytestmark = pytest.mark.server


@dataclass
class File:
    """A file that is served, and what goes wrong with it."""

    content: bytes
    status: int | None = None
    """The status of the answers to all requests for the file, instead of its content."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers in addition to those that every file has."""
    breaks: int = 0
    """Number of times that the connection ends after half of the requested bytes."""
    hangs: bool = False
    """True if requests for the file are not answered until the server ends."""


@dataclass(frozen=True)
class Request:
    """A request that the server got."""

    method: str
    path: str
    range: str | None

    @property
    def bytes(self) -> int:
        """The number of requested bytes. The range names the first and the last byte."""
        assert self.range is not None, self
        first, last = self.range.removeprefix("bytes=").split("-")
        return int(last) - int(first) + 1


class WebServer(http.server.ThreadingHTTPServer):
    """A server for files on a port of 127.0.0.1, until the context is left. Like most servers, it lists no folders."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, File] = {}
        self.requests: list[Request] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def serve(self, path: str, file: File) -> str:
        """Adds a file and returns its URL. Forgets all earlier requests."""
        self.files[path] = file
        self.requests.clear()
        return self.url + path

    def __enter__(self) -> WebServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_PROPFIND(self) -> None:
        self._note()
        self._begin(405, 0)

    def log_message(self, *_: object) -> None:
        """Logs nothing, because the tests look at the requests."""

    def _note(self) -> None:
        self.server.requests.append(Request(self.command, self.path, self.headers["Range"]))

    def _begin(self, status: int, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, with_body: bool) -> None:
        self._note()
        file = self.server.files.get(self.path, File(b"", status=404))
        if file.status is not None:
            self._begin(file.status, 0, file.headers)
            return
        if file.hangs:
            self.server.ended.wait()
            self.close_connection = True
            return
        size = len(file.content)
        status, start, end, headers = 200, 0, size, {"Accept-Ranges": "bytes", **file.headers}
        if (wanted := self.headers["Range"]) is not None:
            first, last = wanted.removeprefix("bytes=").split("-")
            status, start, end = 206, int(first), min(int(last) + 1, size)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._begin(status, end - start, headers)
        if not with_body:
            return
        if file.breaks > 0:
            file.breaks -= 1
            end -= (end - start + 1) // 2
            self.close_connection = True
        # The other side may have closed the connection.
        with contextlib.suppress(OSError):
            self.wfile.write(file.content[start:end])
            if self.close_connection:
                self.connection.shutdown(socket.SHUT_RDWR)


STORES = {"s3": "/bucket/data/{}.csv", "az": "/bucket/data/{}.csv", "gs": "/bucket/data%2F{}%2Ecsv"}
"""The object stores by scheme, with the path that each of them requests for a file below /data."""
OF_STORES = {"ETag": '"1"', "Last-Modified": "Tue, 24 Nov 2026 08:00:00 GMT"}
"""The headers of every file of an object store."""


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture(scope="module")
def other_server() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(
    server: WebServer, other_server: WebServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A cluster that may read below /data of both servers. The first server also plays all object stores."""
    roots = [f"{server.url}/data", f"{other_server.url}/data/", *(f"{store}://bucket/data" for store in STORES)]
    settings = {
        "VOLARY_GATEWAY__LOAD__ALLOWED_ROOTS": ",".join(roots),
        # The addresses of the object stores, without a login.
        "AWS_ENDPOINT": server.url,
        "GOOGLE_BASE_URL": server.url,
        "AZURE_STORAGE_ENDPOINT": server.url,
        "AZURE_STORAGE_ACCOUNT_NAME": "account",
        "SKIP_SIGNATURE": "true",
        "ALLOW_HTTP": "true",
        # The user who runs the tests may have set a proxy.
        "NO_PROXY": "127.0.0.1,localhost",
    }
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=2, settings=settings) as cluster:
        yield cluster


def rows(connection: volary.Connection, table: str) -> list[tuple]:
    return connection.sql(f"SELECT k, name FROM {table} ORDER BY k").rows()


def copied(connection: volary.Connection, table: str, url: str) -> int | None:
    return connection.sql(f"COPY {table} FROM '{url}'").rows_affected


def parquet(**columns: list) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="none", row_group_size=50_000)
    return sink.getvalue().to_pybytes()


# What is read

LOADED = [(1, "one"), (2, None), (3, "three, or so")]
CSV = b'k,name\n1,one\n2,\n3,"three, or so"\n'
TSV = b"k\tname\n1\tone\n2\t\n3\tthree, or so\n"
JSON = b'{"k": 1, "name": "one"}\n{"k": 2}\n{"name": "three, or so", "k": 3}\n'
PARQUET = parquet(k=[1, 2, 3], name=["one", None, "three, or so"])


FILES = {
    "/data/rows.parquet": PARQUET,
    "/data/rows.csv": CSV,
    "/data/rows.json.gz": gzip.compress(JSON),
    "/data/rows.json": JSON,
    "/data/2026/rows.tsv.gz": gzip.compress(TSV),
    "/data/two%20words.csv": CSV,
}


@pytest.mark.parametrize("path", FILES)
def test_files_are_loaded_by_their_url(server, connection, empty_table, path):
    url = server.serve(path, File(FILES[path]))
    assert copied(connection, empty_table, url) == 3
    assert rows(connection, empty_table) == LOADED
    assert {request.path for request in server.requests} == {path}


@pytest.mark.parametrize("store", STORES)
def test_files_of_an_object_store_are_loaded(server, connection, empty_table, store):
    path = STORES[store].format("rows")
    server.serve(path, File(CSV, headers=OF_STORES))
    assert copied(connection, empty_table, f"{store}://bucket/data/rows.csv") == 3
    assert rows(connection, empty_table) == LOADED
    assert {request.path for request in server.requests} == {path}


COUNT = 200_000
KEYS = list(range(COUNT))
NAMES = [f"name {key}" for key in KEYS]


def test_of_a_parquet_file_only_the_ranges_of_the_wanted_columns_are_read(server, connection, empty_table):
    content = parquet(name=NAMES, k=KEYS)
    url = server.serve("/data/wide.parquet", File(content))
    assert connection.sql(f"COPY {empty_table} (k) FROM '{url}'").rows_affected == COUNT
    found = connection.sql(f"SELECT count(*), sum(k), count(name) FROM {empty_table}").rows()
    assert found == [(COUNT, sum(KEYS), 0)]
    # COPY reads the keys, and the end of the file to find them.
    asked_for = sum(request.bytes for request in server.requests if request.method == "GET")
    assert 8 * COUNT / 2 < asked_for < len(content) * 0.75


def test_a_file_is_read_on_where_its_connection_ended(server, connection, empty_table):
    lines = [f"{key},{name}" for key, name in zip(KEYS, NAMES, strict=True)]
    for path, content in [
        ("/data/broken.csv", "\n".join(["k,name", *lines]).encode()),
        ("/data/broken.parquet", parquet(k=KEYS, name=NAMES)),
    ]:
        # The tag shows that the file is still the same.
        url = server.serve(path, File(content, breaks=2, headers={"ETag": '"1"'}))
        assert copied(connection, empty_table, url) == COUNT
        assert server.files[path].breaks == 0
    found = connection.sql(f"SELECT count(*), count(DISTINCT k), sum(k), count(name) FROM {empty_table}").rows()
    assert found == [(2 * COUNT, COUNT, 2 * sum(KEYS), 2 * COUNT)]


def test_a_file_is_read_as_it_is_now_and_not_as_one_of_its_name_was_before(
    server, other_server, connection, empty_table
):
    # The two files have the same size and no modification time, but their columns are in different places.
    before = parquet(k=["1", "2"], name=["3", "4"])
    now = parquet(name=["5", "6"], k=["7", "8"])
    assert len(before) == len(now)
    path = "/data/replaced.parquet"
    for served, content in [(server, before), (other_server, now), (server, now)]:
        assert copied(connection, empty_table, served.serve(path, File(content))) == 2
    assert rows(connection, empty_table) == [(1, "3"), (2, "4"), (7, "5"), (7, "5"), (8, "6"), (8, "6")]


def test_the_query_of_a_url_is_not_left_out(server, connection, empty_table):
    server.serve("/data/versions.csv", File(b"k,name\n1,first\n"))
    url = server.serve("/data/versions.csv?version=2", File(b"k,name\n2,second\n"))
    # The URL is either refused or requested exactly as written, because its query may select another file.
    with contextlib.suppress(volary.InvalidArgumentError):
        copied(connection, empty_table, url)
    assert rows(connection, empty_table) in ([], [(2, "second")])


# What is not read


@pytest.mark.parametrize(
    "location",
    [
        "{server}/other/rows.csv",
        "{server}/rows.csv",
        "{server}/database/rows.csv",
        "{server}/data/../other/rows.csv",
        "{server}/data/%2e%2e/other/rows.csv",
        "http://127.0.0.1:1/data/rows.csv",
        "http://localhost:{port}/data/rows.csv",
        "http://127.0.0.1:{port}@localhost:{port}/data/rows.csv",
        "http://ada:secret@127.0.0.1:{port}/data/rows.csv",
        "https://127.0.0.1:{port}/data/rows.csv",
    ],
)
def test_a_url_outside_of_the_allowed_roots_is_refused_and_nobody_is_asked(server, connection, empty_table, location):
    for path in ("/rows.csv", "/data/rows.csv", "/other/rows.csv", "/database/rows.csv"):
        server.serve(path, File(CSV))
    url = location.format(server=server.url, port=server.server_port)
    with pytest.raises(volary.PermissionDeniedError, match=r"COPY may not read .* gateway\.load\.allowed_roots"):
        copied(connection, empty_table, url)
    assert server.requests == []
    assert rows(connection, empty_table) == []


def test_what_logs_in_to_a_server_is_in_no_error_list_or_log(cluster, connection, empty_table):
    marker = uuid.uuid4().hex
    for location in (
        f"https://ada:{marker}@127.0.0.1:1/data/rows.csv",
        f"s3://bucket/rows.csv?X-Amz-Signature={marker}",
        f"nowhere://{marker}@host:x/rows.csv",
    ):
        with pytest.raises(volary.Error) as caught:
            copied(connection, empty_table, location)
        assert marker not in str(caught.value)
    listed = connection.sql(f"SELECT statement FROM system.query_log WHERE statement LIKE 'COPY {empty_table}%'").rows()
    assert len(listed) == 3
    assert all(marker not in statement and "***" in statement for (statement,) in listed)
    assert marker not in cluster.log()


def test_a_server_leads_nobody_out_of_the_allowed_roots(server, other_server, connection, empty_table):
    for moved_to in (server.serve("/other/rows.csv", File(CSV)), other_server.serve("/other/rows.csv", File(CSV))):
        url = server.serve("/data/moved.csv", File(b"", status=302, headers={"Location": moved_to}))
        with pytest.raises(volary.Error) as caught:
            copied(connection, empty_table, url)
        assert type(caught.value) is not volary.InternalError
        assert url in caught.value.message
        asked = {request.path for request in [*server.requests, *other_server.requests]}
        assert asked == {"/data/moved.csv"}
    assert rows(connection, empty_table) == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("store", STORES)
def test_an_object_store_leads_nobody_anywhere_else(server, other_server, connection, empty_table, store, status):
    moved_to = other_server.serve("/other/rows.csv", File(CSV, headers=OF_STORES))
    path = STORES[store].format("moved")
    server.serve(path, File(b"", status=status, headers={"Location": moved_to}))
    url = f"{store}://bucket/data/moved.csv"
    with within(), pytest.raises(volary.Error) as caught:
        copied(connection, empty_table, url)
    assert type(caught.value) is not volary.InternalError, caught.value
    assert url in caught.value.message
    assert other_server.requests == []
    assert {request.path for request in server.requests} == {path}
    assert rows(connection, empty_table) == []


# Servers that fail


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, volary.NotFoundError),
        (401, volary.UnauthenticatedError),
        (403, volary.PermissionDeniedError),
        (500, volary.UnavailableError),
    ],
)
def test_what_a_server_answers_instead_of_a_file_is_an_error_with_the_url(
    server, connection, empty_table, status, error
):
    url = server.serve(f"/data/{status}.csv", File(CSV, status=status))
    with pytest.raises(volary.Error) as caught:
        copied(connection, empty_table, url)
    assert type(caught.value) is error, str(caught.value)
    assert url in caught.value.message
    assert rows(connection, empty_table) == []


ALWAYS = 10**6
LONG_CSV = ("k,name\n" + "\n".join(f"{key},name {key}" for key in KEYS)).encode()
LONG_JSON = "\n".join(f'{{"k": {key}, "name": "name {key}"}}' for key in KEYS).encode()


LONG: dict[str, Callable[[], bytes]] = {
    "/data/half.csv": lambda: LONG_CSV,
    "/data/half.tsv.gz": lambda: gzip.compress(LONG_CSV.replace(b",", b"\t"), 1),
    "/data/half.json": lambda: LONG_JSON,
    "/data/half.json.gz": lambda: gzip.compress(LONG_JSON, 1),
    "/data/half.parquet": lambda: parquet(k=KEYS, name=NAMES),
}


@pytest.mark.parametrize("path", LONG)
def test_half_of_a_file_is_an_error_with_the_url_and_nothing_of_it_is_seen(server, connection, empty_table, path):
    content = LONG[path]()
    url = server.serve(path, File(content, breaks=ALWAYS))
    with pytest.raises(volary.Error) as caught:
        copied(connection, empty_table, url)
    # The file is not damaged: the server may send the rest of it later.
    assert type(caught.value) is volary.UnavailableError, str(caught.value)
    assert url in caught.value.message
    assert rows(connection, empty_table) == []
    server.serve(path, File(content))
    assert copied(connection, empty_table, url) == COUNT
    found = connection.sql(f"SELECT count(*), sum(k), count(DISTINCT name) FROM {empty_table}").rows()
    assert found == [(COUNT, sum(KEYS), COUNT)]


def test_a_server_that_does_not_answer_holds_a_copy_no_longer_than_its_client_waits(server, connection, empty_table):
    url = server.serve("/data/hangs.csv", File(CSV, hangs=True))
    with within(), pytest.raises(volary.DeadlineExceededError):
        connection.sql(f"COPY {empty_table} FROM '{url}'", timeout=2)
    assert len(server.requests) == 1
    assert rows(connection, empty_table) == []
    assert copied(connection, empty_table, server.serve("/data/hangs.csv", File(CSV))) == 3
