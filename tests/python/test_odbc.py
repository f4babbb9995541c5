"""Makes the calls of the ODBC drivers in their order.

The drivers themselves do not run here. They read the answers more strictly than other drivers.
"""

import protobuf as pb
import pyarrow as pa
import pytest
from flight_sql import described, prepared, prepared_command, rows
from pyarrow import flight


@pytest.fixture
def client(cluster):
    """A connection to the gateway."""
    with flight.connect(cluster.uri) as client:
        yield client


@pytest.fixture
def login(client):
    return flight.FlightCallOptions(headers=[client.authenticate_basic_token("kea", "a secret")])


def execute(client, login, query: str) -> list[pa.Table]:
    """Does what SQLExecDirect does: prepares the statement, runs it as a query in any case, and reads all endpoints."""
    fields = prepared(client, query, login)
    # An empty schema message would crash the driver's process.
    pa.ipc.read_schema(pa.py_buffer(fields[2]))
    info = client.get_flight_info(described(prepared_command(fields[1])), login)
    read = [client.do_get(endpoint.ticket, login).read_all() for endpoint in info.endpoints]
    assert all(table.schema == info.schema for table in read)
    assert all(endpoint.locations == [] for endpoint in info.endpoints)
    return read


def test_it_connects(client, login):
    everything = rows(client, pb.command("CommandGetSqlInfo", b""), login)
    # SQL_DBMS_NAME, SQL_IDENTIFIER_QUOTE_CHAR, and the last id.
    assert {0, 504, 576} <= set(everything["info_name"].to_pylist())
    # pyodbc asks for the sizes of SQL_VARCHAR, SQL_WVARCHAR, SQL_VARBINARY and SQL_TYPE_TIMESTAMP.
    for number, name in ((12, "VARCHAR"), (-9, "NVARCHAR"), (-3, "VARBINARY"), (93, "TIMESTAMP")):
        types = rows(client, pb.command("CommandGetXdbcTypeInfo", pb.field(1, number)), login)
        assert types["type_name"].to_pylist()[0] == name
        assert all(size > 0 for size in types["column_size"].to_pylist())


def test_it_executes(client, login, birds):
    (read,) = execute(client, login, f"SELECT k, name FROM {birds} WHERE k < 3 ORDER BY k")
    assert read.to_pydict() == {"k": [1, 2], "name": ["kea", "kaka"]}
    (read,) = execute(client, login, f"SELECT k FROM {birds} WHERE k < 0")
    assert read.num_rows == 0


def test_what_writes_runs_once_though_it_is_sent_as_a_query(client, login, connection, empty_table):
    execute(client, login, f"INSERT INTO {empty_table} (k) VALUES (1), (2)")
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(2,)]
    execute(client, login, f"DROP TABLE {empty_table}")
    assert connection.sql(f"SELECT name FROM system.tables WHERE name = '{empty_table}'").rows() == []


def test_it_lists_tables_and_columns(client, login, birds):
    (catalog,) = rows(client, pb.command("CommandGetCatalogs", b""), login)["catalog_name"].to_pylist()
    schemas = rows(client, pb.command("CommandGetDbSchemas", pb.field(2, "%")), login)
    assert "public" in schemas["db_schema_name"].to_pylist()
    assert "TABLE" in rows(client, pb.command("CommandGetTableTypes", b""), login)["table_type"].to_pylist()
    message = pb.field(1, catalog) + pb.field(2, "%") + pb.field(3, "%") + pb.field(5, 1)
    listed = rows(client, pb.command("CommandGetTables", message), login).to_pylist()
    columns = {row["table_name"]: pa.ipc.read_schema(pa.py_buffer(row["table_schema"])) for row in listed}
    assert columns[birds].names == ["k", "name", "price", "day"]
    assert len(columns) > 10
    # A column without metadata would crash the driver's process.
    without = [f"{name}.{field.name}" for name, schema in columns.items() for field in schema if not field.metadata]
    assert without == []
    assert [field.metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] for field in columns[birds]] == [
        b"BIGINT",
        b"VARCHAR",
        b"DOUBLE",
        b"DATE",
    ]
