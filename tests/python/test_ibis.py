"""Tests the Ibis backend: connecting, metadata, writing, results and errors.

`tests/ibis` compares many expressions with DuckDB, and runs Ibis' own tests.
"""

from __future__ import annotations

import datetime
import gc
import itertools
import threading
from decimal import Decimal

import ibis
import ibis.common.exceptions as com
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import pyarrow as pa
import pytest
from ibis import _
from interrupts import handled_by, own_handler, pressed_when
from processes import until

import volary
from volary.ibis import Backend

# Ibis asks pandas 3 for an option that pandas 4 will not have.
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")

_numbers = itertools.count()

BIRDS = pa.table(
    {
        "k": pa.array(range(10), pa.int64()),
        "name": ["kea", "kaka", None, "tui", "weka"] * 2,
        "grams": [900.5, 500.0, 1.5, None, 700.0] * 2,
    }
)


@pytest.fixture
def backend(cluster):
    backend = ibis.volary.connect(cluster.uri)
    yield backend
    backend.disconnect()


@pytest.fixture
def birds(backend):
    table = backend.create_table(new_name(), BIRDS, shard_key="k", shards=5)
    yield table
    backend.drop_table(table.get_name(), force=True)


def new_name() -> str:
    return f"birds_of_ibis_{next(_numbers)}"


def sorted_rows(table: pa.Table) -> list[tuple]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


# Connecting.


def test_ibis_connects_to_a_url(cluster):
    backend = ibis.connect(f"{cluster.uri.replace('grpc://', 'volary://')}/public?timeout=60")
    assert backend.name == "volary"
    assert backend.version == volary.connect(cluster.uri).server_version
    assert (backend.current_catalog, backend.current_database) == ("volary", "public")
    backend.disconnect()
    with pytest.raises(RuntimeError, match="the connection is closed"):
        backend.list_tables()


def test_a_url_has_credentials_and_options():
    from urllib.parse import urlparse

    from volary.ibis._url import arguments_of

    url = urlparse("volary://k%40a:se%2Fcret@[::1]:7/staging")
    assert arguments_of(url, {"tls": "true", "tls_ca": "ca.pem", "timeout": "5"}) == {
        "uri": "grpc+tls://[::1]:7",
        "username": "k@a",
        "password": "se/cret",
        "database": "staging",
        "timeout": 5.0,
        "tls_ca": "ca.pem",
    }
    assert arguments_of(urlparse("volary://"), {}) == {"uri": "grpc://127.0.0.1:7100"}
    with pytest.raises(volary.InvalidArgumentError, match="tls must be true or false"):
        arguments_of(url, {"tls": "perhaps"})


def test_an_unknown_database_is_an_error_of_connect(cluster):
    with pytest.raises(volary.NotFoundError, match="no_such_schema"):
        ibis.volary.connect(cluster.uri, database="no_such_schema")


def test_a_backend_takes_an_open_connection(cluster):
    connection = volary.connect(cluster.uri)
    backend = Backend.from_connection(connection)
    assert backend.sql("SELECT 1 AS one").to_pyarrow().to_pylist() == [{"one": 1}]
    backend.disconnect()
    with pytest.raises(RuntimeError, match="closed"):
        connection.sql("SELECT 1")


def test_a_backend_that_connects_again_sends_tables_in_memory_again(cluster):
    backend = ibis.volary.connect(cluster.uri)
    large = ibis.memtable(pa.table({"k": range(2000)}))
    assert backend.to_pyarrow(large.count()).as_py() == 2000
    backend.disconnect()
    backend.reconnect()
    assert backend.to_pyarrow(large.count()).as_py() == 2000
    backend.disconnect()


# Metadata.


def test_schemas_are_databases(backend):
    place = f"{new_name()}_s"
    backend.create_database(place)
    backend.create_database(place, force=True)
    assert {place, "public", "system"} <= set(backend.list_databases())
    assert backend.list_databases(like=f"^{place}$") == [place]
    table = backend.create_table("t", BIRDS, database=place)
    assert backend.list_tables(database=place) == backend.list_tables(database=("volary", place)) == ["t"]
    assert table.count().to_pyarrow().as_py() == 10
    assert backend.table("t", database=f"volary.{place}").schema() == table.schema()
    with pytest.raises(com.TableNotFound):
        backend.table("t_is_elsewhere", database=place)
    with pytest.raises(com.IbisInputError, match="the only one is volary"):
        backend.list_tables(database=("other", place))
    backend.drop_database(place, cascade=True)
    backend.drop_database(place, force=True)
    assert place not in backend.list_databases()


