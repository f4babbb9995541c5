"""Tests `volary.dbapi`, the DB-API 2.0 module (PEP 249) of the Volary client."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from cluster import LocalCluster
from processes import HeldPort, until

import volary
from volary import dbapi

# Queries without end. Each test uses another number, by which it finds its own statement.
ENDLESS_ROWS = "SELECT n FROM generate_series(1, {}) t(n)"
ENDLESS_COUNT = "SELECT count(*) FROM generate_series(1, {}) t(n) WHERE n % 7 = 3"
NOON = datetime.datetime(2026, 7, 1, 12, 30, 15, 123456)
BERLIN = datetime.timezone(datetime.timedelta(hours=2))


@pytest.fixture
def db(cluster: LocalCluster) -> Iterator[dbapi.Connection]:
    with dbapi.connect(cluster.uri) as db:
        yield db


@pytest.fixture
def cursor(db: dbapi.Connection) -> Iterator[dbapi.Cursor]:
    with db.cursor() as cursor:
        yield cursor


def until_ended(connection: volary.Connection, statement: str) -> str:
    """Returns the outcome of a statement when it no longer runs."""
    runs = f"SELECT 1 FROM system.queries WHERE statement = '{statement}'"
    until(lambda: not connection.sql(runs).rows(), "the statement has ended")
    return connection.sql(f"SELECT outcome FROM system.query_log WHERE statement = '{statement}'").rows()[-1][0]


def until_runs(connection: volary.Connection, statement: str) -> None:
    runs = f"SELECT 1 FROM system.queries WHERE statement = '{statement}' AND state = 'running'"
    until(lambda: connection.sql(runs).rows(), "the statement runs")


# What PEP 249 asks of the module


def test_the_module_says_what_it_can_do():
    assert (dbapi.apilevel, dbapi.paramstyle, dbapi.threadsafety) == ("2.0", "qmark", 1)
    for name in dbapi.__all__:
        assert hasattr(dbapi, name)


def test_the_errors_form_the_hierarchy_of_pep_249(db):
    for error in (dbapi.Warning, dbapi.Error):
        assert issubclass(error, Exception)
    for error in (dbapi.InterfaceError, dbapi.DatabaseError):
        assert issubclass(error, dbapi.Error)
    for name in ("Data", "Operational", "Integrity", "Internal", "Programming", "NotSupported"):
        error = getattr(dbapi, f"{name}Error")
        assert issubclass(error, dbapi.DatabaseError)
        assert getattr(db, f"{name}Error") is error


def test_constructors_make_the_values_of_parameters():
    assert dbapi.Date(2026, 7, 1) == NOON.date()
    assert dbapi.Time(12, 30, 15, 123456) == NOON.time()
    assert dbapi.Timestamp(2026, 7, 1, 12, 30, 15, 123456) == NOON
    assert dbapi.Binary(b"\x00") == b"\x00"
    now = datetime.datetime.now().replace(microsecond=0)
    assert dbapi.TimestampFromTicks(now.timestamp()) == now
    assert dbapi.DateFromTicks(now.timestamp()) == now.date()
    assert dbapi.TimeFromTicks(now.timestamp()) == now.time()


# Values


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (None, None),
        (True, True),
        (1 << 40, 1 << 40),
        (1.5, 1.5),
        (decimal.Decimal("12.345"), decimal.Decimal("12.345")),
        ("k\u0101k\u0101", "k\u0101k\u0101"),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (NOON.date(), NOON.date()),
        (NOON.time(), NOON.time()),
        (NOON, NOON),
        (NOON.replace(tzinfo=datetime.UTC), NOON.replace(tzinfo=datetime.UTC)),
        (NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=BERLIN)),
        (datetime.timedelta(days=1, seconds=2), datetime.timedelta(days=1, seconds=2)),
        # A parameter without a place of its own is a text.
        (uuid.UUID(int=7), str(uuid.UUID(int=7))),
        ([1, None], [1, None]),
        ((1, 2), [1, 2]),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
    ],
)
def test_a_parameter_of_each_type_comes_back(cursor, value, back):
    cursor.execute("SELECT ? AS value", (value,))
    ((found,),) = cursor.fetchall()
    assert found == back
    assert type(found) is type(back)
    if isinstance(back, datetime.datetime):
        assert found.utcoffset() == back.utcoffset()


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("CAST(7 AS SMALLINT)", 7, dbapi.NUMBER),
        ("CAST(7 AS INTEGER UNSIGNED)", 7, dbapi.NUMBER),
        ("CAST(18446744073709551615 AS BIGINT UNSIGNED)", decimal.Decimal(18446744073709551615), dbapi.NUMBER),
        ("CAST(1.5 AS REAL)", 1.5, dbapi.NUMBER),
        ("CAST('1.25' AS DECIMAL(50, 2))", decimal.Decimal("1.25"), dbapi.NUMBER),
        ("'kea'", "kea", dbapi.STRING),
        ("X'00ff'", b"\x00\xff", dbapi.BINARY),
        ("DATE '0001-01-02'", datetime.date(1, 1, 2), dbapi.DATETIME),
        ("TIME '01:02:03.000004'", datetime.time(1, 2, 3, 4), dbapi.DATETIME),
        ("CAST('9999-07-01' AS TIMESTAMP)", datetime.datetime(9999, 7, 1), dbapi.DATETIME),
        ("CAST('2026-07-01' AS TIMESTAMP(9))", pd.Timestamp("2026-07-01"), dbapi.DATETIME),
        ("CAST('2026-07-01' AS TIMESTAMPTZ)", datetime.datetime(2026, 7, 1, tzinfo=BERLIN), dbapi.DATETIME),
        ("TRUE", True, None),
        ("[[1], [2, NULL]]", [[1], [2, None]], None),
        ("named_struct('a', 1, 'b', 'x')", {"a": 1, "b": "x"}, None),
        ("map(['a', 'b'], [1, 2])", [("a", 1), ("b", 2)], None),
        ("INTERVAL '1 month'", pa.MonthDayNano([1, 0, 0]), None),
        ("NULL", None, dbapi.STRING),
    ],
)
def test_a_column_has_a_kind_and_python_values(cursor, expression, value, kind):
    cursor.execute("SET timezone = '+02:00'")
    cursor.execute(f"SELECT {expression} AS x")
    ((name, type_code, *others),) = cursor.description
    assert (name, others) == ("x", [None] * 5)
    kinds = (dbapi.STRING, dbapi.BINARY, dbapi.NUMBER, dbapi.DATETIME)
    assert [known for known in kinds if type_code == known] == ([] if kind is None else [kind])
    assert cursor.fetchone() == (value,)


def test_a_value_without_a_python_value_is_a_data_error_and_arrow_has_it(cursor):
    cursor.execute("SELECT arrow_cast(5000000, 'Date32') AS day")
    with pytest.raises(dbapi.DataError, match="fetch_arrow_table"):
        cursor.fetchone()
    assert cursor.fetch_arrow_table()["day"].cast(pa.int32()).to_pylist() == [5_000_000]


@pytest.mark.parametrize("value", [1 << 70, object()])
def test_a_value_without_a_type_is_named(cursor, value):
    with pytest.raises(dbapi.ProgrammingError, match=r"parameter 2 .* has no Arrow type"):
        cursor.execute("SELECT ?, ?", (1, value))


# Fetching


def test_rows_are_fetched_one_by_one_in_parts_and_all(cursor, birds):
    assert (cursor.arraysize, cursor.rowcount, cursor.rownumber, cursor.description) == (1, -1, None, None)
    assert cursor.execute(f"SELECT k FROM {birds} ORDER BY k") is cursor
    assert (cursor.rowcount, cursor.rownumber) == (-1, 0)
    assert cursor.fetchone() == (1,)
    assert cursor.fetchmany() == [(2,)]
    assert cursor.fetchmany(2) == [(3,), (4,)]
    assert cursor.rownumber == 4
    assert cursor.fetchmany(2) == [(5,)]
    assert (cursor.fetchone(), cursor.fetchmany(2), cursor.fetchall()) == (None, [], [])
    cursor.execute(f"SELECT k FROM {birds} ORDER BY k")
    cursor.arraysize = 3
    assert next(cursor) == (1,)
    assert cursor.fetchmany() == [(2,), (3,), (4,)]
    assert list(cursor) == [(5,)]


def test_many_rows_come_in_their_order_however_they_are_fetched(cursor):
    query = "SELECT n, repeat('x', 100) AS t FROM generate_series(1, 50000) t(n) ORDER BY n"
    expected = list(range(1, 50_001))
    assert [n for n, _ in cursor.execute(query)] == expected
    found = cursor.execute(query).fetchmany(20_001)
    found.append(cursor.fetchone())
    found += cursor.fetchmany(1)
    table = cursor.fetch_arrow_table()
    assert [n for n, _ in found] + table["n"].to_pylist() == expected
    assert (cursor.rownumber, cursor.fetchall()) == (50_000, [])


def test_arrow_pandas_and_polars_get_the_remaining_rows(cursor, birds):
    def asked() -> dbapi.Cursor:
        cursor.execute(f"SELECT k, name FROM {birds} ORDER BY k")
        assert cursor.fetchone() == (1, "kea")
        return cursor

    assert asked().fetch_arrow_table()["k"].to_pylist() == [2, 3, 4, 5]
    assert asked().fetchallarrow().schema.types == [pa.int64(), pa.string()]
    assert asked().fetch_record_batch().read_all()["k"].to_pylist() == [2, 3, 4, 5]
    assert pl.DataFrame(asked().fetch_arrow())["k"].to_list() == [2, 3, 4, 5]
    assert asked().fetch_df()["k"].tolist() == [2, 3, 4, 5]
    assert asked().fetch_polars()["k"].to_list() == [2, 3, 4, 5]
    empty = cursor.execute(f"SELECT k FROM {birds} WHERE k = 77").fetch_arrow_table()
    assert (empty.num_rows, empty.schema.names) == (0, ["k"])


def test_pandas_reads_through_a_connection(db, birds):
    with pytest.warns(UserWarning, match="pandas only supports"):
        frame = pd.read_sql_query(f"SELECT k FROM {birds} WHERE k > ? ORDER BY k", db, params=(3,))
    assert frame["k"].tolist() == [4, 5]


def test_a_first_row_comes_while_the_query_runs_and_closing_the_cursor_ends_it(db, connection):
    query = ENDLESS_ROWS.format(9_000_000_000_000_000_101)
    with db.cursor() as cursor:
        cursor.execute(query)
        assert cursor.fetchone() == (1,)
        assert cursor.fetchmany(10_000)[-1] == (10_001,)
        until_runs(connection, query)
    assert until_ended(connection, query) == "cancelled"


def test_the_next_statement_ends_the_one_before(cursor, connection):
    query = ENDLESS_ROWS.format(9_000_000_000_000_000_102)
    cursor.execute(query)
    cursor.execute("SELECT 1")
    assert until_ended(connection, query) == "cancelled"
    assert cursor.fetchall() == [(1,)]


def test_a_cursor_that_is_dropped_ends_its_query(db, connection):
    query = ENDLESS_ROWS.format(9_000_000_000_000_000_110)
    assert db.execute(query).fetchone() == (1,)
    assert until_ended(connection, query) == "cancelled"


def test_a_query_ends_with_its_reader_and_with_its_connection(cluster, connection):
    of_reader, of_connection = (ENDLESS_ROWS.format(9_000_000_000_000_000_103 + number) for number in range(2))
    with dbapi.connect(cluster.uri) as db:
        reader = db.execute(of_reader).fetch_record_batch()
        assert reader.read_next_batch().num_rows > 0
        other = db.execute(of_connection)
        until_runs(connection, of_connection)
    for query in (of_reader, of_connection):
        assert until_ended(connection, query) == "cancelled"
    with pytest.raises(dbapi.ProgrammingError, match="closed"):
        other.fetchone()


def test_cursors_of_one_connection_have_rows_of_their_own(db):
    one, other = (db.execute(f"SELECT n FROM generate_series({first}, 100000) t(n)") for first in (1, 11))
    assert [one.fetchone(), other.fetchone(), one.fetchone(), other.fetchone()] == [(1,), (11,), (2,), (12,)]


def test_a_header_of_the_connection_asks_for_rows_from_the_workers(cluster, birds):
    with dbapi.connect(cluster.uri, headers={"volary-direct-results": "on"}) as db:
        assert sorted(db.execute(f"SELECT k FROM {birds}").fetchall()) == [(1,), (2,), (3,), (4,), (5,)]


# Cancelling and timeouts


def test_another_thread_cancels_a_statement_before_and_among_its_rows(db, connection, empty_table, background):
    insert = f"INSERT INTO {empty_table} (k) {ENDLESS_COUNT.format(9_000_000_000_000_000_105)}"
    query = ENDLESS_ROWS.format(9_000_000_000_000_000_106)
    for statement in (insert, query):
        with db.cursor() as cursor:
            running = background(lambda cursor=cursor, sql=statement: cursor.execute(sql).fetchall())
            until_runs(connection, statement)
            cursor.adbc_cancel()
            with pytest.raises(dbapi.OperationalError, match=r"^CANCELLED: "):
                running.result()
        assert until_ended(connection, statement) == "cancelled"
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


def test_what_was_cancelled_does_not_look_like_its_end(db):
    cursor = db.execute(ENDLESS_ROWS.format(9_000_000_000_000_000_107))
    cursor.adbc_cancel()
    with pytest.raises(dbapi.OperationalError, match=r"^CANCELLED: "):
        cursor.fetchall()
    with pytest.raises(dbapi.ProgrammingError, match="run the statement again"):
        cursor.fetchone()
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]


def test_a_timeout_ends_the_query(cluster):
    with (
        dbapi.connect(cluster.uri, timeout=1) as db,
        pytest.raises(dbapi.OperationalError, match=r"^DEADLINE_EXCEEDED: "),
    ):
        db.execute(ENDLESS_COUNT.format(9_000_000_000_000_000_108)).fetchall()


# Statements without rows


def test_a_statement_without_rows_has_a_count_and_nothing_to_fetch(cursor, empty_table):
    for statement, count in (
        (f"INSERT INTO {empty_table} (k) VALUES (1), (2)", 2),
        (f"CREATE TABLE {empty_table}_copy AS SELECT * FROM {empty_table}", 2),
        (f"DROP TABLE {empty_table}_copy", 0),
        ("SET timezone = 'UTC'", 0),
    ):
        cursor.execute(statement)
        assert (cursor.rowcount, cursor.description, cursor.rownumber) == (count, None, None), statement
        for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall, cursor.fetch_arrow_table, cursor.__next__):
            with pytest.raises(dbapi.ProgrammingError, match="no rows to fetch"):
                fetch()
    cursor.execute(f"SELECT count(*) FROM {empty_table}")
    assert cursor.fetchone() == (2,)


def test_a_cursor_has_the_id_by_which_the_log_lists_its_statement(cursor, connection, empty_table):
    assert cursor.query_id is None
    for statement in (f"SELECT k FROM {empty_table}", f"INSERT INTO {empty_table} (k) VALUES (7)"):
        query_id = cursor.execute(statement).query_id
        if cursor.description is not None:
            cursor.fetchall()
        log = f"SELECT statement FROM system.query_log WHERE query_id = '{query_id}'"
        until(lambda log=log: connection.sql(log).rows(), "the statement has ended")
        assert connection.sql(log).rows() == [(statement,)]
    cursor.adbc_ingest(empty_table, pa.table({"k": [8]}), "append")
    assert cursor.query_id is None


def test_executemany_is_one_write_of_all_rows(cursor, connection, empty_table):
    insert = f"INSERT INTO {empty_table} VALUES (?, ?, ?, ?)"
    rows = [(n, None if n % 3 else f"bird {n}", n / 2, NOON.date()) for n in range(20_000)]
    assert cursor.executemany(insert, rows) is None
    assert (cursor.rowcount, cursor.description) == (20_000, None)
    assert connection.sql(f"SELECT * FROM {empty_table} ORDER BY k").rows() == rows
    log = "SELECT rows FROM system.query_log WHERE statement = ?"
    ((count,),) = until(lambda: connection.sql(log, [insert]).rows(), "the statement is in the log")
    assert count == 20_000


@pytest.mark.parametrize("wrong", [None, "kea"])
def test_executemany_keeps_no_row_if_one_is_wrong(cursor, connection, empty_table, wrong):
    with pytest.raises(dbapi.ProgrammingError) as caught:
        cursor.executemany(f"INSERT INTO {empty_table} (k) VALUES (?)", [(str(n),) for n in range(10)] + [(wrong,)])
    assert cursor.rowcount == -1
    # A NULL breaks a constraint, and a text that is no number is wrong data.
    assert isinstance(caught.value, dbapi.IntegrityError if wrong is None else dbapi.DataError)
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


def test_executemany_takes_rows_of_any_kind(cursor, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)"
    table = pa.table({"a": [1, 2], "b": ["kea", None]})
    given = [
        [(3, "tui"), [4, None]],
        ((n, uuid.UUID(int=n)) for n in (5, 6)),
        table,
        table.to_batches()[0],
        table.to_reader(),
        table.to_pandas(),
        pl.from_arrow(table),
    ]
    for rows in given:
        cursor.executemany(insert, rows)
        assert cursor.rowcount == 2
    cursor.execute(insert, (7, "one row"))
    assert cursor.rowcount == 1
    cursor.execute(insert, table.slice(0, 1))
    assert cursor.rowcount == 1
    for nothing in ([], table.slice(2), iter(())):
        cursor.executemany(insert, nothing)
        assert cursor.rowcount == 0
    cursor.executemany(f"INSERT INTO {empty_table} (k) VALUES (8)", None)
    assert connection.sql(f"SELECT count(*), count(DISTINCT k) FROM {empty_table}").rows() == [(17, 8)]
    found = connection.sql(f"SELECT name FROM {empty_table} WHERE k IN (5, 6) ORDER BY k").rows()
    assert found == [(str(uuid.UUID(int=n)),) for n in (5, 6)]


def test_whole_tables_are_ingested_in_all_modes(cursor, connection, name):
    table = pa.table({"k": [1, 2], "name": ["kea", None]})
    with pytest.raises(dbapi.ProgrammingError, match=r"^NOT_FOUND: "):
        cursor.adbc_ingest(name, table, mode="append")
    assert cursor.adbc_ingest(name, table) == 2
    assert cursor.rowcount == 2
    with pytest.raises(dbapi.ProgrammingError, match=r"^ALREADY_EXISTS: "):
        cursor.adbc_ingest(name, table, mode="create")
    for data in (table.to_batches()[0], table.to_batches(), table.to_reader(), ds.dataset(table), table.to_pandas()):
        assert cursor.adbc_ingest(name, data, mode="append") == 2
    assert cursor.adbc_ingest(name, pl.from_arrow(table), "create_append") == 2
    count = f"SELECT count(*) FROM {name}"
    assert connection.sql(count).rows() == [(14,)]
    assert cursor.adbc_ingest(name, table, "replace", catalog_name="volary", db_schema_name="public") == 2
    assert connection.sql(count).rows() == [(2,)]
    for wrong, error in (
        ({"catalog_name": "other"}, dbapi.ProgrammingError),
        ({"db_schema_name": "other"}, dbapi.ProgrammingError),
        ({"temporary": True}, dbapi.ProgrammingError),
    ):
        with pytest.raises(error):
            cursor.adbc_ingest(name, table, "append", **wrong)
    with pytest.raises(ValueError, match="mode"):
        cursor.adbc_ingest(name, table, "upsert")
    assert connection.sql(count).rows() == [(2,)]


def test_a_write_with_a_batch_id_is_applied_once(db, cursor, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)"
    table = pa.table({"k": [1, 2], "name": ["kea", None]})
    writes = [
        ("text", lambda batch_id: cursor.execute(f"INSERT INTO {empty_table} (k) VALUES (1), (2)", batch_id=batch_id)),
        ("Arrow", lambda batch_id: cursor.execute(insert, table, batch_id=batch_id)),
        ("many", lambda batch_id: cursor.executemany(insert, [(1, "kea"), (2, None)], batch_id=batch_id)),
        ("many of Arrow", lambda batch_id: cursor.executemany(insert, table, batch_id=batch_id)),
        ("ingest", lambda batch_id: cursor.adbc_ingest(empty_table, table, "append", batch_id=batch_id)),
    ]
    for batch_id, write in writes:
        assert db.batch_status(empty_table, batch_id).outcome == "unknown"
        for _ in range(2):
            write(batch_id)
            assert cursor.rowcount == 2
        assert db.batch_status(empty_table, batch_id, schema="public") == volary.BatchStatus(1, 1, "committed", 2)
    for _ in range(2):
        assert db.execute(insert, (3, "tui"), batch_id="one").rowcount == 1
    # Without an id, the same statement is another write.
    cursor.execute(insert, (3, "tui"))
    found = connection.sql(f"SELECT k, count(*) FROM {empty_table} GROUP BY k ORDER BY k").rows()
    assert found == [(1, len(writes)), (2, len(writes)), (3, 2)]


def test_a_batch_id_for_another_write_or_for_none_is_refused(db, cursor, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k) VALUES (?)"
    cursor.execute(insert, (1,), batch_id="first")
    with pytest.raises(dbapi.ProgrammingError, match=r"^ALREADY_EXISTS: .*batch id first"):
        cursor.execute(insert, (2,), batch_id="first")
    with pytest.raises(dbapi.ProgrammingError, match=r"^INVALID_ARGUMENT: .*volary-batch-id"):
        cursor.execute(f"SELECT k FROM {empty_table}", batch_id="second")
    with pytest.raises(dbapi.ProgrammingError, match="once for each row of parameters"):
        cursor.executemany(
            f"INSERT INTO {empty_table} (k) SELECT k + ? FROM {empty_table}", [(1,), (2,)], batch_id="second"
        )
    with pytest.raises(dbapi.ProgrammingError, match="volary-batch-id"):
        cursor.adbc_ingest(empty_table, pa.table({"k": [2]}), "replace", batch_id="second")
    for wrong in ("", "x" * 65, "t\u016b\u012b", uuid.UUID(int=7)):
        with pytest.raises(dbapi.ProgrammingError, match="batch_id must be"):
            cursor.execute(insert, (2,), batch_id=wrong)
    with pytest.raises(dbapi.ProgrammingError, match=r"^NOT_FOUND: .*no_birds"):
        db.batch_status("no_birds", "first")
    assert connection.sql(f"SELECT k FROM {empty_table}").rows() == [(1,)]


def test_a_saved_query_is_called_as_a_procedure(cursor, connection, birds):
    connection.sql(f"CREATE QUERY of_kind(kind VARCHAR) AS SELECT k FROM {birds} WHERE name = $kind ORDER BY k")
    try:
        assert cursor.callproc("of_kind", ("kea",)) == ("kea",)
        assert cursor.fetchall() == [(1,), (5,)]
    finally:
        connection.sql("DROP QUERY of_kind")


def test_a_table_has_a_schema(db, empty_table):
    schema = db.adbc_get_table_schema(empty_table)
    assert [(field.name, field.nullable) for field in schema][:2] == [("k", False), ("name", True)]
    assert "query_id" in db.adbc_get_table_schema("queries", db_schema_filter="system").names
    # The name is not a pattern.
    for other in (empty_table.replace("_", "%"), "_" + empty_table[1:]):
        with pytest.raises(dbapi.ProgrammingError, match=r"^NOT_FOUND: "):
            db.adbc_get_table_schema(other)


# Errors


@pytest.mark.parametrize(
    ("statement", "kinds", "code", "sqlstate"),
    [
        ("SELEC 1", [dbapi.ProgrammingError], "INVALID_ARGUMENT", "42601"),
        ("SELECT * FROM no_such_table", [dbapi.ProgrammingError], "NOT_FOUND", "42P01"),
        ("CREATE TABLE {birds} (k BIGINT)", [dbapi.ProgrammingError], "ALREADY_EXISTS", "42P07"),
        ("COPY {birds} FROM '/etc/passwd'", [dbapi.ProgrammingError], "PERMISSION_DENIED", None),
        ("SELECT ?", [dbapi.ProgrammingError], "INVALID_ARGUMENT", "07001"),
        ("SELECT 1 / (k - 3) FROM {birds}", [dbapi.ProgrammingError, dbapi.DataError], "INVALID_ARGUMENT", "22012"),
        (
            "INSERT INTO {birds} (k) VALUES (NULL)",
            [dbapi.ProgrammingError, dbapi.IntegrityError],
            "INVALID_ARGUMENT",
            "23502",
        ),
        (
            "DELETE FROM {birds}",
            [dbapi.ProgrammingError, dbapi.NotSupportedError],
            "INVALID_ARGUMENT",
            "0A000",
        ),
        (
            "SELECT repeat('x', 2000000000) AS x",
            [dbapi.InternalError, dbapi.OperationalError],
            "RESOURCE_EXHAUSTED",
            "53200",
        ),
    ],
)
def test_an_error_has_its_classes_the_servers_code_and_an_sqlstate(cursor, birds, statement, kinds, code, sqlstate):
    with pytest.raises(dbapi.DatabaseError) as caught:
        cursor.execute(statement.format(birds=birds)).fetchall()
    error = caught.value
    assert [kind for kind in (dbapi.Error, *kinds) if not isinstance(error, kind)] == []
    assert (str(error).split(":")[0], error.code) == (code, code)
    assert isinstance(error.__cause__, volary.Error)
    assert error.sqlstate == error.__cause__.sqlstate
    assert sqlstate is None or error.sqlstate == sqlstate
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]


def test_a_gateway_that_is_not_there_is_an_operational_error():
    with HeldPort() as port, pytest.raises(dbapi.OperationalError, match=r"^UNAVAILABLE: no gateway answers at "):
        dbapi.connect(f"grpc://{port.address}")


@pytest.mark.parametrize("values", [None, (), (1,), (1, 2, 3)])
def test_a_wrong_number_of_parameters_is_refused(cursor, values):
    with pytest.raises(dbapi.ProgrammingError, match="the statement has 2 parameters, but"):
        cursor.execute("SELECT ? AS a, ? AS b", values)


@pytest.mark.parametrize("values", ["ab", b"ab", 7, {"a": 1}])
def test_parameters_that_are_no_sequence_are_refused(cursor, values):
    with pytest.raises(dbapi.ProgrammingError, match="one value for each"):
        cursor.execute("SELECT ?", values)
    with pytest.raises(dbapi.ProgrammingError, match="one value for each"):
        cursor.executemany("SELECT ?", [values])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1, "kea"), (2,)], "row 2 has 1 values, and row 1 has 2"),
        ([(1, "kea"), (2, 3)], "the values of parameter 2 have no common Arrow type"),
        ([(), ()], "no values"),
        ([(1,), (2,)], "the statement has 2 parameters, but 1 value"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(cursor, connection, empty_table, rows, words):
    with pytest.raises(dbapi.ProgrammingError, match=words):
        cursor.executemany(f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)", rows)
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


@pytest.mark.parametrize("rows", [None, [(1,)], [(1,), (2,)]])
def test_executemany_takes_no_query(cursor, connection, rows):
    query = f"SELECT {'1' if rows is None else '?'} AS n, n FROM generate_series(1, 9000000000000000109) t(n)"
    with pytest.raises(dbapi.ProgrammingError):
        cursor.executemany(query, rows)
    assert cursor.description is None
    if rows is None:
        assert until_ended(connection, query) == "cancelled"


def test_an_error_of_the_rows_is_passed_on_and_nothing_is_written(cursor, connection, empty_table):
    def batches():
        yield pa.record_batch({"k": [1]})
        raise ZeroDivisionError("of the caller")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches())
    with pytest.raises(ZeroDivisionError, match="of the caller"):
        cursor.executemany(f"INSERT INTO {empty_table} (k) VALUES (?)", reader)
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


def test_what_is_closed_or_was_not_executed_is_a_programming_error(cluster):
    db = dbapi.connect(cluster.uri)
    cursor, other = db.cursor(), db.execute("SELECT 1")
    with pytest.raises(dbapi.ProgrammingError, match="no rows to fetch"):
        cursor.fetchone()
    with pytest.raises(dbapi.ProgrammingError, match="a statement is text"):
        cursor.execute(b"SELECT 1")
    with pytest.raises(dbapi.NotSupportedError):
        cursor.nextset()
    cursor.setinputsizes([10])
    cursor.setoutputsize(10)
    for _ in range(2):
        cursor.close()
    for use in (
        lambda: cursor.execute("SELECT 1"),
        lambda: cursor.executemany("SELECT 1", None),
        lambda: cursor.adbc_ingest("t", pa.table({"k": [1]})),
        cursor.fetchone,
        cursor.fetchall,
    ):
        with pytest.raises(dbapi.ProgrammingError, match="the cursor is closed"):
            use()
    for _ in range(2):
        db.close()
    for use in (
        db.cursor,
        db.commit,
        db.rollback,
        lambda: db.batch_status("t", "first"),
        other.fetchone,
        lambda: other.execute("SELECT 1"),
    ):
        with pytest.raises(dbapi.ProgrammingError, match="the connection is closed"):
            use()
    other.close()
