"""The errors of PEP 249, and which of them an error of Volary becomes."""

from __future__ import annotations

from types import TracebackType

from .. import errors
from ..errors import ErrorCode


class Warning(Exception):
    """A warning. Nothing raises it: PEP 249 asks for the class."""


class Error(Exception):
    """The base class of all errors of the module.

    If the error comes from Volary, `__cause__` is the `volary.Error`, and `code`, `sqlstate` and `retry_after` (in
    seconds) are those of it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        sqlstate: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.sqlstate = sqlstate
        self.retry_after = retry_after


class InterfaceError(Error):
    """An error of this module, and not of the database. Nothing raises it: PEP 249 asks for the class."""


class DatabaseError(Error):
    """An error of the database, or of its use."""


class DataError(DatabaseError):
    """A value cannot be computed or stored, such as a quotient of zero."""


class OperationalError(DatabaseError):
    """A node cannot be reached, a limit or a deadline is reached, or the statement was cancelled."""


class IntegrityError(DatabaseError):
    """A row breaks a constraint, such as NOT NULL."""


class InternalError(DatabaseError):
    """A bug in Volary: please report it. Exhausted resources are an `OperationalError`, too."""


class ProgrammingError(DatabaseError):
    """The statement, its parameters, the credentials or the use of a cursor is wrong."""


class NotSupportedError(DatabaseError):
    """Volary does not support what was asked for."""


# The ADBC driver, on which this module was based, has only the first base class of each of these errors. So it is the
# class that SQLAlchemy takes. The second one is what PEP 249 asks for.


class InvalidValueError(ProgrammingError, DataError):
    """A statement computes or stores a value that is not possible."""


class ConstraintError(ProgrammingError, IntegrityError):
    """A row breaks a constraint."""


class UnsupportedError(ProgrammingError, NotSupportedError):
    """A statement asks for something that Volary does not support."""


class ResourceError(InternalError, OperationalError):
    """A limit is reached."""


_OF_CODE: dict[ErrorCode, type[Error]] = {
    ErrorCode.INVALID_ARGUMENT: ProgrammingError,
    ErrorCode.NOT_FOUND: ProgrammingError,
    ErrorCode.ALREADY_EXISTS: ProgrammingError,
    ErrorCode.UNAUTHENTICATED: ProgrammingError,
    ErrorCode.PERMISSION_DENIED: ProgrammingError,
    ErrorCode.RESOURCE_EXHAUSTED: ResourceError,
    ErrorCode.UNAVAILABLE: OperationalError,
    ErrorCode.DEADLINE_EXCEEDED: OperationalError,
    ErrorCode.CANCELLED: OperationalError,
    ErrorCode.DATA_LOSS: OperationalError,
    ErrorCode.UNIMPLEMENTED: NotSupportedError,
    ErrorCode.INTERNAL: InternalError,
}

# The first two characters of an SQLSTATE code are its class. It says more than the code INVALID_ARGUMENT.
_OF_SQLSTATE: dict[str, type[Error]] = {
    "0A": UnsupportedError,
    "22": InvalidValueError,
    "23": ConstraintError,
}


def from_volary(error: errors.Error) -> Error:
    """Returns the error of PEP 249 for an error of Volary. Raise it `from` that error."""
    kind = _OF_CODE[error.code]
    if kind is ProgrammingError and error.sqlstate is not None:
        kind = _OF_SQLSTATE.get(error.sqlstate[:2], kind)
    return kind(str(error), code=error.code, sqlstate=error.sqlstate, retry_after=error.retry_after)


class _Translated:
    # A generator with contextlib would take many times as long.
    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, errors.Error):
            raise from_volary(error) from error
        # What was closed by another thread. Python's own errors have subclasses of RuntimeError.
        if type(error) is RuntimeError:
            raise ProgrammingError(str(error)) from error


translated = _Translated()
"""A context manager that turns the errors of Volary into those of PEP 249. It may be used more than once."""
