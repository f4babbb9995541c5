"""Tests the listings of Flight SQL as messages. Drivers look for columns by name, type and nullability."""

import protobuf as pb
import pyarrow as pa
import pytest
from flight_sql import described, rows
from pyarrow import flight

TEXT = pa.string()


@pytest.fixture
def client(cluster):
    with flight.connect(cluster.uri) as client:
        yield client


@pytest.fixture
def view(connection, birds):
    view = f"{birds}_view"
    connection.sql(f"CREATE VIEW {view} AS SELECT k FROM {birds}")
    yield view
    connection.sql(f"DROP VIEW {view}")


def required(name: str, kind: pa.DataType = TEXT) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def optional(name: str, kind: pa.DataType = TEXT) -> pa.Field:
    return pa.field(name, kind)


TABLES = [
    optional("catalog_name"),
    optional("db_schema_name"),
    required("table_name"),
    required("table_type"),
]
FOREIGN_KEYS = [
    optional("pk_catalog_name"),
    optional("pk_db_schema_name"),
    required("pk_table_name"),
    required("pk_column_name"),
    optional("fk_catalog_name"),
    optional("fk_db_schema_name"),
    required("fk_table_name"),
    required("fk_column_name"),
    required("key_sequence", pa.int32()),
    optional("fk_key_name"),
    optional("pk_key_name"),
    required("update_rule", pa.uint8()),
    required("delete_rule", pa.uint8()),
]
PRIMARY_KEYS = [
    optional("catalog_name"),
    optional("db_schema_name"),
    required("table_name"),
    required("column_name"),
    optional("key_name"),
    required("key_sequence", pa.int32()),
]
# The values that a client asks for, field by field, in questions about the table {t}.
KEYS = {
    "CommandGetPrimaryKeys": ("volary", "public", "{t}"),
    "CommandGetExportedKeys": ("volary", "public", "{t}"),
    "CommandGetImportedKeys": ("volary", "public", "{t}"),
    "CommandGetCrossReference": ("volary", "public", "{t}", "volary", "public", "{t}"),
}


def asked(client, command: str, message: bytes = b"") -> pa.Table:
    """Returns the rows, and checks that their schema is the announced one."""
    encoded = pb.command(command, message)
    table = rows(client, encoded)
    assert table.schema.equals(client.get_flight_info(described(encoded)).schema, check_metadata=True)
    assert table.schema.equals(client.get_schema(described(encoded)).schema, check_metadata=True)
    return table


def tables(client, *filters: bytes) -> list[str]:
    return asked(client, "CommandGetTables", b"".join(filters))["table_name"].to_pylist()


@pytest.mark.parametrize(
    ("command", "message", "columns"),
    [
        ("CommandGetCatalogs", b"", [required("catalog_name")]),
        ("CommandGetDbSchemas", b"", [optional("catalog_name"), required("db_schema_name")]),
        ("CommandGetTables", b"", TABLES),
        ("CommandGetTables", pb.field(5, 1), [*TABLES, required("table_schema", pa.binary())]),
        ("CommandGetTableTypes", b"", [required("table_type")]),
        ("CommandGetPrimaryKeys", pb.field(3, "t"), PRIMARY_KEYS),
        ("CommandGetExportedKeys", pb.field(3, "t"), FOREIGN_KEYS),
        ("CommandGetImportedKeys", pb.field(3, "t"), FOREIGN_KEYS),
        ("CommandGetCrossReference", pb.field(3, "t") + pb.field(6, "t"), FOREIGN_KEYS),
    ],
)
def test_columns_are_those_of_the_protocol(client, command, message, columns):
    assert asked(client, command, message).schema.equals(pa.schema(columns))


