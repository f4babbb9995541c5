"""Creates tables in the file of a database that runs in the process of its client. MODULE is `duckdb` or `sqlite3`.

python load_file.py MODULE PATH STATEMENT…
"""

from __future__ import annotations

import importlib
import json
import sys

if __name__ == "__main__":
    module, path, *statements = sys.argv[1:]
    # The end of the block makes everything durable: DuckDB closes the file there, and SQLite commits.
    with importlib.import_module(module).connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    print(json.dumps({}), flush=True)
