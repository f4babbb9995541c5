"""Tests the Volary client on a real cluster: rows in all forms, parameters, an exception for each kind of mistake."""

import datetime
import decimal
import gc
import uuid

import pyarrow as pa
import pytest

import volary

BIRDS = [
    (1, "kea", 1.5, datetime.date(2026, 1, 1)),
    (2, "kaka", 2.5, datetime.date(2026, 1, 2)),
    (3, None, 3.5, None),
    (4, "tui", None, datetime.date(2026, 1, 4)),
    (5, "kea", 5.5, datetime.date(2026, 1, 5)),
]
ENDLESS = "SELECT count(*) FROM generate_series(1, 10000000) a CROSS JOIN generate_series(1, 10000000) b"


def test_a_query_comes_as_arrow_pandas_polars_and_rows(connection, birds):
    result = connection.sql(f"SELECT * FROM {birds} ORDER BY k")
    assert result.schema.names == ["k", "name", "price", "day"]
    assert result.schema.types == [pa.int64(), pa.string(), pa.float64(), pa.date32()]
    assert result.rows() == BIRDS
    assert result.to_arrow().schema == result.schema
    assert result.to_pandas()["name"].isna().tolist() == [False, False, True, False, False]
    assert result.to_polars()["price"].to_list() == [1.5, 2.5, 3.5, None, 5.5]


def test_a_large_result_streams_in_batches_of_bounded_size(connection):
    with connection.sql("SELECT value, value * 2 AS twice FROM generate_series(1, 3000000) t(value)") as result:
        sizes = [(batch.num_rows, batch.nbytes) for batch in result.batches()]
    assert sum(rows for rows, _ in sizes) == 3_000_000
    assert len(sizes) > 3
    assert max(size for _, size in sizes) < 16 << 20


def test_a_query_that_is_left_early_leaves_the_connection_usable(connection):
    for _ in connection.sql("SELECT value FROM generate_series(1, 100000000) t(value)").batches():
        break
    gc.collect()
    assert connection.sql("SELECT 1").rows() == [(1,)]


def test_a_query_without_rows_has_its_columns(connection, birds):
    result = connection.sql(f"SELECT k, name FROM {birds} WHERE k > 5 AND k < 5")
    assert result.rows() == []
    assert result.schema.names == ["k", "name"]


def test_a_trailing_semicolon_and_a_comment_are_allowed(connection):
    assert connection.sql("SELECT 1 -- one\n;").rows() == [(1,)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("BIGINT", 7),
        ("INT", 7),
        ("SMALLINT", 7),
        ("DOUBLE", 2.5),
        ("VARCHAR", "kākā"),
        ("BOOLEAN", True),
        ("DATE", datetime.date(2026, 11, 21)),
        ("TIMESTAMP", datetime.datetime(2026, 11, 21, 1, 2, 3, 4)),
        ("DECIMAL(10, 2)", decimal.Decimal("12.30")),
        ("BYTEA", b"\x00\xff"),
    ],
)
def test_a_parameter_comes_back_as_it_was_sent(connection, expression, value):
    assert connection.sql(f"SELECT CAST(? AS {expression}) AS value", [value]).rows() == [(value,)]
    assert connection.sql(f"SELECT CAST(? AS {expression}) AS value", [None]).rows() == [(None,)]


def test_parameters_are_compared_in_the_columns_type(connection, birds):
    query = f"SELECT k FROM {birds} WHERE k = ? AND price > ?"
    assert connection.sql(query, [2, 1]).rows() == [(2,)]
    int32 = pa.record_batch([pa.array([2], pa.int32()), pa.array([1.0], pa.float32())], names=["x", "y"])
    assert connection.sql(query, int32).rows() == [(2,)]
    assert connection.sql(query, [2, None]).rows() == []
    assert connection.sql(f"SELECT k FROM {birds} WHERE day = ?", [datetime.date(2026, 1, 4)]).rows() == [(4,)]
    assert connection.sql(f"SELECT count(*) FROM {birds} WHERE name = ?", [uuid.UUID(int=1)]).rows() == [(0,)]


