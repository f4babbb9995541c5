"""The messages that nodes send to each other, before they are sealed: see `flight-proto/src`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import protobuf as pb
import pyarrow as pa
from processes import Worker
from raw_flight import descriptor, upload
from secured import COLUMN, TABLE

COMMANDS = {
    "ListSegments": 2,
    "DropTable": 3,
    "AbortWrite": 4,
    "Report": 6,
    "Optimize": 9,
    "DescribeStorage": 10,
}
"""The commands of `volary.control`, with the numbers of their fields."""
NEVER = 2**40
"""A number that no table and no write has."""
SOON = 2**40
"""An expiry time that no test reaches, in seconds since 1970."""

_SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field(COLUMN, pa.string_view())])
_SHARD = pa.field("__volary_shard", pa.uint32(), nullable=False)


@dataclass(frozen=True)
class Addressee:
    """The worker that a message is for."""

    worker: int
    cluster: str

    @classmethod
    def of(cls, worker: Worker) -> Addressee:
        """Reads the identity that the worker has stored."""
        identity = json.loads(Path(worker.data_dir / "volary.json").read_text())
        return cls(identity["worker_id"], identity["cluster_id"])


def control(to: Addressee, command: str, body: bytes = b"") -> bytes:
    """Encodes a command."""
    return pb.field(1, to.worker) + pb.field(COMMANDS[command], body) + pb.field(5, to.cluster)


def write(to: Addressee, table: int) -> bytes:
    """Encodes a write into a table with this number. No catalog commits the write."""
    described = (
        pb.field(1, table)
        + pb.field(2, TABLE)
        + pb.field(3, _SCHEMA.serialize().to_pybytes())
        + pb.field(4, 0)
        + pb.field(6, 8)
        + pb.field(7, 1)
    )
    return (
        pb.field(1, "a query")
        + pb.field(2, to.worker)
        + pb.field(3, NEVER)
        + pb.field(4, described)
        + pb.field(5, to.cluster)
    )


def written(sealed: bytes) -> list[bytes]:
    """Returns the messages of a write without rows."""
    columns = pa.schema([*_SCHEMA, _SHARD])
    return upload(descriptor(sealed), pa.RecordBatch.from_pylist([], schema=columns))


def part_of(direct: bytes) -> bytes:
    """Returns the content of the fragment's ticket in a direct ticket. This is what a worker runs."""
    return pb.fields(direct)[2]


def join(cluster: str) -> bytes:
    """Encodes the request of a worker that joins the cluster with this id, at an address where no worker is."""
    return pb.field(2, cluster) + pb.field(3, "127.0.0.1:9") + pb.field(4, "an instance") + pb.field(5, "0.1.0")


def leave(worker: int) -> bytes:
    """Encodes the request of a worker that leaves, for an instance that is not the current one."""
    return pb.field(1, worker) + pb.field(2, "another instance")


def introduction(authorization: str | None, direct: bytes = b"") -> bytes:
    """Encodes a worker's question to a gateway about a client."""
    shown = b"" if authorization is None else pb.field(1, authorization)
    return shown + pb.field(2, "127.0.0.1:9") + pb.field(3, direct)
