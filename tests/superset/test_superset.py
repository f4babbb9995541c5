"""Uses Volary through Superset's API: metadata, SQL Lab, datasets and charts."""

from __future__ import annotations

import datetime
import itertools

import pytest

_numbers = itertools.count()
HOUR = datetime.timedelta(hours=1)
DAY = 24 * HOUR
FIRST = datetime.datetime(2026, 3, 4, 5, 6, 7)
TIMES = [FIRST + hour * HOUR for hour in range(100)]


def run(client, database_id, sql: str, **given):
    """Runs a statement in SQL Lab, and returns the answer."""
    call = {"database_id": database_id, "schema": "sales", "sql": sql, "client_id": f"c{next(_numbers)}", **given}
    return client.post("/api/v1/sqllab/execute/", json=call)


def error_of(answer) -> tuple[str, str]:
    (error,) = answer.json["errors"]
    return error["error_type"], error["message"]


@pytest.fixture(scope="module")
def dataset_id(app, database_id, events):
    """The id of the dataset of the table of events."""
    from superset.connectors.sqla.models import SqlaTable
    from superset.extensions import db

    with app.app_context():
        dataset = SqlaTable(table_name=events, schema="sales", database_id=database_id)
        db.session.add(dataset)
        db.session.flush()
        dataset.fetch_metadata()
        epoch = next(column for column in dataset.columns if column.column_name == "epoch")
        epoch.python_date_format = "epoch_s"
        db.session.commit()
        return dataset.id


@pytest.fixture
def dataset(context, dataset_id):
    """The dataset of the table of events."""
    from superset.connectors.sqla.models import SqlaTable
    from superset.extensions import db

    return db.session.get(SqlaTable, dataset_id)


def test_schemas_tables_and_views_are_listed(client, database_id, events):
    schemas = client.get(f"/api/v1/database/{database_id}/schemas/").json["result"]
    assert {"information_schema", "public", "sales", "system"} <= set(schemas)
    tables = client.get(f"/api/v1/database/{database_id}/tables/?q=(schema_name:sales,force:!t)").json["result"]
    assert {(table["value"], table["type"]) for table in tables} >= {("events", "table"), ("evens", "view")}


def test_columns_and_comments_are_shown(client, database_id, events):
    shown = client.get(f"/api/v1/database/{database_id}/table_metadata/?name=events&schema=sales").json
    assert shown["comment"] == "what was sold"
    columns = {column["name"]: (column["longType"], column["comment"]) for column in shown["columns"]}
    # Superset writes these types without asking the dialect.
    assert columns == {
        "id": ("BIGINT", None),
        "kind": ("VARCHAR", None),
        "amount": ("DECIMAL(10, 2)", "in euros"),
        "at": ("TIMESTAMP", None),
        "instant": ("TIMESTAMP", None),
        "day": ("DATE", None),
        "epoch": ("BIGINT", None),
        "tags": ("ARRAY", None),
    }
    view = client.get(f"/api/v1/database/{database_id}/table_metadata/?name=evens&schema=sales").json
    assert [column["name"] for column in view["columns"]] == ["id", "amount"]
    names = client.get(f"/api/v1/database/{database_id}/function_names/").json["function_names"]
    assert {"date_bin", "count"} <= set(names)


def test_sql_lab_runs_a_query_in_the_chosen_schema_with_its_limit(client, database_id, events):
    answer = run(client, database_id, "SELECT * FROM events ORDER BY id", queryLimit=3).json
    assert [row["id"] for row in answer["data"]] == [0, 1, 2]
    types = {column["column_name"]: (column["type"], column["is_dttm"]) for column in answer["columns"]}
    assert types["id"] == ("BIGINT", False)
    assert types["at"] == ("TIMESTAMP(6)", True)
    assert types["instant"] == ("TIMESTAMP(6) WITH TIME ZONE", True)
    assert types["day"] == ("DATE", True)
    assert types["tags"] == ("VARCHAR[]", False)
    other = run(client, database_id, "SELECT count(*) AS n FROM sales.events", schema="public")
    assert other.json["data"] == [{"n": 100}]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("to_char(TIMESTAMP '2026-03-04 05:06:07', '%Y/%m')", "2026/03"),
        ("try_cast('x' AS INT)", None),
        ("CAST(7 AS TINYINT) + CAST(1 AS BIGINT UNSIGNED)", 8),
        ("median(id)", 49.5),
        ("string_agg(kind, ',' ORDER BY id) FILTER (WHERE id < 2)", "even,odd"),
        ("approx_distinct(kind)", 2),
        ("substr('kea', 2)", "ea"),
        ("date_bin(INTERVAL '5 minutes', TIMESTAMP '2026-03-04 05:06:07')", "2026-03-04T05:05:00"),
        ("'a' ~ 'A'", False),
        ("{'a': 7}['a']", 7),
        ("arrow_cast(7, 'Int8')", 7),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY id)", 49.5),
        ("count(DISTINCT kind)", 2),
        ("sum(id) % 7 + log10(100)", 2 + 4950 % 7),
        ("6 ^ 3", 5),
        ("map_extract(MAP {'a': 7}, 'a')[1]", 7),
        ("last_value(nullif(id, 99) ORDER BY id) IGNORE NULLS", 98),
    ],
)
def test_functions_and_types_mean_in_sql_lab_what_they_mean_in_volary(client, database_id, events, sql, value):
    # Superset writes the statement anew to limit its rows.
    answer = run(client, database_id, f"SELECT {sql} AS x FROM events", queryLimit=10)
    assert answer.status_code == 200, answer.json
    assert answer.json["data"][0]["x"] == value


