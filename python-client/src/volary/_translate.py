"""From pyarrow's errors to those of Volary: the only place that knows pyarrow's texts.

pyarrow wraps what the server says, here `NOT_FOUND: no table t`, and gRPC's own words where the server says nothing:

    Flight returned not found error, with message: NOT_FOUND: no table t. gRPC client debug context:
    NOT_FOUND:NOT_FOUND: no table t. Client context: OK
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from types import TracebackType

import pyarrow as pa
from pyarrow import flight

from .errors import ERROR_CLASSES, Error, ErrorCode

# What gRPC says where the server does not: a proxy, or a part of the server below its errors.
_GRPC = {
    **{str(code): code for code in ErrorCode},
    "FAILED_PRECONDITION": ErrorCode.INTERNAL,
    "ABORTED": ErrorCode.INTERNAL,
    # A message that is larger than this side or the other one takes.
    "OUT_OF_RANGE": ErrorCode.RESOURCE_EXHAUSTED,
    "UNKNOWN": ErrorCode.UNAVAILABLE,
}

_CLASSES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (flight.FlightTimedOutError, ErrorCode.DEADLINE_EXCEEDED),
    (flight.FlightCancelledError, ErrorCode.CANCELLED),
    (flight.FlightUnauthenticatedError, ErrorCode.UNAUTHENTICATED),
    (flight.FlightUnauthorizedError, ErrorCode.PERMISSION_DENIED),
    (flight.FlightUnavailableError, ErrorCode.UNAVAILABLE),
    (pa.ArrowNotImplementedError, ErrorCode.UNIMPLEMENTED),
    (pa.ArrowKeyError, ErrorCode.NOT_FOUND),
    # A batch that Arrow's format has no room for.
    (pa.ArrowCapacityError, ErrorCode.INVALID_ARGUMENT),
    (pa.ArrowInvalid, ErrorCode.INVALID_ARGUMENT),
    (OSError, ErrorCode.UNAVAILABLE),
)

PYARROW_ERRORS = (flight.FlightError, pa.ArrowException, OSError)
"""What calls of pyarrow raise."""

_PREFIX = re.compile(r"^(?:\w+: )?(?:gRPC|Flight) (?:returned|cancelled) [^,]*, with message: ")
_SUFFIX = re.compile(r"\. gRPC client debug context: (?P<grpc>[A-Z_]+):.*$", re.DOTALL)
_CODE = re.compile(rf"^(?P<code>{'|'.join(ErrorCode)}): ?")

TIMEOUT_PASSED = "the timeout given to connect() or sql() passed"

# What is said where this client, not the server, has ended the call.
_OWN_WORDS = {
    ErrorCode.DEADLINE_EXCEEDED: TIMEOUT_PASSED,
    ErrorCode.CANCELLED: "the statement was cancelled here, by its client",
}


class _Translated:
    # A generator, as of contextlib, takes many times as long.
    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, PYARROW_ERRORS):
            raise translate(error) from error


_translated = _Translated()


def translated() -> AbstractContextManager[None]:
    """Runs calls of pyarrow so that they raise Volary's errors."""
    return _translated


def translate(error: Exception) -> Error:
    """The error of Volary that one of pyarrow stands for."""
    # A KeyError's own text is quoted.
    text = str(error.args[0]) if error.args else str(error)
    fallback = next((code for kind, code in _CLASSES if isinstance(error, kind)), ErrorCode.INTERNAL)
    return parse(text, fallback)


def parse(text: str, fallback: ErrorCode) -> Error:
    """Takes pyarrow's words off `text`. The code is the server's, else gRPC's, else `fallback`."""
    text = _PREFIX.sub("", text, count=1)
    code = fallback
    if (suffix := _SUFFIX.search(text)) is not None:
        text = text[: suffix.start()]
        code = _GRPC.get(suffix["grpc"], code)
    if (said := _CODE.match(text)) is not None:
        text = text[said.end() :]
        code = ErrorCode(said["code"])
    else:
        text = _OWN_WORDS.get(code, text)
    return ERROR_CLASSES[code](text.strip() or "no message was given")
