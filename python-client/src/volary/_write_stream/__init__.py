"""Writes batches to a table over a long-lived call, and knows what was written after a lost connection."""

from ._acknowledgement import Acknowledgement, PendingAcknowledgement
from ._rows import ColumnTypes, StreamData
from ._sender import Route
from ._status import STATUS_ACTION, BatchStatus, parse_status, status_question
from ._stream import WriteStream

__all__ = [
    "STATUS_ACTION",
    "Acknowledgement",
    "BatchStatus",
    "ColumnTypes",
    "PendingAcknowledgement",
    "Route",
    "StreamData",
    "WriteStream",
    "parse_status",
    "status_question",
]
