"""What is particular to Volary: options of tables, what replaces UPDATE and DELETE, and what is refused."""

from __future__ import annotations

import threading

import pytest
from dbt.adapters.volary.connections import VolaryConnectionManager
from dbt.tests.util import read_file, run_dbt, run_dbt_and_capture, write_file
from dbt_common.exceptions import DbtRuntimeError

import volary

_BIRDS = "select 1 as id, 'kea' as name union all select 2, 'kaka'"


def rows(project, relation, columns="*"):
    """Returns the sorted rows of a table in the schema of the test."""
    return sorted(project.run_sql(f"select {columns} from {project.test_schema}.{relation}", fetch="all"))


def tables(project, pattern="%"):
    """Returns the names of tables and views in the schema of the test."""
    found = project.run_sql(
        f"select table_name from information_schema.tables where table_schema = '{project.test_schema}' "
        f"and table_name like '{pattern}'",
        fetch="all",
    )
    return sorted(name for (name,) in found)


def options(project, table):
    """Returns the options of a table."""
    return project.run_sql(
        "select kind, shard_key, shards, sort_key from system.tables "
        f"where schema_name = '{project.test_schema}' and name = '{table}'",
        fetch="one",
    )


def statements(project, relation):
    """Returns the words with which the statements begin that have written to a table."""
    log = project.run_sql(
        "select statement from system.query_log where query_tag = 'dbt' order by started", fetch="all"
    )
    name = f'"{project.test_schema}"."{relation}"'
    texts = [text.partition("*/")[2].split() for (text,) in log]
    return [
        " ".join(words[:2])
        for words in texts
        if words and words[0] in ("insert", "create") and any(word.endswith(name) for word in words[:5])
    ]


class TestTables:
    @pytest.fixture(scope="class")
    def models(self):
        config = "materialized='table', shard_key='id', shards=4, sort_key=['name', 'id']"
        return {
            "birds.sql": "{{ config(" + config + ") }} " + _BIRDS,
            "colours.sql": "{{ config(materialized='table', reference=true) }} select 'green' as colour",
            "counts.sql": "select name, count(*) as n from {{ ref('birds') }} group by name",
        }

    @pytest.fixture(scope="class")
    def seeds(self):
        return {"sightings.csv": "id,at,weight\n1,2026-01-01 10:00:00,1.5\n2,,\n"}

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"seeds": {"test": {"+shard_key": "id", "+shards": 2}}}

    def test_tables_have_the_options_of_their_models(self, project):
        run_dbt(["build"])
        assert options(project, "birds") == ("sharded", "id", 4, "name, id")
        assert options(project, "colours")[0] == "reference"
        assert options(project, "sightings")[:3] == ("sharded", "id", 2)
        assert rows(project, "counts") == [("kaka", 1), ("kea", 1)]

    def test_a_seed_with_a_wrong_value_leaves_the_rows_as_they_were(self, project):
        run_dbt(["seed"])
        before = rows(project, "sightings", "id, weight")
        write_file("id,at,weight\n1,2026-01-01 10:00:00,heavy\n", project.project_root, "seeds", "sightings.csv")
        run_dbt(["seed", "--vars", "{}"])  # the column is text now
        assert rows(project, "sightings", "weight") == [("heavy",)]
        types = "seeds: [{name: sightings, config: {column_types: {weight: double}}}]"
        write_file(types, project.project_root, "seeds", "types.yml")
        run_dbt(["seed"], expect_pass=False)
        assert rows(project, "sightings", "weight") == [("heavy",)]
        write_file("id,at,weight\n1,,1.5\n2,,\n", project.project_root, "seeds", "sightings.csv")
        run_dbt(["seed"])
        assert len(rows(project, "sightings", "id")) == len(before)

    def test_a_view_becomes_a_table_only_if_its_rows_can_be_written(self, project):
        run_dbt(["run", "--select", "counts"])
        as_table = "{{ config(materialized='table') }} select name, {} as n from {{ ref('birds') }}"
        write_file(as_table.replace("{}", "1 / (id - id)"), project.project_root, "models", "counts.sql")
        run_dbt(["run", "--select", "counts"], expect_pass=False)
        assert rows(project, "counts") == [("kaka", 1), ("kea", 1)]
        write_file(as_table.replace("{}", "id"), project.project_root, "models", "counts.sql")
        run_dbt(["run", "--select", "counts"])
        assert rows(project, "counts") == [("kaka", 2), ("kea", 1)]
        write_file("select nothing from {{ ref('birds') }}", project.project_root, "models", "counts.sql")
        run_dbt(["run", "--select", "counts"], expect_pass=False)
        assert rows(project, "counts") == [("kaka", 2), ("kea", 1)]
        write_file("select id as n from {{ ref('birds') }}", project.project_root, "models", "counts.sql")
        run_dbt(["run", "--select", "counts"])
        assert rows(project, "counts") == [(1,), (2,)]
        assert tables(project, "counts%") == ["counts"]


