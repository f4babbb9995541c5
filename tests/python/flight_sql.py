"""Sends Flight SQL messages over pyarrow.flight, for calls that no driver makes or reports on."""

from __future__ import annotations

from collections.abc import Sequence

import protobuf as pb
import pyarrow as pa
from pyarrow import flight

Options = flight.FlightCallOptions


def query_command(query: str) -> bytes:
    """Encodes a CommandStatementQuery."""
    return pb.command("CommandStatementQuery", pb.field(1, query))


def described(command: bytes | str) -> flight.FlightDescriptor:
    """Returns the descriptor of a message or of plain SQL."""
    return flight.FlightDescriptor.for_command(command)


def statement(query: str) -> flight.FlightDescriptor:
    """Returns the descriptor of a CommandStatementQuery."""
    return described(query_command(query))


def rows(
    client: flight.FlightClient, command: bytes | flight.FlightDescriptor, options: Options | None = None
) -> pa.Table:
    """Runs a command and returns the rows of its first endpoint, which is the gateway."""
    descriptor = command if isinstance(command, flight.FlightDescriptor) else described(command)
    info = client.get_flight_info(descriptor, options)
    return client.do_get(info.endpoints[0].ticket, options).read_all()


def prepared(client: flight.FlightClient, query: str, options: Options | None = None) -> dict[int, bytes]:
    """Returns the fields of an ActionCreatePreparedStatementResult: handle, dataset schema, parameter schema."""
    body = pb.command("ActionCreatePreparedStatementRequest", pb.field(1, query))
    (result,) = client.do_action(flight.Action("CreatePreparedStatement", body), options)
    return pb.fields(pb.fields(result.body.to_pybytes())[2])


def prepared_command(handle: bytes) -> bytes:
    """Encodes a CommandPreparedStatementQuery."""
    return pb.command("CommandPreparedStatementQuery", pb.field(1, handle))


def put(
    client: flight.FlightClient, command: bytes | str, batch: pa.RecordBatch, options: Options | None = None
) -> bytes:
    """Returns the answer to a DoPut of one batch."""
    writer, reader = client.do_put(described(command), batch.schema, options)
    with writer:
        writer.write_batch(batch)
        writer.done_writing()
        return reader.read().to_pybytes()


def bound(
    client: flight.FlightClient, handle: bytes, values: Sequence[object], options: Options | None = None
) -> bytes:
    """Returns the handle of a prepared query with values for its parameters, in the types that Arrow gives them."""
    batch = pa.record_batch([pa.array([value]) for value in values], [str(index) for index in range(len(values))])
    return pb.fields(put(client, prepared_command(handle), batch, options))[1]
