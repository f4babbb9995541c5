"""Forwards the rows of another Flight server. Both servers are those of Arrow C++.

    python bare_relay.py BARE

The program prints its URI, and ends when its input ends.
"""

from __future__ import annotations

import json
import sys

from pyarrow import flight


class BareRelay(flight.FlightServerBase):
    """A server that forwards every ticket. Both streams are implemented in C++, so no row passes through Python."""

    def __init__(self, bare: flight.FlightClient) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._bare = bare

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Returns the other server's rows."""
        return flight.RecordBatchStream(self._bare.do_get(ticket).to_reader())


def main() -> None:
    """Serves until the input ends."""
    (bare,) = sys.argv[1:]
    with flight.connect(bare) as client, BareRelay(client) as server:
        print(json.dumps({"uri": f"grpc://127.0.0.1:{server.port}"}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
