"""Serves the rows of a query from memory with a Flight server of Arrow C++. The batches are those of the gateway.

    python bare_server.py GATEWAY QUERY

The program prints its URI and the size of its rows, and ends when its input ends.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyarrow import flight


class BareServer(flight.FlightServerBase):
    """A server that returns the same rows for every ticket. The stream is implemented in C++, so no row passes through
    Python.
    """

    def __init__(self, rows: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._rows = rows

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Returns all rows."""
        return flight.RecordBatchStream(self._rows)


def main() -> None:
    """Serves until the input ends."""
    gateway, query = sys.argv[1:]
    with flight.connect(gateway) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(query))
        rows = client.do_get(info.endpoints[0].ticket).read_all()
    with BareServer(rows) as server:
        print(
            json.dumps({"uri": f"grpc://127.0.0.1:{server.port}", "rows": rows.num_rows, "bytes": rows.nbytes}),
            flush=True,
        )
        sys.stdin.read()


if __name__ == "__main__":
    main()