def test_sql_lab_runs_statements_without_rows_and_several_statements(client, database_id, events):
    assert run(client, database_id, "SET statement_timeout = '1min'").status_code == 200
    assert run(client, database_id, "CREATE TABLE IF NOT EXISTS made (k BIGINT)").status_code == 200
    assert run(client, database_id, "INSERT INTO made VALUES (1); SELECT k FROM made").json["data"] == [{"k": 1}]
    shown = run(client, database_id, "SHOW TABLES FROM sales").json["data"]
    assert {row["table_name"] for row in shown} >= {"events", "evens"}


def test_errors_have_superset_s_kinds(client, database_id, events):
    for sql, kind, words in (
        ("SELECT * FROM no_such_table", "TABLE_DOES_NOT_EXIST_ERROR", 'The table "sales.no_such_table" does not exist'),
        ("SELECT nothing FROM events", "COLUMN_DOES_NOT_EXIST_ERROR", 'column "nothing": there are id'),
        ("SELECT * FROM nowhere.t", "SCHEMA_DOES_NOT_EXIST_ERROR", 'The schema "nowhere" does not exist'),
        ("SELECT 1 / 0", "GENERIC_DB_ENGINE_ERROR", "Divide by zero"),
    ):
        found, message = error_of(run(client, database_id, sql))
        assert found == kind
        assert words in message


def test_the_cost_of_a_query_is_estimated(client, database_id, events):
    def estimated(sql: str) -> dict[str, str]:
        call = {"database_id": database_id, "schema": "sales", "sql": sql}
        (cost,) = client.post("/api/v1/sqllab/estimate/", json=call).json["result"]
        return cost

    everything = estimated("SELECT kind, count(*) FROM events GROUP BY kind")
    assert everything["Tables"] == "sales.events"
    assert (everything["Shards"], everything["Rows"]) == ("8 of 8", "up to 100")
    assert everything["Stored bytes"].endswith("iB")
    one = estimated("SELECT * FROM events WHERE id = 5")
    assert (one["Shards"], one["Workers"], one["Rows"]) == ("1 of 8", "1", "up to 12")
    assert estimated("SELECT 1")["Tables"] == "none"


def test_a_dataset_is_created_with_the_types_of_its_columns(client, database_id, events):
    call = {"database": database_id, "schema": "sales", "table_name": "evens"}
    created = client.post("/api/v1/dataset/", json=call)
    assert created.status_code == 201, created.json
    columns = client.get(f"/api/v1/dataset/{created.json['id']}").json["result"]["columns"]
    assert {column["column_name"]: column["type"] for column in columns} == {"id": "BIGINT", "amount": "DECIMAL(10, 2)"}


def week(time: datetime.datetime, first_day: int) -> datetime.datetime:
    """Returns the beginning of a week that begins on `first_day`, counted from Monday."""
    midnight = time.replace(hour=0, minute=0, second=0)
    return midnight - datetime.timedelta(days=(time.weekday() - first_day) % 7)


def floor(time: datetime.datetime, seconds: int) -> datetime.datetime:
    midnight = time.replace(hour=0, minute=0, second=0)
    return midnight + (time - midnight) // datetime.timedelta(seconds=seconds) * datetime.timedelta(seconds=seconds)