class TestIncremental:
    @pytest.fixture(scope="class")
    def models(self):
        head = "{{ config(materialized='incremental', shard_key='id', shards=2, KEY) }} "
        query = "select id, name, {{ var('run', 0) }} as run from (" + _BIRDS + ") where id {{ var('which', '< 3') }}"
        return {
            "appended.sql": head.replace("KEY", "incremental_strategy='append'") + query,
            "replaced.sql": head.replace("KEY", "unique_key='id'") + query,
        }

    def test_delete_insert_replaces_the_rows_of_equal_keys_and_keeps_the_options(self, project):
        run_dbt(["run"])
        variables = "{run: 1, which: '= 2'}"
        run_dbt(["run", "--vars", variables])
        assert rows(project, "replaced", "id, run") == [(1, 0), (2, 1)]
        assert rows(project, "appended", "id, run") == [(1, 0), (2, 0), (2, 1)]
        assert options(project, "replaced")[:3] == ("sharded", "id", 2)
        assert tables(project) == ["appended", "replaced"]

    def test_delete_insert_only_appends_if_no_row_has_to_go(self, project):
        run_dbt(["run", "--full-refresh", "--vars", "{which: '= 1'}"])
        before = len(statements(project, "replaced"))
        run_dbt(["run", "--vars", "{run: 1, which: '= 2'}"])
        assert statements(project, "replaced")[before:] == ["insert into"]
        assert rows(project, "replaced", "id, run") == [(1, 0), (2, 1)]
        run_dbt(["run", "--vars", "{run: 2, which: '= 2'}"])
        assert statements(project, "replaced")[before:] == ["insert into", "create or"]
        assert rows(project, "replaced", "id, run") == [(1, 0), (2, 2)]

    @pytest.mark.parametrize(
        ("strategy", "reason"),
        [("merge", "there is no MERGE and no UPDATE"), ("insert_overwrite", "there are no partitions")],
    )
    def test_strategies_that_are_not_possible_are_refused_with_the_reason(self, project, strategy, reason):
        model = "{{ config(materialized='incremental', unique_key='id', incremental_strategy='" + strategy + "') }} "
        write_file(model + _BIRDS, project.project_root, "models", "refused.sql")
        _, log = run_dbt_and_capture(["run", "--select", "refused"], expect_pass=False)
        assert f"'{strategy}' is not valid for Volary: {reason}" in log


