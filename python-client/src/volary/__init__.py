"""Volary: SQL over sharded tables, as Arrow data.

    with volary.connect("grpc://127.0.0.1:7100") as connection:
        frame = connection.sql("SELECT * FROM orders WHERE o_orderkey = ?", [7]).to_pandas()

`connect` returns a `Connection`, whose `sql` method returns a `Result`. `local` starts a cluster on this machine. Every
error of the server is raised as a subclass of `Error`.
"""

from typing import TYPE_CHECKING, Any

from ._connect import connect
from ._connection import Connection
from ._flight_sql import IngestMode
from ._ingest import IngestData
from ._local import LocalCluster, local
from ._parameters import Parameters
from ._plan import Plan, PlanNode
from ._result import Result
from ._settings_file import Setting
from ._statistics import Statistics
from ._version import __version__
from .errors import (
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    ErrorCode,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)

# Streams are imported when they are used: see `Connection.stream`.
if TYPE_CHECKING:
    from ._lookup import Keys, Lookup, PendingLookup
    from ._write_stream import Acknowledgement, BatchStatus, StreamData, WriteStream

_OF_LOOKUPS = ("Keys", "Lookup", "PendingLookup")
_OF_STREAMS = ("Acknowledgement", "BatchStatus", "StreamData", "WriteStream")

__all__ = [
    "Acknowledgement",
    "AlreadyExistsError",
    "BatchStatus",
    "CancelledError",
    "Connection",
    "DataLossError",
    "DeadlineExceededError",
    "Error",
    "ErrorCode",
    "IngestData",
    "IngestMode",
    "InternalError",
    "InvalidArgumentError",
    "Keys",
    "LocalCluster",
    "Lookup",
    "NotFoundError",
    "Parameters",
    "PendingLookup",
    "PermissionDeniedError",
    "Plan",
    "PlanNode",
    "ResourceExhaustedError",
    "Result",
    "Setting",
    "Statistics",
    "StreamData",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "WriteStream",
    "__version__",
    "connect",
    "local",
]


def __getattr__(name: str) -> Any:
    if name in _OF_LOOKUPS:
        from . import _lookup

        return getattr(_lookup, name)
    if name not in _OF_STREAMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _write_stream

    return getattr(_write_stream, name)