def test_system_tables_can_be_read(backend):
    nodes = backend.table("nodes", database="system")
    assert nodes.count().to_pyarrow().as_py() == 4


def test_the_backend_knows_its_operations():
    assert ibis.volary.has_operation(ops.ApproxQuantile)
    assert not ibis.volary.has_operation(ops.ArrayMap)
    assert not ibis.volary.has_operation(ops.Mode)


# Writing.


def test_a_table_has_the_layout_that_is_asked_for(backend, birds):
    layout = "SELECT shard_key, shards FROM system.tables WHERE name = ?"
    assert backend.raw_sql(layout, parameters=[birds.get_name()]).rows() == [("k", 5)]
    copy = backend.create_table(new_name(), birds.filter(_.k < 3), shard_key="name", shards=2, sort_key=["k"])
    assert backend.raw_sql(layout, parameters=[copy.get_name()]).rows() == [("name", 2)]
    everywhere = backend.create_table(new_name(), birds, reference=True)
    kind = "SELECT kind FROM system.tables WHERE name = ?"
    assert backend.raw_sql(kind, parameters=[everywhere.get_name()]).rows() == [("reference",)]
    for table in (copy, everywhere):
        backend.drop_table(table.get_name())


def test_tables_are_created_from_what_ibis_takes(backend, birds):
    import pandas
    import polars

    name = new_name()
    rows = BIRDS.select(["k", "name"])
    for given in (
        rows,
        rows.to_batches()[0],
        rows.to_reader(),
        polars.from_arrow(rows),
        polars.from_arrow(rows).lazy(),
        pandas.DataFrame({"k": range(10), "name": rows["name"].to_pylist()}),
        ibis.memtable(rows),
        birds[["k", "name"]],
        {"k": range(10), "name": rows["name"].to_pylist()},
    ):
        table = backend.create_table(name, given, overwrite=True)
        assert sorted_rows(table.to_pyarrow()) == sorted_rows(rows), type(given)
    with pytest.raises(volary.AlreadyExistsError):
        backend.create_table(name, rows)
    backend.truncate_table(name)
    assert backend.table(name).count().to_pyarrow().as_py() == 0
    backend.drop_table(name)
    with pytest.raises(volary.NotFoundError):
        backend.drop_table(name)
    backend.drop_table(name, force=True)


def test_a_schema_decides_the_types(backend, birds):
    schema = {"k": "int32", "name": "string", "grams": "float32"}
    name = new_name()
    for rows in (BIRDS, BIRDS.to_reader(), birds):
        table = backend.create_table(name, rows, schema=schema, overwrite=True)
        assert table.schema() == ibis.schema(schema)
        assert table.grams.sum().to_pyarrow().as_py() == 4204.0
    empty = backend.create_table(name, schema={"a": "!int64", "b": "decimal(50, 3)"}, overwrite=True)
    assert empty.schema() == ibis.schema({"a": "!int64", "b": "decimal(50, 3)"})
    assert empty.count().to_pyarrow().as_py() == 0
    backend.drop_table(name)


def test_rows_are_appended(backend, birds):
    name = birds.get_name()
    backend.insert(name, pa.table({"k": [10], "name": ["moa"]}))
    backend.insert(name, pa.table({"a": [11], "b": ["emu"], "c": [1.0]}))
    backend.insert(name, birds.filter(_.k == 10).mutate(k=_.k + 2))
    backend.insert(name, [{"k": 13, "name": "owl", "grams": 2.0}])
    assert sorted_rows(birds.filter(_.k >= 10).to_pyarrow()) == [
        (10, "moa", None),
        (11, "emu", 1.0),
        (12, "moa", None),
        (13, "owl", 2.0),
    ]
    with pytest.raises(com.IbisInputError, match="the rows have the columns a, but the table"):
        backend.insert(name, pa.table({"a": [1]}))


