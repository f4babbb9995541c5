"""Tests what tools ask about tables, with the catalog calls of the ADBC driver."""

import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi


@pytest.fixture
def driver(cluster):
    with dbapi.connect(cluster.uri, autocommit=True) as driver:
        yield driver


def listed(driver, **filters) -> list[tuple[str, str, dict]]:
    """Returns (catalog, schema, table) for everything that get_objects lists. The table is a nested row."""
    found = []
    for catalog in driver.adbc_get_objects(**filters).read_all().to_pylist():
        for schema in catalog["catalog_db_schemas"] or []:
            for table in schema["db_schema_tables"] or []:
                found.append((catalog["catalog_name"], schema["db_schema_name"], table))
    return found


def test_a_table_is_listed_with_its_columns(driver, birds):
    ((catalog, schema, table),) = listed(driver, table_name_filter=birds)
    assert (catalog, schema) == ("volary", "public")
    assert (table["table_name"], table["table_type"]) == (birds, "TABLE")
    columns = table["table_columns"]
    assert [column["column_name"] for column in columns] == ["k", "name", "price", "day"]
    assert [column["ordinal_position"] for column in columns] == [1, 2, 3, 4]


def test_patterns_filter_the_listing(driver, birds):
    assert birds in [table["table_name"] for _, _, table in listed(driver, table_name_filter="birds%")]
    assert listed(driver, table_name_filter="no_such%") == []
    assert listed(driver, db_schema_filter="no_such") == []
    assert {schema for _, schema, _ in listed(driver, db_schema_filter="pub%")} == {"public"}
    assert listed(driver, table_name_filter=birds, table_types_filter=["VIEW"]) == []


@pytest.mark.parametrize("depth", ["catalogs", "db_schemas", "tables", "columns"])
def test_every_depth_is_answered(driver, birds, depth):
    catalogs = driver.adbc_get_objects(depth=depth).read_all().to_pylist()
    assert "volary" in [catalog["catalog_name"] for catalog in catalogs]


def test_table_types_are_listed(driver):
    assert {"TABLE", "VIEW"} <= set(driver.adbc_get_table_types())


def test_the_schema_of_a_table_has_the_types_that_its_rows_have(driver, birds):
    schema = driver.adbc_get_table_schema(birds)
    assert schema.names == ["k", "name", "price", "day"]
    assert schema.types == [pa.int64(), pa.string(), pa.float64(), pa.date32()]
    with driver.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {birds}")
        assert cursor.fetch_arrow_table().schema.types == schema.types


def test_the_schema_of_a_view_has_the_types_that_its_rows_have(driver, birds):
    view = f"{birds}_prices"
    with driver.cursor() as cursor:
        cursor.execute(f"CREATE VIEW {view} AS SELECT k AS n FROM {birds} UNION ALL SELECT price FROM {birds}")
        cursor.execute(f"SELECT * FROM {view}")
        rows, listed_schema = cursor.fetch_arrow_table(), driver.adbc_get_table_schema(view)
        cursor.execute(f"DROP VIEW {view}")
    assert rows.schema.types == listed_schema.types == [pa.float64()]


def test_the_schema_of_an_unknown_table_is_not_found(driver):
    with pytest.raises(dbapi.ProgrammingError, match="NOT_FOUND"):
        driver.adbc_get_table_schema("no_such_table")


def test_the_server_says_who_it_is(driver):
    info = driver.adbc_get_info()
    assert info["vendor_name"].lower() == "volary"
    assert info["vendor_version"][0].isdigit()


def test_the_current_catalog_and_schema_are_known(driver):
    assert driver.adbc_current_catalog == "volary"
    assert driver.adbc_current_db_schema == "public"
