"""A Flight server of Arrow C++ that has all its rows from another one, as they come.

    python bare_relay.py BARE

It answers with its URI, and ends with its input.
"""

from __future__ import annotations

import json
import sys

from pyarrow import flight


class BareRelay(flight.FlightServerBase):
    """Every ticket is the other server's. No row passes Python: both streams are C++'s own."""

    def __init__(self, bare: flight.FlightClient) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._bare = bare

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Its rows."""
        return flight.RecordBatchStream(self._bare.do_get(ticket).to_reader())


def main() -> None:
    """Serves until the input ends."""
    (bare,) = sys.argv[1:]
    with flight.connect(bare) as client, BareRelay(client) as server:
        print(json.dumps({"uri": f"grpc://127.0.0.1:{server.port}"}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
