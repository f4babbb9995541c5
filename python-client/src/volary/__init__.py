"""Volary: SQL over sharded tables, as Arrow data.

    with volary.connect("grpc://127.0.0.1:7100") as connection:
        frame = connection.sql("SELECT * FROM orders WHERE o_orderkey = ?", [7]).to_pandas()

`connect` returns a `Connection`, whose `sql` method returns a `Result`. `local` starts a cluster on this machine. Every
error of the server is raised as a subclass of `Error`.
"""

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

__all__ = [
    "AlreadyExistsError",
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
    "LocalCluster",
    "NotFoundError",
    "Parameters",
    "PermissionDeniedError",
    "Plan",
    "PlanNode",
    "ResourceExhaustedError",
    "Result",
    "Setting",
    "Statistics",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "__version__",
    "connect",
    "local",
]