class TestContractOfIncrementalModel:
    @pytest.fixture(scope="class")
    def models(self):
        columns = (
            "[{name: id, data_type: bigint, constraints: [{type: not_null}, {type: primary_key}]},"
            " {name: grams, data_type: double, constraints: [{type: check, expression: 'grams > 0'}]}]"
        )
        return {
            "weights.sql": "{{ config(materialized='incremental', unique_key='id', on_schema_change='fail') }} "
            "select {{ var('id', 1) }} as id, cast({{ var('grams', 5) }} as double) as grams",
            "weights.yml": "models: [{name: weights, config: {contract: {enforced: true}}, columns: " + columns + "}]",
        }

    def test_constraints_are_enforced_however_the_table_was_written(self, project):
        run_dbt(["run"])
        kinds = [("CHECK",), ("PRIMARY KEY",)]
        for variables in ("{id: 2}", "{id: 2, grams: 7}"):
            run_dbt(["run", "--vars", variables])
            found = project.run_sql(
                f"select constraint_type from information_schema.table_constraints "
                f"where table_schema = '{project.test_schema}' and table_name = 'weights'",
                fetch="all",
            )
            assert sorted(found) == kinds
        for variables in ("{id: 3, grams: -1}", "{id: 2, grams: -1}", "{id: 'cast(null as bigint)'}"):
            run_dbt(["run", "--vars", variables], expect_pass=False)
            assert rows(project, "weights") == [(1, 5.0), (2, 7.0)]


class TestContractOfNewColumns:
    @pytest.fixture(scope="class")
    def models(self):
        return {"weights.sql": self.model(""), "weights.yml": self.contract("")}

    def model(self, column):
        config = "{{ config(materialized='incremental', on_schema_change='append_new_columns') }} "
        return config + "select {{ var('id', 1) }} as id" + column

    def contract(self, column):
        check = "{name: id, data_type: bigint, constraints: [{type: check, expression: 'id > 0'}]}"
        return f"models: [{{name: weights, config: {{contract: {{enforced: true}}}}, columns: [{check}{column}]}}]"

    def test_checks_are_enforced_in_the_run_that_adds_a_column(self, project):
        run_dbt(["run"])
        write_file(self.model(", 'kea' as name"), project.project_root, "models", "weights.sql")
        write_file(self.contract(", {name: name, data_type: varchar}"), project.project_root, "models", "weights.yml")
        run_dbt(["run", "--vars", "{id: -1}"], expect_pass=False)
        assert rows(project, "weights", "id") == [(1,)]
        run_dbt(["run", "--vars", "{id: 2}"])
        assert rows(project, "weights", "id, coalesce(name, '')") == [(1, ""), (2, "kea")]


class TestColumnsOfLaterRuns:
    @pytest.fixture(scope="class")
    def models(self):
        return {
            "later.sql": "{{ config(materialized='incremental') }} "
            "select {{ 'cast(null as bigint)' if is_incremental() else 1 }} as id"
        }

    def test_a_later_run_may_have_null_where_the_first_one_could_not(self, project):
        run_dbt(["run"])
        run_dbt(["run"])
        assert project.run_sql(f"select count(*), count(id) from {project.test_schema}.later", fetch="one") == (2, 1)


_OPERATIONS = """
{% macro birds() %}
  {{ return(api.Relation.create(database=target.database, schema=target.schema, identifier='birds', type='table')) }}
{% endmacro %}
{% macro rename_birds() %}{% do adapter.rename_relation(birds(), birds()) %}{% endmacro %}
{% macro empty_birds() %}{% do adapter.truncate_relation(birds()) %}{% endmacro %}
{% macro fails_among_rows(fetch) %}
  {% call statement('fails', fetch_result=fetch) %}
    select 1 / (value - 5000000) from generate_series(1, 5000000)
  {% endcall %}
{% endmacro %}
{% macro several() %}
  {% set table = target.schema ~ '.several' %}
  {% do run_query("create table " ~ table ~ " as select ';' as x; -- ;\n drop table " ~ table ~ ";") %}
{% endmacro %}
"""


