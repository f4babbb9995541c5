"""Creates tables. It is a separate program, so that it shares no memory pages with the measured processes.

python load.py URI STATEMENT…
"""

from __future__ import annotations

import json
import sys

import volary

if __name__ == "__main__":
    uri, *statements = sys.argv[1:]
    with volary.connect(uri) as connection:
        for statement in statements:
            connection.sql(statement)
        print(json.dumps({"version": connection.server_version}), flush=True)