def test_inserted_expressions_keep_their_operators_and_formats(backend, birds):
    day = ibis.literal(datetime.date(2026, 2, 3))
    backend.insert(birds.get_name(), birds.filter(_.k == 3).mutate(k=_.k ^ 99, name=day.strftime("%d.%m.%Y")))
    assert sorted_rows(birds.filter(_.k >= 10).to_pyarrow()) == [(96, "03.02.2026", None)]


def test_views_are_created_and_dropped(backend, birds):
    name = new_name()
    small = ibis.memtable(pa.table({"name": ["kea"]}))
    view = backend.create_view(name, birds.semi_join(small, "name"))
    assert view.k.sum().to_pyarrow().as_py() == 5
    view = backend.create_view(name, birds.filter(_.k > 7), overwrite=True)
    assert view.count().to_pyarrow().as_py() == 2
    with pytest.raises(com.UnsupportedOperationError, match="a view cannot read a large table in memory"):
        backend.create_view(name, ibis.memtable(pa.table({"a": range(1000)})), overwrite=True)
    backend.drop_view(name)
    backend.drop_view(name, force=True)
    assert name not in backend.list_tables()


def test_files_are_sent(backend, tmp_path):
    import pyarrow.csv
    import pyarrow.parquet

    pyarrow.parquet.write_table(BIRDS, tmp_path / "birds.parquet")
    pyarrow.csv.write_csv(BIRDS, tmp_path / "birds.csv")
    (tmp_path / "birds.json").write_text('{"k": 1, "name": "kea"}\n{"k": 2, "name": "tui"}\n')
    parquet = backend.read_parquet(tmp_path / "birds.parquet", shard_key="k")
    csv = backend.read_csv(tmp_path / "birds.csv", table_name=new_name())
    json = backend.read_json(tmp_path / "birds.json")
    assert sorted_rows(parquet.to_pyarrow()) == sorted_rows(BIRDS)
    assert csv.grams.sum().to_pyarrow().as_py() == 4204.0
    assert sorted_rows(json.to_pyarrow()) == [(1, "kea"), (2, "tui")]
    for table in (parquet, csv, json):
        backend.drop_table(table.get_name())


# Results.


def test_results_are_what_ibis_returns(backend, birds):
    import pandas
    import polars

    kea = birds.filter(_.name == "kea").order_by("k")
    assert kea.to_pyarrow().to_pylist() == [{"k": k, "name": "kea", "grams": 900.5} for k in (0, 5)]
    assert kea.k.to_pyarrow().to_pylist() == [0, 5]
    assert kea.k.sum().to_pyarrow() == pa.scalar(5, pa.int64())
    assert isinstance(kea.to_polars(), polars.DataFrame)
    frame = kea.execute()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.k.tolist() == [0, 5]
    assert kea.k.max().execute() == 5
    assert sum(len(part) for part in birds.to_pandas_batches(chunk_size=3)) == 10
    assert birds.limit(3).count().execute() == birds.to_pyarrow(limit=3).num_rows == 3


def test_batches_come_as_they_arrive(backend):
    numbers = backend.sql("SELECT value AS n FROM range(100000)")
    with numbers.to_pyarrow_batches(chunk_size=1000) as batches:
        rows = [batch.num_rows for batch in batches]
    assert sum(rows) == 100_000
    assert max(rows) <= 1000


def test_a_reader_that_is_dropped_ends_its_query(backend, endless_part):
    reader = backend.sql(endless_part).to_pyarrow_batches()
    del reader
    gc.collect()
    running = "SELECT count(*) FROM system.queries WHERE statement LIKE '%endless%' AND query_tag IS NULL"
    until(lambda: backend.raw_sql(f"{running} AND statement NOT LIKE '%system.%'").rows() == [(0,)], "the query ends")


def test_ctrl_c_ends_a_query(backend, endless_part, monkeypatch):
    started = threading.Event()
    run = backend.con.sql
    monkeypatch.setattr(backend.con, "sql", lambda *given, **options: (run(*given, **options), started.set())[0])
    expression = backend.sql(endless_part, schema={"n": "int64"})
    with handled_by(own_handler), pressed_when(started), pytest.raises(KeyboardInterrupt):
        expression.to_pyarrow()
    assert backend.sql("SELECT 1 AS one").to_pyarrow().num_rows == 1