GRAINS = {
    "PT1S": lambda time: time,
    "PT5S": lambda time: floor(time, 5),
    "PT30S": lambda time: floor(time, 30),
    "PT1M": lambda time: floor(time, 60),
    "PT5M": lambda time: floor(time, 300),
    "PT10M": lambda time: floor(time, 600),
    "PT15M": lambda time: floor(time, 900),
    "PT30M": lambda time: floor(time, 1800),
    "PT0.5H": lambda time: floor(time, 1800),
    "PT1H": lambda time: floor(time, 3600),
    "PT6H": lambda time: floor(time, 6 * 3600),
    "P1D": lambda time: floor(time, 86400),
    "P1W": lambda time: week(time, 0),
    "1969-12-28T00:00:00Z/P1W": lambda time: week(time, 6),
    "1969-12-29T00:00:00Z/P1W": lambda time: week(time, 0),
    "P1W/1970-01-03T00:00:00Z": lambda time: week(time, 6) + 6 * DAY,
    "P1W/1970-01-04T00:00:00Z": lambda time: week(time, 0) + 6 * DAY,
    "P1M": lambda time: datetime.datetime(time.year, time.month, 1),
    "P3M": lambda time: datetime.datetime(time.year, (time.month - 1) // 3 * 3 + 1, 1),
    "P0.25Y": lambda time: datetime.datetime(time.year, (time.month - 1) // 3 * 3 + 1, 1),
    "P1Y": lambda time: datetime.datetime(time.year, 1, 1),
}


def test_every_time_grain_of_superset_has_an_expression(context):
    from superset.constants import TimeGrain

    from volary.superset import VolaryEngineSpec

    assert set(VolaryEngineSpec.get_time_grain_expressions()) == {None, *(str(grain) for grain in TimeGrain)}
    assert set(GRAINS) == {str(grain) for grain in TimeGrain}


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("column", ["at", "instant", "day", "epoch"])
def test_a_chart_groups_by_a_time_grain(dataset, column, grain):
    times = [time.replace(hour=0, minute=0, second=0) if column == "day" else time for time in TIMES]
    counts: dict[datetime.datetime, int] = {}
    for time in times:
        counts[GRAINS[grain](time)] = counts.get(GRAINS[grain](time), 0) + 1
    chart = {
        "granularity": column,
        "from_dttm": FIRST - DAY,
        "to_dttm": FIRST + 1000 * DAY,
        "groupby": [],
        "metrics": ["count"],
        "is_timeseries": True,
        "filter": [],
        "extras": {"time_grain_sqla": grain},
        "row_limit": 1000,
    }
    result = dataset.query(chart)
    assert result.error_message is None, result.query
    rows = zip(result.df["__timestamp"], result.df["count"], strict=True)
    assert {time.to_pydatetime().replace(tzinfo=None): count for time, count in rows} == counts, result.query


@pytest.mark.parametrize("column", ["at", "instant", "day", "epoch"])
def test_a_chart_filters_by_a_range_of_time(dataset, column):
    chart = {
        "granularity": column,
        "from_dttm": datetime.datetime(2026, 3, 5),
        "to_dttm": datetime.datetime(2026, 3, 7),
        "groupby": ["kind"],
        "metrics": [
            {"expressionType": "SIMPLE", "column": {"column_name": "amount"}, "aggregate": "SUM", "label": "Total"},
            {"expressionType": "SQL", "sqlExpression": "max(at)", "label": "at"},
        ],
        "is_timeseries": False,
        "filter": [{"col": "kind", "op": "IN", "val": ["even", "odd"]}, {"col": "tags", "op": "IS NOT NULL"}],
        "orderby": [("Total", False)],
        "extras": {},
        "row_limit": 10,
    }
    result = dataset.query(chart)
    assert result.error_message is None, result.query
    within = [k for k, time in enumerate(TIMES) if 5 <= time.day < 7]
    expected = {kind: sum(k * 1.5 for k in within if k % 2 == odd) for odd, kind in enumerate(("even", "odd"))}
    assert {kind: float(total) for kind, total in zip(result.df["kind"], result.df["Total"], strict=True)} == expected
    assert list(result.df["Total"]) == sorted(result.df["Total"], reverse=True)


def test_a_chart_is_drawn_over_the_api(client, dataset_id):
    call = {
        "datasource": {"id": dataset_id, "type": "table"},
        "queries": [
            {
                "columns": [
                    {
                        "timeGrain": "P1D",
                        "columnType": "BASE_AXIS",
                        "sqlExpression": "at",
                        "label": "at",
                        "expressionType": "SQL",
                    }
                ],
                "metrics": ["count"],
                "filters": [{"col": "at", "op": "TEMPORAL_RANGE", "val": "2026-03-04 : 2026-03-06"}],
                "orderby": [["count", False]],
                "row_limit": 100,
            }
        ],
        "result_format": "json",
        "result_type": "full",
    }
    answer = client.post("/api/v1/chart/data", json=call)
    assert answer.status_code == 200, answer.json
    (result,) = answer.json["result"]
    assert sorted(row["count"] for row in result["data"]) == [19, 24]


def test_a_file_is_uploaded_as_one_write(database, events):
    import pandas as pd
    from superset.exceptions import SupersetException
    from superset.sql.parse import Table

    from volary.superset import VolaryEngineSpec

    frame = pd.DataFrame({"k": [1, 2], "name": ["kea", None], "at": [FIRST, FIRST + HOUR]})
    table = Table("uploaded", "sales")
    VolaryEngineSpec.df_to_sql(database, table, frame, {"if_exists": "fail", "index": False})
    with pytest.raises(ValueError, match="already exists"):
        VolaryEngineSpec.df_to_sql(database, table, frame, {"if_exists": "fail", "index": False})
    VolaryEngineSpec.df_to_sql(database, table, frame, {"if_exists": "append", "index": False})
    assert database.get_df("SELECT count(*) AS n FROM sales.uploaded")["n"][0] == 4
    VolaryEngineSpec.df_to_sql(database, table, frame, {"if_exists": "replace", "index": True, "index_label": "row"})
    assert database.get_df("SELECT * FROM sales.uploaded ORDER BY row")["row"].tolist() == [0, 1]
    mixed = pd.DataFrame({"k": [1, "kea"]})
    with pytest.raises(SupersetException, match=r"cannot be written.*column k"):
        VolaryEngineSpec.df_to_sql(database, table, mixed, {"if_exists": "append", "index": False})
