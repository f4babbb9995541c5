"""A cluster in a child process, for notebooks, tests and trying things out."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ._binary import find_binary, too_old
from ._child import Child
from ._connect import connect
from ._connection import Connection
from ._parameters import Parameters
from ._result import Result
from ._settings_file import Setting, to_toml
from .errors import ERROR_CLASSES, Error, ErrorCode, UnavailableError

_ALL_PRINTED = re.compile(rb"^Ctrl-C stops it\.$", re.MULTILINE)
_URI = re.compile(r"^ *shell +volary sql --gateway (\S+)$", re.MULTILINE)
_DATA_DIR = re.compile(r"^\d+ workers?, data in (.+)$", re.MULTILINE)
_ERROR = re.compile(r"^volary: ([A-Z_]+): (.+)$", re.MULTILINE)
_UNKNOWN_ARGUMENT = "unexpected argument"


def local(
    workers: int = 4,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    memory: str | None = None,
    allow_roots: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    settings: Mapping[str, Setting] | None = None,
    listen: str = "127.0.0.1:0",
    start_timeout: float = 60.0,
) -> LocalCluster:
    """Starts a gateway and workers in one child process, and returns when they serve.

        with volary.local(workers=4) as db:
            db.sql("SELECT 1").to_pandas()

    Without `data_dir`, the data is in a temporary directory, which is removed at the end. With `data_dir`, it stays
    there, and the next cluster with this directory finds it; it needs at least as many workers. `memory` is what
    queries of all nodes may hold together, such as `2GiB` or `50%`. COPY may read files and URLs below `allow_roots`.
    `settings` are other settings by their keys: `{"gateway.query.timeout": "10m"}`. No setting comes from a file or
    from the environment. With port 0 in `listen`, the system chooses a free port.

    The cluster ends with `close`, with the `with` block, when the returned object is no longer used, and at the latest
    when this process ends, however it ends. It also ends if this process is killed.

    The program `volary` must be installed on this machine. The variable VOLARY_BIN can name it.

    Raises `NotFoundError` if there is no program `volary`, `UnimplementedError` if it is too old,
    `DeadlineExceededError` if the cluster has not started within `start_timeout` seconds, and the error that the
    program reports if it does not start: for example `InvalidArgumentError` for a wrong setting.
    """
    binary = find_binary()
    where = ["--temporary"] if data_dir is None else [f"--data-dir={os.path.abspath(data_dir)}"]
    roots = [allow_roots] if isinstance(allow_roots, str | os.PathLike) else allow_roots
    arguments = [
        "local",
        "--stop-with-stdin",
        f"--workers={workers}",
        f"--listen={listen}",
        *where,
        *(f"--allow-root={_root(root)}" for root in roots),
        *([] if memory is None else [f"--memory={memory}"]),
    ]
    # Only this user may read the file, because a setting can be a secret. The program has read it when it serves.
    with tempfile.NamedTemporaryFile("w", prefix="volary-", suffix=".toml", encoding="utf-8") as file:
        file.write(to_toml(settings or {}))
        file.flush()
        child = Child([binary, *arguments, f"--config={file.name}"])
        try:
            printed = child.read_until(_ALL_PRINTED, start_timeout)
            if child.exit_code is not None:
                raise _start_error(binary, child)
            return LocalCluster(child, printed, is_temporary=data_dir is None)
        except BaseException:
            child.end()
            raise


class LocalCluster:
    """A gateway and workers in a child process of this process. `volary.local` starts it."""

    uri: str
    """The address of the gateway."""
    data_dir: Path
    """The directory with the data of all nodes."""

    def __init__(self, child: Child, printed: str, *, is_temporary: bool) -> None:
        self._child = child
        self._is_temporary = is_temporary
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        uri, data_dir = _URI.search(printed), _DATA_DIR.search(printed)
        if uri is None or data_dir is None:
            raise UnavailableError(f"the cluster does not say where it is: {printed}")
        self.uri = uri[1]
        self.data_dir = Path(data_dir[1])

    @property
    def pid(self) -> int:
        """The id of the cluster's process."""
        return self._child.pid

    @property
    def connection(self) -> Connection:
        """The connection of `sql`. It is opened when it is needed first, and closed with the cluster."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the cluster is closed")
            if self._connection is None:
                self._connection = connect(self.uri)
            return self._connection

    def connect(self, **options: Any) -> Connection:
        """Opens another connection, which is a session of its own. The options are those of `volary.connect`."""
        return connect(self.uri, **options)

    def sql(self, query: str, parameters: Parameters | None = None, *, timeout: float | None = None) -> Result:
        """Runs one statement, as `Connection.sql` does. All statements have the same session."""
        return self.connection.sql(query, parameters, timeout=timeout)

    def log(self) -> str:
        """Returns what the nodes have logged."""
        return self._child.log()

    def close(self) -> None:
        """Ends all statements and the cluster. Removes its data if the directory is temporary. May be called more than
        once.
        """
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        finally:
            self._child.end()
            # The cluster removes the directory, unless it was killed.
            if self._is_temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ended = "" if self._child.exit_code is None else " (ended)"
        return f"<volary.LocalCluster at {self.uri}, data in {self.data_dir}{ended}>"


def _root(root: str | os.PathLike[str]) -> str:
    """Returns a directory as an absolute path. A URL stays as it is."""
    text = os.fspath(root)
    return text if "://" in text else os.path.abspath(text)


def _start_error(binary: Path, child: Child) -> Error:
    """Returns the error that the program has reported before it ended."""
    log = child.log()
    if _UNKNOWN_ARGUMENT in log:
        return too_old(binary)
    reported = _ERROR.findall(log)
    if reported and reported[-1][0] in ErrorCode.__members__:
        code, message = reported[-1]
        return ERROR_CLASSES[ErrorCode(code)](f"the cluster has not started: {message}")
    return UnavailableError(f"the cluster has not started: {binary} ended with {child.exit_code}{child.tail()}")