def test_an_insert_says_how_many_rows_and_runs_once(connection, empty_table):
    assert connection.sql(f"INSERT INTO {empty_table} VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL)").rows_affected == 2
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(2,)]


def test_an_insert_with_parameters_takes_one_row_or_many(connection, empty_table):
    insert = f"INSERT INTO {empty_table} VALUES (?, ?, ?, ?)"
    assert connection.sql(insert, [1, "kea", None, None]).rows_affected == 1
    many = pa.table({"k": [2, 3], "name": ["kaka", None], "price": [1.0, 2.0], "day": [None, None]})
    assert connection.sql(insert, many).rows_affected == 2
    rows = connection.sql(f"SELECT k, name FROM {empty_table} ORDER BY k").rows()
    assert rows == [(1, "kea"), (2, "kaka"), (3, None)]


def test_ddl_affects_no_rows(connection):
    assert connection.sql("CREATE VIEW one AS SELECT 1 AS n").rows_affected == 0
    assert connection.sql("SELECT n FROM one").rows() == [(1,)]
    assert "one" in connection.tables()
    connection.sql("DROP VIEW one")
    assert "one" not in connection.tables()


def test_tables_are_listed_by_name(connection, birds):
    tables = connection.tables()
    assert birds in tables
    assert tables == sorted(tables)


def test_the_server_says_its_version(connection):
    assert connection.server_version[0].isdigit()


def test_bad_sql_is_an_invalid_argument(connection):
    with pytest.raises(volary.InvalidArgumentError, match="SELEC"):
        connection.sql("SELEC 1")


def test_an_unknown_table_is_not_found_and_the_nearest_name_is_said(connection, birds):
    with pytest.raises(volary.NotFoundError) as caught:
        connection.sql(f"SELECT * FROM {birds[:-3]}_{birds[-1]}")
    assert birds in caught.value.message


def test_an_unknown_column_is_not_found_and_the_nearest_name_is_said(connection, birds):
    with pytest.raises(volary.NotFoundError) as caught:
        connection.sql(f"SELECT pricee FROM {birds}")
    assert "pricee" in caught.value.message
    assert "price" in caught.value.message.replace("pricee", "")


def test_a_duplicate_table_already_exists(connection, birds):
    with pytest.raises(volary.AlreadyExistsError, match=birds):
        connection.sql(f"CREATE TABLE {birds} (k BIGINT) WITH (shard_key = 'k')")


def test_a_shard_key_that_is_no_column_is_named(connection):
    with pytest.raises(volary.NotFoundError, match="kk"):
        connection.sql("CREATE TABLE keyless (k BIGINT) WITH (shard_key = 'kk')")


def test_a_file_outside_the_allowed_roots_is_denied(connection, birds):
    with pytest.raises(volary.PermissionDeniedError, match="/etc/passwd"):
        connection.sql(f"COPY {birds} FROM '/etc/passwd'")


@pytest.mark.parametrize("parameters", [None, [], [1, 2]])
def test_a_wrong_number_of_parameters_is_an_invalid_argument(connection, birds, parameters):
    with pytest.raises(volary.InvalidArgumentError, match="parameter"):
        connection.sql(f"SELECT * FROM {birds} WHERE k = ?", parameters).rows()


def test_an_error_while_rows_are_computed_is_the_users(connection, birds):
    with pytest.raises(volary.InvalidArgumentError, match=r"[Dd]ivi"):
        connection.sql(f"SELECT 1 / (k - 3) AS n FROM {birds}").rows()
    with pytest.raises(volary.InvalidArgumentError, match=r"Cannot cast string '(kea|kaka|tui)'"):
        connection.sql(f"SELECT CAST(name AS INT) AS n FROM {birds}").rows()


def test_a_timeout_ends_the_query_with_a_typed_error(connection):
    with pytest.raises(volary.DeadlineExceededError):
        connection.sql(ENDLESS, timeout=1).rows()
    assert connection.sql("SELECT 1").rows() == [(1,)]