def test_options_of_the_client_are_passed_on(backend, birds):
    assert sorted_rows(birds.to_pyarrow(direct=True, threads=2)) == sorted_rows(BIRDS)
    with pytest.raises(volary.DeadlineExceededError):
        backend.sql("SELECT count(*) AS n FROM range(1000000000000)").to_pyarrow(timeout=0.05)


def test_parameters_of_expressions_have_values(birds):
    least = ibis.param("int64")
    expression = birds.filter(_.k >= least).count()
    assert expression.to_pyarrow(params={least: 7}).as_py() == 3
    assert expression.to_pyarrow(params={least: 9}).as_py() == 1


def test_sql_and_expressions_mix(backend, birds):
    name = birds.get_name()
    heavy = backend.sql(f"SELECT name, grams FROM {name} WHERE grams > 600")
    assert heavy.schema() == ibis.schema({"name": "string", "grams": "float64"})
    assert heavy.group_by("name").agg(n=_.count()).order_by("name").to_pyarrow().to_pylist() == [
        {"name": "kea", "n": 2},
        {"name": "weka", "n": 2},
    ]
    assert birds.alias("b").sql("SELECT max(k) AS k FROM b").to_pyarrow()["k"].to_pylist() == [9]
    transpiled = backend.sql(f"SELECT IFNULL(grams, 0) AS g FROM {name}", dialect="mysql")
    assert min(transpiled.g.to_pyarrow().to_pylist()) == 0


def test_written_sql_means_what_it_means_without_ibis(backend, birds):
    written = backend.sql(
        "SELECT k, to_char(DATE '2026-02-03', '%d.%m.%Y') AS d, 6 ^ 3 AS bits, log10(100) AS digits, "
        "map_keys(MAP {'a': 7}) AS names, array_sort([2, 1], 'DESC', 'NULLS LAST') AS xs, "
        "lag(name) IGNORE NULLS OVER (ORDER BY k) AS previous "
        f"FROM {birds.get_name()} -- all birds"
    )
    assert written.filter(_.k == 3).to_pyarrow().to_pylist() == [
        {"k": 3, "d": "03.02.2026", "bits": 5, "digits": 2.0, "names": ["a"], "xs": [2, 1], "previous": "kaka"}
    ]
    assert birds.alias("b").sql("SELECT max(k) ^ 1 AS k FROM b").to_pyarrow()["k"].to_pylist() == [8]


def test_sql_of_an_expression_is_shown(birds):
    sql = str(ibis.to_sql(birds.filter(_.name == "it's")))
    assert sql == ibis.to_sql(birds.filter(_.name == "it's"), dialect="volary")
    assert f'"{birds.get_name()}"' in sql
    assert "'it''s'" in sql


# Tables in memory.


def test_small_tables_in_memory_are_written_into_the_statement(backend, birds):
    small = ibis.memtable(pa.table({"name": ["kea", "o'o", None], "x": pa.array([1, None, 3], pa.int8())}))
    before = backend.list_tables()
    joined = birds.join(small, "name")
    assert "VALUES" in backend.compile(joined)
    assert sorted_rows(joined[["k", "x"]].to_pyarrow()) == [(0, 1), (5, 1)]
    assert backend.to_pyarrow(small.order_by("x")).to_pylist() == [
        {"name": "kea", "x": 1},
        {"name": None, "x": 3},
        {"name": "o'o", "x": None},
    ]
    assert backend.to_pyarrow(small.filter(_.x > 100)).schema.field("x").type == pa.int8()
    assert backend.to_pyarrow(ibis.memtable(pa.table({"a": pa.array([], pa.date32())})).count()).as_py() == 0
    assert backend.list_tables() == before


