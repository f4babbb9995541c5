"""From the errors of the ADBC driver and of pyarrow to those of Volary: the only place that knows the driver's texts.

The driver wraps what the server says, here `NOT_FOUND: no table t`:

- as an exception of its own: `NOT_FOUND: [FlightSQL] NOT_FOUND: no table t (NotFound; Prepare). Vendor code: 5`,
  with its own status in front (which has fewer values than gRPC) and the gRPC code as the vendor code;
- while batches are read, as an `OSError` or `ArrowInvalid` of pyarrow:
  `[FlightSQL] NOT_FOUND: no table t (NotFound; DoGet: endpoint 0: [])`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import adbc_driver_manager as adbc
import pyarrow as pa

from .errors import ERROR_CLASSES, Error, ErrorCode

_GRPC: dict[str, ErrorCode] = {
    "Canceled": ErrorCode.CANCELLED,
    # What a connection that broke in the middle of a stream is reported as.
    "Unknown": ErrorCode.UNAVAILABLE,
    "InvalidArgument": ErrorCode.INVALID_ARGUMENT,
    "DeadlineExceeded": ErrorCode.DEADLINE_EXCEEDED,
    "NotFound": ErrorCode.NOT_FOUND,
    "AlreadyExists": ErrorCode.ALREADY_EXISTS,
    "PermissionDenied": ErrorCode.PERMISSION_DENIED,
    "ResourceExhausted": ErrorCode.RESOURCE_EXHAUSTED,
    "FailedPrecondition": ErrorCode.INTERNAL,
    "Aborted": ErrorCode.INTERNAL,
    # A message that is larger than this side or the other one takes.
    "OutOfRange": ErrorCode.RESOURCE_EXHAUSTED,
    "Unimplemented": ErrorCode.UNIMPLEMENTED,
    "Internal": ErrorCode.INTERNAL,
    "Unavailable": ErrorCode.UNAVAILABLE,
    "DataLoss": ErrorCode.DATA_LOSS,
    "Unauthenticated": ErrorCode.UNAUTHENTICATED,
}

_STATUS: dict[adbc.AdbcStatusCode, ErrorCode] = {
    adbc.AdbcStatusCode.NOT_IMPLEMENTED: ErrorCode.UNIMPLEMENTED,
    adbc.AdbcStatusCode.NOT_FOUND: ErrorCode.NOT_FOUND,
    adbc.AdbcStatusCode.ALREADY_EXISTS: ErrorCode.ALREADY_EXISTS,
    adbc.AdbcStatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_ARGUMENT,
    adbc.AdbcStatusCode.IO: ErrorCode.UNAVAILABLE,
    adbc.AdbcStatusCode.CANCELLED: ErrorCode.CANCELLED,
    adbc.AdbcStatusCode.TIMEOUT: ErrorCode.DEADLINE_EXCEEDED,
    adbc.AdbcStatusCode.UNAUTHENTICATED: ErrorCode.UNAUTHENTICATED,
    adbc.AdbcStatusCode.UNAUTHORIZED: ErrorCode.PERMISSION_DENIED,
}

# The driver's own words in front of the server's.
_PREFIX = re.compile(r"^\[Flight ?SQL[^\]]*\] ?")
# The driver's own words after the server's; of several such groups the last is the driver's. It guesses why a
# connection broke.
_SUFFIX = re.compile(rf" ?\((?P<grpc>{'|'.join(_GRPC)}); [^;]*(?:; possible causes: [^;]*)?\)(?:\. Vendor code: \d+)?$")
_RAW = re.compile(r"^rpc error: code = (?P<grpc>\w+) desc = ")
_CODE = re.compile(rf"^(?P<code>{'|'.join(ErrorCode)}): ?")

# What Go's gRPC says where this client, not the server, ended the call.
_OWN_WORDS = {
    "context deadline exceeded": "the timeout given to connect() or sql() passed",
    "context canceled": "the statement was cancelled here, by its client",
}


@contextmanager
def translated() -> Iterator[None]:
    """Runs calls of the driver, and of pyarrow's readers over it, so that they raise Volary's errors."""
    try:
        yield
    except (adbc.Error, pa.ArrowException, OSError) as error:
        raise translate(error) from error


def translate(error: Exception) -> Error:
    """The error of Volary that an error of the driver or of pyarrow stands for."""
    text = str(error)
    if isinstance(error, adbc.Error):
        text = text.removeprefix(f"{error.status_code.name}: ")
        fallback = _STATUS.get(error.status_code, ErrorCode.INTERNAL)
    else:
        fallback = ErrorCode.UNAVAILABLE if isinstance(error, OSError) else ErrorCode.INTERNAL
    return parse(text, fallback)


def parse(text: str, fallback: ErrorCode) -> Error:
    """Takes the driver's words off `text`. The code is the server's, else gRPC's, else `fallback`."""
    text = _PREFIX.sub("", text)
    code = fallback
    if (suffix := _SUFFIX.search(text)) is not None:
        text = text[: suffix.start()]
        code = _GRPC[suffix["grpc"]]
    # Of a partition's stream the driver gives gRPC's words as they are.
    if (raw := _RAW.match(text)) is not None:
        text = text[raw.end() :]
        code = _GRPC.get(raw["grpc"], code)
    if (said := _CODE.match(text)) is not None:
        text = text[said.end() :]
        code = ErrorCode(said["code"])
    else:
        text = next((meaning for words, meaning in _OWN_WORDS.items() if words in text), text)
    return ERROR_CLASSES[code](text.strip() or "no message was given")