class TestOperations:
    @pytest.fixture(scope="class")
    def models(self):
        return {"birds.sql": "{{ config(materialized='table', shard_key='id', shards=3) }} " + _BIRDS}

    @pytest.fixture(scope="class")
    def macros(self):
        return {"operations.sql": _OPERATIONS}

    def test_what_has_no_statement_is_refused_or_done_in_one_step(self, project):
        run_dbt(["run"])
        _, log = run_dbt_and_capture(["run-operation", "rename_birds"], expect_pass=False)
        assert "Volary has no ALTER TABLE … RENAME" in log
        run_dbt(["run-operation", "empty_birds"])
        assert rows(project, "birds") == []
        assert options(project, "birds")[:3] == ("sharded", "id", 3)
        run_dbt(["run-operation", "several"])
        assert tables(project) == ["birds"]

    @pytest.mark.parametrize("fetch", ["true", "false"])
    def test_a_query_that_fails_among_its_rows_is_an_error_of_the_database(self, project, fetch):
        arguments = f"{{fetch: {fetch}}}"
        _, log = run_dbt_and_capture(["run-operation", "fails_among_rows", "--args", arguments], expect_pass=False)
        assert "Database Error" in log
        assert "INVALID_ARGUMENT" in log

    def test_statements_have_a_tag_and_a_comment_and_results_name_their_query(self, project):
        results = run_dbt(["run"])
        query_id = results[0].adapter_response["query_id"]
        statement, tag, count = project.run_sql(
            f"select statement, query_tag, rows from system.query_log where query_id = '{query_id}'", fetch="one"
        )
        assert '"node_id": "model.test.birds"' in statement
        assert (tag, count) == ("dbt", 2)
        assert results[0].adapter_response["rows_affected"] == 2

    def test_a_statement_can_be_cancelled_by_another_thread(self, project):
        manager: VolaryConnectionManager = project.adapter.connections
        endless = "select count(*) from generate_series(1, 9000000000000) as t(n) where n % 7 = 3"
        failed = []

        def run():
            with project.adapter.connection_named("endless"):
                manager.get_thread_connection().handle.cursor().close()  # opens the connection
                opened.set()
                with pytest.raises(DbtRuntimeError) as caught:
                    project.adapter.execute(endless, fetch=True)
                failed.append(str(caught.value))

        opened = threading.Event()
        thread = threading.Thread(target=run)
        thread.start()
        assert opened.wait(60)
        with project.adapter.connection_named("other"):
            while thread.is_alive():
                manager.cancel_open()
                thread.join(0.05)
        assert "CANCELLED" in failed[0]


class TestProfiles:
    @pytest.fixture(scope="class")
    def dbt_profile_target(self, gateway):
        return {
            "type": "volary",
            "url": gateway[0],
            "user": "dbt_weka",
            "pass": "a password of weka",
            "timeout": 600,
            "query_tag": "nightly",
            "settings": {"timezone": "Asia/Tokyo", "batch_size": 1000},
        }

    @pytest.fixture(scope="class", autouse=True)
    def user(self, gateway):
        with volary.connect(gateway[0], token=gateway[1]) as admin:
            admin.sql("CREATE USER IF NOT EXISTS dbt_weka PASSWORD 'a password of weka'")
            admin.sql("GRANT CREATE TO dbt_weka")

    @pytest.fixture(scope="class")
    def models(self):
        return {"zone.sql": "select cast(timestamptz '2026-07-01 00:00:00+00:00' as varchar) as at"}

    def test_a_user_with_a_password_has_the_settings_of_the_profile(self, project, gateway):
        _, log = run_dbt_and_capture(["debug"])
        assert "All checks passed" in log
        assert "a password of weka" not in log
        run_dbt(["run"])
        assert "09:00" in rows(project, "zone")[0][0]
        with volary.connect(gateway[0], token=gateway[1]) as admin:
            query = "SELECT DISTINCT user_name FROM system.query_log WHERE query_tag = 'nightly'"
            assert admin.sql(query).rows() == [("dbt_weka",)]
        assert "a password of weka" not in read_file("target", "manifest.json")