def test_large_tables_in_memory_are_dropped_when_nobody_needs_them(cluster, backend, birds):
    before = backend.list_tables()
    large = ibis.memtable(pa.table({"k": range(2000), "double": range(0, 4000, 2)}))
    assert birds.join(large, "k").double.sum().to_pyarrow().as_py() == 90
    assert birds.join(large, "k").count().to_pyarrow().as_py() == 10
    (made,) = set(backend.list_tables()) - set(before)
    assert made == large.get_name()
    del large
    gc.collect()
    assert backend.list_tables() == before

    other = ibis.volary.connect(cluster.uri)
    kept = ibis.memtable(pa.table({"k": range(2000)}))
    assert other.to_pyarrow(kept.count()).as_py() == 2000
    assert set(backend.list_tables()) - set(before) == {kept.get_name()}
    other.disconnect()
    assert backend.list_tables() == before


def test_a_table_in_memory_stays_as_long_as_its_rows_are_read(backend):
    before = backend.list_tables()
    reader = backend.to_pyarrow_batches(ibis.memtable(pa.table({"k": range(2000)})))
    gc.collect()
    assert len(backend.list_tables()) == len(before) + 1
    assert sum(batch.num_rows for batch in reader) == 2000
    del reader
    gc.collect()
    assert backend.list_tables() == before


def test_what_is_cached_is_dropped_when_it_is_released(backend, birds):
    before = backend.list_tables()
    with birds.mutate(double=_.k * 2).cache() as cached:
        backend.insert(birds.get_name(), pa.table({"k": [100]}))
        assert cached.double.max().to_pyarrow().as_py() == 18
        assert len(backend.list_tables()) == len(before) + 1
    assert backend.list_tables() == before


# Types.

