"""Tests what tables declare besides their columns: what drivers see of keys and comments, and defaults of rows that are
loaded.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import protobuf as pb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import LocalCluster
from flight_sql import rows
from pyarrow import flight

import volary

pytestmark = pytest.mark.server

_numbers = itertools.count()
CASCADE, NO_ACTION = 0, 3
LISTED = ["listed"]
"""Ways of loading that need a list of columns."""


@pytest.fixture
def nests(connection: volary.Connection) -> Iterator[str]:
    """The name of a table with a key of two columns and defaults."""
    name = f"nests_{next(_numbers)}"
    connection.sql(
        f"CREATE TABLE {name} (site VARCHAR DEFAULT 'cliff', id BIGINT, eggs BIGINT DEFAULT 1 + 1,"
        f" mark VARCHAR DEFAULT uuid(), PRIMARY KEY (id, site), CONSTRAINT few CHECK (eggs < 9))"
    )
    yield name
    connection.sql(f"DROP TABLE {name}")


@pytest.fixture
def visits(connection: volary.Connection, nests: str) -> Iterator[str]:
    """The name of a table whose rows refer to nests."""
    name = f"visits_to_{nests}"
    connection.sql(
        f"CREATE TABLE {name} (nest BIGINT, site VARCHAR, at TIMESTAMP,"
        f" CONSTRAINT of_nest FOREIGN KEY (site, nest) REFERENCES {nests} (site, id) ON DELETE CASCADE)"
    )
    yield name
    connection.sql(f"DROP TABLE {name}")


def asked(cluster: LocalCluster, command: str, *fields: bytes) -> list[tuple]:
    with flight.connect(cluster.uri) as client:
        return [tuple(row.values()) for row in rows(client, pb.command(command, b"".join(fields))).to_pylist()]


def test_drivers_see_the_primary_key(cluster, nests):
    key = f"{nests}_pkey"
    expected = [("volary", "public", nests, "id", key, 1), ("volary", "public", nests, "site", key, 2)]
    assert asked(cluster, "CommandGetPrimaryKeys", pb.field(3, nests)) == expected
    named = [pb.field(1, "volary"), pb.field(2, "public"), pb.field(3, nests)]
    assert asked(cluster, "CommandGetPrimaryKeys", *named) == expected
    assert asked(cluster, "CommandGetPrimaryKeys", pb.field(2, "system"), pb.field(3, nests)) == []


def test_drivers_see_foreign_keys_from_both_sides(cluster, nests, visits):
    def column(referenced: str, own: str, sequence: int) -> tuple:
        names = ("volary", "public", nests, referenced, "volary", "public", visits, own, sequence)
        return (*names, "of_nest", f"{nests}_pkey", NO_ACTION, CASCADE)

    expected = [column("site", "site", 1), column("id", "nest", 2)]
    assert asked(cluster, "CommandGetImportedKeys", pb.field(3, visits)) == expected
    assert asked(cluster, "CommandGetExportedKeys", pb.field(3, nests)) == expected
    assert asked(cluster, "CommandGetCrossReference", pb.field(3, nests), pb.field(6, visits)) == expected
    assert asked(cluster, "CommandGetImportedKeys", pb.field(3, nests)) == []
    assert asked(cluster, "CommandGetExportedKeys", pb.field(3, visits)) == []
    assert asked(cluster, "CommandGetCrossReference", pb.field(3, visits), pb.field(6, nests)) == []


def test_drivers_see_comments_on_columns(cluster, connection, nests):
    connection.sql(f"COMMENT ON COLUMN {nests}.eggs IS 'how many'")
    with flight.connect(cluster.uri) as client:
        message = pb.field(3, nests) + pb.field(5, 1)
        (row,) = rows(client, pb.command("CommandGetTables", message)).to_pylist()
    schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    remarks = {it.name: (it.metadata or {}).get(b"ARROW:FLIGHT:SQL:REMARKS") for it in schema}
    assert remarks == {"site": None, "id": None, "eggs": b"how many", "mark": None}


def loaded(connection: volary.Connection, table: str) -> list[tuple]:
    return connection.sql(f"SELECT id, site, eggs, mark IS NOT NULL FROM {table} ORDER BY id").rows()


@pytest.mark.parametrize("way", ["ingest", "parquet", "csv", "listed", "json"])
def test_rows_that_lack_a_column_get_its_default(connection, nests, tmp_path, way):
    data = pa.table({"id": [1, 2], "eggs": [None, 4]})
    if way == "ingest":
        connection.ingest(nests, data)
    else:
        connection.sql(f"COPY {nests} {'(id, eggs)' if way in LISTED else ''} FROM '{written(tmp_path, data, way)}'")
    assert loaded(connection, nests) == [(1, "cliff", None, True), (2, "cliff", 4, True)]
    ((distinct,),) = connection.sql(f"SELECT count(DISTINCT mark) FROM {nests}").rows()
    assert distinct == 2


def written(folder: Path, data: pa.Table, way: str) -> Path:
    """Returns a file with the rows."""
    if way == "parquet":
        pq.write_table(data, folder / "rows.parquet")
        return folder / "rows.parquet"
    if way == "json":
        (folder / "rows.json").write_text('{"id": 1, "eggs": null}\n{"id": 2, "eggs": 4}\n')
        return folder / "rows.json"
    # The lines of a statement that lists columns have no names above them.
    names = "id,eggs\n" if way == "csv" else ""
    (folder / "rows.csv").write_text(f"{names}1,\n2,4\n")
    return folder / "rows.csv"


def test_a_record_of_json_without_a_name_gets_the_default_and_a_null_stays_null(connection, tmp_path):
    table = f"records_{next(_numbers)}"
    columns = f"{table} (k BIGINT, n BIGINT DEFAULT 40 + 2, s VARCHAR DEFAULT 'egg')"
    records = [{"k": 1, "n": 7, "s": "kea"}, {"k": 2}, {"k": 3, "n": None, "s": None}, {"k": 4, "s": "tui", "n": 8}]
    for number in range(3):
        lines = "".join(json.dumps(record) + "\n" for record in records[number:])
        (tmp_path / f"{number}.json").write_text(lines)
    (tmp_path / "none.json").write_text('{"k": 5}\n')
    connection.sql(f"CREATE TABLE {columns}")
    connection.sql(f"COPY {table} FROM '{tmp_path}/'")
    rows = connection.sql(f"SELECT DISTINCT k, n, s FROM {table} ORDER BY k").rows()
    assert rows == [(1, 7, "kea"), (2, 42, "egg"), (3, None, None), (4, 8, "tui"), (5, 42, "egg")]
    assert connection.sql(f"SELECT count(*) FROM {table}").rows() == [(10,)]
    # Columns that the statement does not list are left out of all records.
    connection.sql(f"CREATE OR REPLACE TABLE {columns}")
    connection.sql(f"COPY {table} (k, n) FROM '{tmp_path}/0.json'")
    rows = connection.sql(f"SELECT k, n, s FROM {table} ORDER BY k").rows()
    assert rows == [(1, 7, "egg"), (2, 42, "egg"), (3, None, "egg"), (4, 8, "egg")]
    connection.sql(f"CREATE OR REPLACE TABLE {columns.replace('BIGINT DEFAULT', 'BIGINT NOT NULL DEFAULT')}")
    with pytest.raises(volary.InvalidArgumentError, match=r"line 3.*column n"):
        connection.sql(f"COPY {table} FROM '{tmp_path}/0.json'")
    connection.sql(f"COPY {table} FROM '{tmp_path}/none.json'")
    assert connection.sql(f"SELECT n FROM {table}").rows() == [(42,)]
    connection.sql(f"DROP TABLE {table}")


def test_a_load_whose_rows_violate_a_check_keeps_nothing(connection, nests):
    with pytest.raises(volary.Error, match=r'violates the check "few", which demands eggs < 9; the row has eggs = 9'):
        connection.ingest(nests, pa.table({"id": range(20), "eggs": range(20)}))
    assert loaded(connection, nests) == []


def test_declarations_outlive_a_restart(tmp_path):
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE kept (k BIGINT PRIMARY KEY, n BIGINT DEFAULT 7 CHECK (n > 0))")
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("INSERT INTO kept (k) VALUES (1)")
        with pytest.raises(volary.Error) as caught:
            connection.sql("INSERT INTO kept VALUES (2, 0)")
        assert caught.value.sqlstate == "23514"
        assert connection.sql("SELECT k, n FROM kept").rows() == [(1, 7)]
        names = "SELECT constraint_name FROM information_schema.table_constraints ORDER BY 1"
        assert connection.sql(names).rows() == [("kept_n_check",), ("kept_pkey",)]
