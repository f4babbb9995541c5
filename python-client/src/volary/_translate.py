"""Translates pyarrow's errors to Volary's errors. This is the only module that knows pyarrow's texts.

pyarrow wraps the server's message, which is `NOT_FOUND: no table t` in this example. If the server says nothing,
pyarrow wraps gRPC's own message.

    Flight returned not found error, with message: NOT_FOUND: no table t. gRPC client debug context:
    NOT_FOUND:NOT_FOUND: no table t. Client context: OK
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import pyarrow as pa
from pyarrow import flight

from ._answers import Answer
from .errors import ERROR_CLASSES, Error, ErrorCode

# gRPC's own codes. They come from a proxy, or from a part of the server below its error handling.
_GRPC_CODES = {
    **{str(code): code for code in ErrorCode},
    "FAILED_PRECONDITION": ErrorCode.INTERNAL,
    "ABORTED": ErrorCode.INTERNAL,
    # The message is larger than one of the two sides accepts.
    "OUT_OF_RANGE": ErrorCode.RESOURCE_EXHAUSTED,
    "UNKNOWN": ErrorCode.UNAVAILABLE,
}

_PYARROW_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (flight.FlightTimedOutError, ErrorCode.DEADLINE_EXCEEDED),
    (flight.FlightCancelledError, ErrorCode.CANCELLED),
    (flight.FlightUnauthenticatedError, ErrorCode.UNAUTHENTICATED),
    (flight.FlightUnauthorizedError, ErrorCode.PERMISSION_DENIED),
    (flight.FlightUnavailableError, ErrorCode.UNAVAILABLE),
    (pa.ArrowNotImplementedError, ErrorCode.UNIMPLEMENTED),
    (pa.ArrowKeyError, ErrorCode.NOT_FOUND),
    # The batch does not fit into Arrow's format.
    (pa.ArrowCapacityError, ErrorCode.INVALID_ARGUMENT),
    (pa.ArrowInvalid, ErrorCode.INVALID_ARGUMENT),
    (OSError, ErrorCode.UNAVAILABLE),
)

PYARROW_ERRORS = (flight.FlightError, pa.ArrowException, OSError)
"""The errors that calls of pyarrow raise."""

_PREFIX = re.compile(r"^(?:\w+: )?(?:gRPC|Flight) (?:returned|cancelled) [^,]*, with message: ")
_SUFFIX = re.compile(r"\. gRPC client debug context: (?P<grpc>[A-Z_]+):.*$", re.DOTALL)
_CODE = re.compile(rf"^(?P<code>{'|'.join(ErrorCode)}): ?")

TIMEOUT_PASSED = "the timeout of connect() or sql() has expired"
CANCELLED_HERE = "the statement was cancelled by this client"

# Messages for calls that this client, and not the server, has ended.
_OWN_WORDS = {
    ErrorCode.DEADLINE_EXCEEDED: TIMEOUT_PASSED,
    ErrorCode.CANCELLED: CANCELLED_HERE,
}


class _Translated:
    # A generator with contextlib would take many times as long.
    def __init__(self, answer: Callable[[], Answer]) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, PYARROW_ERRORS):
            raise translate(error, self._answer()) from error


def translated(answer: Callable[[], Answer]) -> AbstractContextManager[None]:
    """Returns a context manager that turns the errors of pyarrow's calls into Volary's errors. It may be used more than
    once. `answer` returns the answer of the call that has failed.
    """
    return _Translated(answer)


def translate(error: Exception, answer: Answer | None = None) -> Error:
    """Returns the Volary error for a pyarrow error. `answer` is that of the call, if the error is one of a call."""
    # str() of a KeyError would put its text in quotes.
    text = str(error.args[0]) if error.args else str(error)
    fallback = next((code for kind, code in _PYARROW_CODES if isinstance(error, kind)), ErrorCode.INTERNAL)
    return parse(text, fallback, answer)


def parse(text: str, fallback: ErrorCode, answer: Answer | None = None) -> Error:
    """Returns the error for pyarrow's `text`. Its code is the server's, or else gRPC's, or else `fallback`."""
    answer = answer or Answer()
    text = _PREFIX.sub("", text, count=1)
    code = fallback
    if (suffix := _SUFFIX.search(text)) is not None:
        text = text[: suffix.start()]
        code = _GRPC_CODES.get(suffix["grpc"], code)
    if (said := _CODE.match(text)) is not None:
        text = text[said.end() :]
        code = ErrorCode(said["code"])
    else:
        text = _OWN_WORDS.get(code, text)
    return ERROR_CLASSES[code](
        text.strip() or "no message was given", sqlstate=answer.sqlstate(), retry_after=answer.retry_after()
    )