VALUES = {
    "bool": ("boolean", [True, None]),
    "tiny": ("int8", [-128, None]),
    "big": ("int64", [2**63 - 1, -(2**63)]),
    "unsigned": ("uint32", [2**32 - 1, None]),
    "real": ("float32", [0.5, None]),
    "double": ("float64", [1e300, float("inf")]),
    "text": ("string", ["ŕ'\"\\\n", ""]),
    "bytes": ("binary", [b"\x00\xff", None]),
    "decimal": ("decimal(38, 10)", [Decimal("-1.5000000001"), None]),
    "wide": ("decimal(76, 2)", [Decimal("1" * 70 + ".25"), None]),
    "date": ("date", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "time": ("time", [datetime.time(23, 59, 59, 999999), None]),
    "stamp": ("timestamp(6)", [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "seconds": ("timestamp(0)", [datetime.datetime(2026, 7, 1, 12), None]),
    "instant": ("timestamp('UTC', 6)", [datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC), None]),
    "list": ("array<int64>", [[1, None], []]),
    "texts": ("array<string>", [["a", "ŕ"], None]),
    "struct": ("struct<a: int64, b: string>", [{"a": 1, "b": "x"}, None]),
    "nested": ("array<struct<a: array<int64>>>", [[{"a": [1]}, {"a": None}], None]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back_as_they_were(backend, kind):
    name, (type_name, values) = new_name(), VALUES[kind]
    schema = ibis.schema({"k": "int64", "v": type_name})
    rows = pa.table({"k": [0, 1], "v": pa.array(values, schema.to_pyarrow().field("v").type)})
    stored = backend.create_table(name, rows, schema=schema)
    copied = backend.create_table(f"{name}_copy", stored)
    small = ibis.memtable(rows, schema=schema)
    literals = ibis.union(*(stored.limit(1).select(v=ibis.literal(value, type_name)) for value in values))
    assert stored.order_by("k").to_pyarrow()["v"].to_pylist() == values
    assert copied.order_by("k").to_pyarrow()["v"].to_pylist() == values
    assert backend.to_pyarrow(small.order_by("k"))["v"].to_pylist() == values
    assert sorted(literals.to_pyarrow()["v"].to_pylist(), key=repr) == sorted(values, key=repr)
    assert backend.to_pyarrow(small).schema.field("v").type == schema.to_pyarrow().field("v").type
    for table in (stored, copied):
        backend.drop_table(table.get_name())


def test_maps_are_created_from_arrow_data(backend):
    name = new_name()
    rows = pa.table({"m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))})
    table = backend.create_table(name, rows)
    assert table.m.type() == dt.Map(dt.string(nullable=False), dt.int64)
    copied = backend.create_table(f"{name}_copy", table)
    assert copied.m["a"].to_pyarrow().to_pylist() in ([1, None], [None, 1])
    assert backend.to_pyarrow(ibis.map({"a": 1, "b": 2})["b"]).as_py() == 2
    assert backend.to_pyarrow(ibis.null("map<string, int64>")).as_py() is None
    for made in (table, copied):
        backend.drop_table(made.get_name())


def test_instants_have_the_zone_of_their_type(backend):
    noon = ibis.literal(datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC))
    tokyo = noon.cast("timestamp('Asia/Tokyo')")
    assert backend.to_pyarrow(tokyo.hour()).as_py() == 21
    assert backend.to_pyarrow(tokyo).as_py() == datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
    assert backend.to_pyarrow(noon.strftime("%H:%M")).as_py() == "12:00"
    assert backend.to_pyarrow(noon.strftime("%%f %f")).as_py() == "%f 000000"


def test_weeks_are_counted_across_the_start_of_1970(backend):
    monday = ibis.timestamp("1970-01-05 00:00:00")
    for earlier, weeks in (("1970-01-04 23:00:00", 1), ("1969-12-29 00:00:00", 1), ("1969-12-28 23:00:00", 2)):
        assert backend.to_pyarrow(monday.delta(ibis.timestamp(earlier), unit="week")).as_py() == weeks


def test_intervals_are_added_and_returned(backend):
    start = ibis.timestamp("2026-01-31 00:00:00")
    days = ibis.literal(3).cast("int64")
    assert backend.to_pyarrow(start + ibis.interval(months=1)).as_py() == datetime.datetime(2026, 2, 28)
    assert backend.to_pyarrow(start + ibis.interval(quarters=1)).as_py() == datetime.datetime(2026, 4, 30)
    assert backend.to_pyarrow(start - days.as_interval("D") * 2).as_py() == datetime.datetime(2026, 1, 25)
    assert backend.to_pyarrow(start + ibis.interval(milliseconds=1500)).as_py().microsecond == 500_000
    assert backend.to_pyarrow(ibis.interval(hours=5)).as_py() is not None
    later = ibis.timestamp("2026-01-31 00:00:01.5") - start
    assert backend.to_pyarrow(later).as_py() == datetime.timedelta(seconds=1)


# What is refused.


def test_what_the_server_cannot_do_is_refused_with_its_reason(backend, birds):
    name = birds.get_name()
    rows = pa.table({"k": [1]})

    @ibis.udf.scalar.python
    def of_python(x: int) -> int:
        return x

    @ibis.udf.scalar.builtin(name="levenshtein")
    def distance(a: str, b: str) -> int: ...

    refused = {
        "temporary": lambda: backend.create_table("t", rows, temp=True),
        "cannot delete the rows": lambda: backend.insert(name, rows, overwrite=True),
        "cannot change rows": lambda: backend.upsert(name, rows, on="k"),
        "cannot rename": lambda: backend.rename_table(name, "other"),
        "of_python is a function of Python": lambda: of_python(birds.k).to_pyarrow(),
        "ArrayMap": lambda: backend.to_pyarrow(ibis.array([1]).map(lambda x: x + 1)),
        "no any_inner joins": lambda: birds.any_inner_join(birds.view(), "k").to_pyarrow(),
        "no INTERSECT ALL": lambda: birds.intersect(birds, distinct=False).to_pyarrow(),
        "must be constants": lambda: birds.limit(birds.count() - 1).to_pyarrow(),
        "cannot cast json to map": lambda: birds.name.cast("json").cast("map<string, int64>").to_pyarrow(),
        "cannot try to cast string to map": lambda: birds.name.try_cast("map<string, int64>").to_pyarrow(),
    }
    for message, call in refused.items():
        with pytest.raises((com.UnsupportedOperationError, com.OperationNotDefinedError), match=message):
            call()
    assert backend.to_pyarrow(distance("kea", "kaka")).as_py() == 2
    with pytest.raises(com.IbisInputError, match="needs `obj` or `schema`"):
        backend.create_table(name)
    with pytest.raises(volary.InvalidArgumentError, match="no_such_function"):
        backend.sql("SELECT no_such_function(1)")
