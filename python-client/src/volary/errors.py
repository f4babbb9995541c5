"""The errors of Volary. Each code of the server has its own class, so that callers can catch the errors that they can
handle.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, TypeVar


class ErrorCode(StrEnum):
    """The code of an error. It says who can fix the error and whether a retry may help. The server puts it in front of
    each message.
    """

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    DATA_LOSS = "DATA_LOSS"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"


class Error(Exception):
    """The base class of all errors that Volary's server reports, or that occur on the way to it.

    `message` is the text without the code; `str()` shows both. `sqlstate` is the SQLSTATE code, such as `42P01` for a
    table that does not exist. The codes are PostgreSQL's. It is None if the server has not named one, for example
    because it cannot be reached. `retry_after` is how long the server asks to wait before the call is repeated, in
    seconds. It is None if the server does not say.
    """

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    retryable: ClassVar[bool] = False
    """True if the same call may succeed later without any change by the caller. But if a node was lost or a deadline
    passed, a write may have been committed: check before you repeat it.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        # A number of seconds, like every `timeout` of the client, so that `time.sleep` takes it as it is.
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InvalidArgumentError(Error):
    """The statement, a parameter or a file is wrong, or asks for something that Volary does not support."""

    code = ErrorCode.INVALID_ARGUMENT


class NotFoundError(Error):
    """The statement names a table, column, worker or file that does not exist."""

    code = ErrorCode.NOT_FOUND


class AlreadyExistsError(Error):
    """The object that was to be created already exists."""

    code = ErrorCode.ALREADY_EXISTS


class UnauthenticatedError(Error):
    """The credentials are missing, wrong or expired: log in again."""

    code = ErrorCode.UNAUTHENTICATED


class PermissionDeniedError(Error):
    """The credentials are valid but do not allow this."""

    code = ErrorCode.PERMISSION_DENIED


class ResourceExhaustedError(Error):
    """A limit is reached (memory, disk, a queue): retry later, or raise the limit."""

    code = ErrorCode.RESOURCE_EXHAUSTED
    retryable = True


class UnavailableError(Error):
    """A node cannot be reached, is shutting down or has not joined the cluster: retry."""

    code = ErrorCode.UNAVAILABLE
    retryable = True


class DeadlineExceededError(Error):
    """A statement, or a node that it needs, took too long: retry, with a longer timeout if the statement needs one."""

    code = ErrorCode.DEADLINE_EXCEEDED
    retryable = True


class CancelledError(Error):
    """The statement was cancelled by its client."""

    code = ErrorCode.CANCELLED


class DataLossError(Error):
    """Stored data is missing or damaged: an operator must restore it."""

    code = ErrorCode.DATA_LOSS


class UnimplementedError(Error):
    """The server does not support this feature of the protocol."""

    code = ErrorCode.UNIMPLEMENTED


class InternalError(Error):
    """A bug in Volary: please report it."""

    code = ErrorCode.INTERNAL


_Kind = TypeVar("_Kind", bound=Error)


def with_message(error: _Kind, message: str) -> _Kind:
    """Returns a copy of an error that has another message."""
    return type(error)(message, sqlstate=error.sqlstate, retry_after=error.retry_after)


ERROR_CLASSES: dict[ErrorCode, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        UnauthenticatedError,
        PermissionDeniedError,
        ResourceExhaustedError,
        UnavailableError,
        DeadlineExceededError,
        CancelledError,
        DataLossError,
        UnimplementedError,
        InternalError,
    )
}
