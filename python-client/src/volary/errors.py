"""The errors of Volary: one class per code of the server, so that a caller catches what it can mend."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class ErrorCode(StrEnum):
    """Who can mend an error, and whether a retry may help. The server puts it in front of each message."""

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
    """The base of all errors that Volary's server, or the way to it, reports.

    `message` is the text without the code; `str()` shows both.
    """

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without anybody changing it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InvalidArgumentError(Error):
    """The statement, a parameter or a file is wrong, or asks for what Volary does not do."""

    code = ErrorCode.INVALID_ARGUMENT


class NotFoundError(Error):
    """A table, column, worker or file that was named does not exist."""

    code = ErrorCode.NOT_FOUND


class AlreadyExistsError(Error):
    """What was to be created exists."""

    code = ErrorCode.ALREADY_EXISTS


class UnauthenticatedError(Error):
    """No credentials, wrong ones, or ones that have expired: log in again."""

    code = ErrorCode.UNAUTHENTICATED


class PermissionDeniedError(Error):
    """The credentials are right and do not allow this."""

    code = ErrorCode.PERMISSION_DENIED


class ResourceExhaustedError(Error):
    """A limit is reached (memory, disk, a queue): retry later, or raise the limit."""

    code = ErrorCode.RESOURCE_EXHAUSTED
    retryable = True


class UnavailableError(Error):
    """A node cannot be reached, is shutting down or has not joined: retry."""

    code = ErrorCode.UNAVAILABLE
    retryable = True


class DeadlineExceededError(Error):
    """A deadline passed: retry with a longer one."""

    code = ErrorCode.DEADLINE_EXCEEDED
    retryable = True


class CancelledError(Error):
    """The statement was cancelled by its client."""

    code = ErrorCode.CANCELLED


class DataLossError(Error):
    """Stored data is missing or damaged: the operator restores it."""

    code = ErrorCode.DATA_LOSS


class UnimplementedError(Error):
    """The server does not know this feature of the protocol."""

    code = ErrorCode.UNIMPLEMENTED


class InternalError(Error):
    """A bug in Volary: please report it."""

    code = ErrorCode.INTERNAL


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