def test_catalogs_schemas_and_types_of_tables(client):
    assert asked(client, "CommandGetCatalogs").to_pylist() == [{"catalog_name": "volary"}]
    schemas = asked(client, "CommandGetDbSchemas").to_pylist()
    assert [tuple(row.values()) for row in schemas] == [
        ("volary", "information_schema"),
        ("volary", "public"),
        ("volary", "system"),
    ]
    kinds = asked(client, "CommandGetTableTypes")["table_type"].to_pylist()
    assert {"TABLE", "REFERENCE TABLE", "VIEW"} <= set(kinds)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], {"public", "system", "information_schema"}),
        ([pb.field(1, "volary")], {"public", "system", "information_schema"}),
        ([pb.field(1, "")], set()),
        ([pb.field(1, "other")], set()),
        ([pb.field(2, "pub%")], {"public"}),
        ([pb.field(2, "_ystem")], {"system"}),
        ([pb.field(2, "")], set()),
    ],
)
@pytest.mark.usefixtures("birds")
def test_a_filter_that_is_absent_is_not_one_that_is_empty(client, filters, found):
    message = b"".join(filters)
    assert set(asked(client, "CommandGetDbSchemas", message)["db_schema_name"].to_pylist()) == found
    # Tables of information_schema can be found by name, but are not listed.
    of_tables = found - {"information_schema"}
    assert set(asked(client, "CommandGetTables", message)["db_schema_name"].to_pylist()) == of_tables


def test_tables_are_filtered_by_pattern_and_type(client, birds, view):
    assert {birds, view, "queries"} <= set(tables(client))
    assert tables(client, pb.field(3, birds)) == [birds]
    assert sorted(tables(client, pb.field(3, f"{birds}%"))) == sorted([birds, view])
    assert tables(client, pb.field(3, f"{birds}_view")) == [view]
    assert tables(client, pb.field(3, f"{birds[:-1]}_")).count(birds) == 1
    assert tables(client, pb.field(3, birds.upper())) == []
    assert tables(client, pb.field(3, f"{birds}%"), pb.field(4, "VIEW")) == [view]
    assert tables(client, pb.field(3, f"{birds}%"), pb.field(4, "VIEW"), pb.field(4, "TABLE")) == sorted([birds, view])
    assert tables(client, pb.field(4, "SEQUENCE")) == []


@pytest.mark.parametrize("command", KEYS)
def test_key_listings_have_no_rows(client, birds, command):
    message = b"".join(pb.field(number, value.format(t=birds)) for number, value in enumerate(KEYS[command], start=1))
    assert asked(client, command, message).num_rows == 0


def test_sql_types_are_listed_or_the_one_that_is_asked_for(client):
    types = asked(client, "CommandGetXdbcTypeInfo").to_pylist()
    assert {"BIGINT", "DOUBLE", "DECIMAL", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP"} <= {
        row["type_name"] for row in types
    }
    for row in types:
        (same,) = [
            other
            for other in asked(client, "CommandGetXdbcTypeInfo", pb.field(1, row["data_type"])).to_pylist()
            if other["type_name"] == row["type_name"]
        ]
        assert same == row
    assert asked(client, "CommandGetXdbcTypeInfo", pb.field(1, 9999)).num_rows == 0


def info(client, *ids: int) -> dict[int, object]:
    """Returns the values of GetSqlInfo by id."""
    answered = asked(client, "CommandGetSqlInfo", b"".join(pb.field(1, id) for id in ids))
    return dict(zip(answered["info_name"].to_pylist(), answered["value"].to_pylist(), strict=True))


def test_sql_info_by_number(client):
    # flightsql-dbapi, and SQLAlchemy above it, ask for these values when they connect.
    said = info(client, 0, 2, 3, 504)
    assert said[0] == "Volary"
    assert isinstance(said[2], str)
    assert said[3] is False
    assert said[504] == '"'
    # There are no transactions. A driver that believed otherwise would begin one.
    assert info(client, 8) == {8: 0}
    # Ids that a later release of the protocol may define have no value. Asking for them is no error.
    assert info(client, 577, 100_000) == {}
    assert info(client, 8, 577) == {8: 0}


def test_sql_info_has_the_columns_of_the_protocol(client):
    name, value = asked(client, "CommandGetSqlInfo").schema
    assert name.equals(required("info_name", pa.uint32()))
    assert pa.types.is_union(value.type)
    assert value.type.mode == "dense"
    assert not value.nullable
    arms = [value.type.field(arm).type for arm in range(value.type.num_fields)]
    assert arms[:4] == [pa.string(), pa.bool_(), pa.int64(), pa.int32()]
    assert pa.types.is_list(arms[4])
    assert pa.types.is_map(arms[5])
