"""Tests of `dbt-tests-adapter` that expect the words, the types or the statements of PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dbt.tests.adapter.basic import expected_catalog
from dbt.tests.adapter.basic.test_docs_generate import TestDocsGenerate, TestDocsGenReferences
from dbt.tests.adapter.basic.test_get_catalog_for_single_relation import BaseGetCatalogForSingleRelation
from dbt.tests.adapter.constraints import test_constraints as constraints
from dbt.tests.adapter.dbt_show.test_dbt_show import TestShowDoesNotHandleDoubleLimit
from dbt.tests.adapter.ephemeral.test_ephemeral import TestEphemeralMulti, TestEphemeralNested
from dbt.tests.adapter.grants.test_invalid_grants import TestInvalidGrants
from dbt.tests.adapter.hooks.test_model_hooks import (
    MODEL_POST_HOOK,
    MODEL_PRE_HOOK,
    BaseTestPrePost,
    TestPrePostModelHooks,
)
from dbt.tests.adapter.hooks.test_run_hooks import BasePrePostRunHooks
from dbt.tests.adapter.incremental import test_incremental_microbatch as microbatch
from dbt.tests.adapter.persist_docs.test_persist_docs import TestPersistDocs
from dbt.tests.adapter.sample_mode import test_sample_mode as sample_mode
from dbt.tests.adapter.simple_copy.test_copy_uppercase import TestSimpleCopyUppercase
from dbt.tests.adapter.simple_seed import seeds
from dbt.tests.adapter.simple_seed.fixtures import properties__schema_yml
from dbt.tests.adapter.simple_seed.test_seed import (
    TestBasicSeedTests,
    TestSeedConfigFullRefreshOn,
    TestSeedWithWrongDelimiter,
    TestSimpleSeedWithBOM,
)
from dbt.tests.adapter.simple_seed.test_seed_type_override import TestSimpleSeedColumnOverride
from dbt.tests.adapter.simple_snapshot import new_record_dbt_valid_to_current
from dbt.tests.adapter.simple_snapshot import test_various_configs as various_configs
from dbt.tests.adapter.utils.data_types.test_type_int import TestTypeInt
from dbt.tests.adapter.utils.test_date_spine import TestDateSpine
from dbt.tests.adapter.utils.test_timestamps import TestCurrentTimestamps
from dbt.tests.util import check_relations_equal, copy_file, read_file, run_dbt, run_sql_with_adapter
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata

# The catalog of `dbt docs generate`


class AnyStatistics:
    """Is equal to the statistics of a table, and to those of a view, which has none."""

    _OF_TABLE = frozenset({"has_stats", "rows", "bytes", "sort_key", "shard_key", "shards"})

    def __eq__(self, found):
        return {"has_stats"} <= set(found) <= self._OF_TABLE


_TYPES = {
    "role": None,
    "id_type": "BIGINT",
    "text_type": "VARCHAR",
    "time_type": "TIMESTAMP",
    "view_type": "VIEW",
    "table_type": "BASE TABLE",
    "model_stats": AnyStatistics(),
}


class DocsGenerate(TestDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project):
        return _owned(expected_catalog.base_expected_catalog(project, **_TYPES))


class DocsGenReferences(TestDocsGenReferences):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project):
        return _owned(expected_catalog.expected_references_catalog(project, bigint_type="BIGINT", **_TYPES))


def _owned(catalog):
    """Returns the catalog with the owner of the tables. The cluster does not tell the owners of views."""
    for nodes in catalog.values():
        for node in nodes.values():
            node["metadata"]["owner"] = "admin" if node["metadata"]["type"] == "BASE TABLE" else None
    return catalog


class GetCatalogForSingleRelation(BaseGetCatalogForSingleRelation):
    @pytest.fixture(scope="class")
    def expected_catalog_my_seed(self, project):
        return self._expected(project, "my_seed", "BASE TABLE", "admin")

    @pytest.fixture(scope="class")
    def expected_catalog_my_view_model(self, project):
        return self._expected(project, "my_view_model", "VIEW", None)

    def _expected(self, project, name, kind, owner):
        types = {"id": "BIGINT", "updated_at": "TIMESTAMP"}
        columns = ("id", "first_name", "email", "ip_address", "updated_at")
        return CatalogTable(
            metadata=TableMetadata(
                type=kind, schema=project.test_schema, name=name, database="volary", comment=None, owner=owner
            ),
            columns={
                column: ColumnMetadata(type=types.get(column, "VARCHAR"), index=index, name=column, comment=None)
                for index, column in enumerate(columns, start=1)
            },
            stats={},
        )


class PersistDocs(TestPersistDocs):
    """The columns of views have no comments."""

    def _assert_has_view_comments(self, view_node, has_node_comments=True, has_column_comments=True):
        super()._assert_has_view_comments(view_node, has_node_comments, False)


# Contracts


def _with_integers(fixtures):
    """The contracts of the suite say `integer`, and its models say 1, which is a BIGINT."""
    for name, text in vars(fixtures).items():
        if isinstance(text, str):
            text = re.sub(r"\b1 as (id|n)\b", r"cast(1 as integer) as \1", text)
            # Casts of instants show the time zone of the session.
            text = text.replace("current_setting('timezone')", "cast(timestamptz '2026-01-01 00:00:00Z' as varchar)")
            setattr(fixtures, name, text)


_with_integers(constraints.fixtures)


class _ColumnsEqual:
    @pytest.fixture
    def string_type(self):
        return "VARCHAR"

    @pytest.fixture
    def int_type(self):
        return "BIGINT"

    @pytest.fixture
    def data_types(self, schema_int_type, int_type, string_type):
        return [
            ["1", schema_int_type, int_type],
            ["'1'", string_type, string_type],
            ["true", "bool", "BOOLEAN"],
            ["'2013-11-03 00:00:00-07'::timestamptz", "timestamptz", "TIMESTAMP WITH TIME ZONE"],
            ["'2013-11-03 00:00:00'::timestamp", "timestamp", "TIMESTAMP"],
            ["date '2013-11-03'", "date", "DATE"],
            ["1.5e0", "double", "DOUBLE"],
            ["ARRAY['a','b','c']", "text[]", "VARCHAR[]"],
            ["ARRAY[1,2,3]", "bigint[]", "BIGINT[]"],
            ["'1'::numeric", "numeric", "DECIMAL"],
            ["1::decimal(5, 1)", "decimal(9, 3)", "DECIMAL"],
        ]


class TableColumnsEqual(_ColumnsEqual, constraints.TestTableConstraintsColumnsEqual):
    pass


class ViewColumnsEqual(_ColumnsEqual, constraints.TestViewConstraintsColumnsEqual):
    pass


class IncrementalColumnsEqual(_ColumnsEqual, constraints.TestIncrementalConstraintsColumnsEqual):
    pass


class _Rollback:
    @pytest.fixture(scope="class")
    def expected_error_messages(self):
        return ["column id", "a NULL in a column that is NOT NULL"]


class TableRollback(_Rollback, constraints.TestTableConstraintsRollback):
    pass


class IncrementalRollback(_Rollback, constraints.TestIncrementalConstraintsRollback):
    pass


_BUILT_WITH_CONSTRAINTS = """
create or replace table <model_identifier> ({definitions});
insert into <model_identifier> ({columns})
select {columns} from ({query}) as model_subq;
create or replace table <model_identifier> as (select * from <model_identifier>)
{added}
"""
_QUERY = "{} select 'blue' as {}, cast(1 as integer) as id, '2019-01-01' as date_day"


class _Ddl:
    """The rows are written to a table with constraints. It is copied, because it cannot be renamed."""

    definitions = (
        "id integer not null primary key check ((id > 0)) check (id >= 1) "
        "references <foreign_key_model_identifier> (id) unique, color text, date_day text"
    )
    added = (
        "; alter table <model_identifier> add primary key (id), add check ((id > 0)) not valid, "
        "add check (id >= 1) not valid, add foreign key (id) references <foreign_key_model_identifier> (id), "
        "add unique (id)"
    )
    columns = "id, color, date_day"
    query = _QUERY.format("-- depends_on: <foreign_key_model_identifier>\n", "color")

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return _BUILT_WITH_CONSTRAINTS.format(
            definitions=self.definitions, columns=self.columns, query=self.query, added=self.added
        )


class TableDdl(_Ddl, constraints.TestTableConstraintsRuntimeDdlEnforcement):
    pass


class IncrementalDdl(_Ddl, constraints.TestIncrementalConstraintsRuntimeDdlEnforcement):
    pass


class ModelDdl(_Ddl, constraints.TestModelConstraintsRuntimeEnforcement):
    definitions = (
        "id integer not null, color text, date_day text, check ((id > 0)), check (id >= 1), primary key (id), "
        "constraint strange_uniqueness_requirement unique (color, date_day), "
        "foreign key (id) references <foreign_key_model_identifier> (id)"
    )
    added = (
        "; alter table <model_identifier> add check ((id > 0)) not valid, add check (id >= 1) not valid, "
        "add primary key (id), add constraint strange_uniqueness_requirement unique (color, date_day), "
        "add foreign key (id) references <foreign_key_model_identifier> (id)"
    )


class QuotedColumnDdl(_Ddl, constraints.TestConstraintQuotedColumn):
    definitions = 'id integer not null, "from" text not null, date_day text, check (("from" = \'blue\'))'
    columns = 'id, "from", date_day'
    query = _QUERY.format("", '"from"')
    added = "; alter table <model_identifier> add check ((\"from\" = 'blue')) not valid"


# Words and statements


class BasicSeedTests(TestBasicSeedTests):
    """A seed replaces its table, so nothing that reads the table is dropped."""

    def _check_relation_end_state(self, run_result, project, exists):
        super()._check_relation_end_state(run_result, project, True)


class SeedConfigFullRefreshOn(TestSeedConfigFullRefreshOn):
    def _check_relation_end_state(self, run_result, project, exists):
        super()._check_relation_end_state(run_result, project, True)


class EphemeralMulti(TestEphemeralMulti):
    def test_ephemeral_multi(self, project):
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        check_relations_equal(project.adapter, ["seed", "dependent", "double_dependent", "super_dependent"])
        sql = _without_spaces(read_file("target", "run", "test", "models", "double_dependent.sql"))
        view = f'createorreplaceview"volary"."{project.test_schema}"."double_dependent"as(with__dbt__cte__baseas('
        assert sql.startswith(view)
        assert sql.count("__dbt__cte__baseas(") == 1


class EphemeralNested(TestEphemeralNested):
    def test_ephemeral_nested(self, project):
        assert len(run_dbt(["run"])) == 2
        schema = f'"volary"."{project.test_schema}"'
        assert _without_spaces(read_file("target", "run", "test", "models", "root_view.sql")) == _without_spaces(
            f'create or replace view {schema}."root_view" as (with __dbt__cte__ephemeral_level_two as ('
            f'select * from {schema}."source_table"), __dbt__cte__ephemeral as ('
            "select * from __dbt__cte__ephemeral_level_two) select * from __dbt__cte__ephemeral)"
        )


def _without_spaces(sql):
    return re.sub(r"\s", "", sql)


class SeedWithWrongDelimiter(TestSeedWithWrongDelimiter):
    def test_seed_with_wrong_delimiter(self, project):
        (result,) = run_dbt(["seed"], expect_pass=False)
        assert "sql parser error" in result.message


class SimpleSeedWithBOM(TestSimpleSeedWithBOM):
    """The file with a byte order mark is beside the original."""

    @pytest.fixture(scope="class", autouse=True)
    def setUp(self, project, test_data_dir):
        project.run_sql(seeds.seeds__expected_sql)
        copy_file(Path(test_data_dir).parent, "seed_bom.csv", project.project_root / "seeds" / "seed_bom.csv", "")


class SimpleSeedColumnOverride(TestSimpleSeedColumnOverride):
    @pytest.fixture(scope="class")
    def models(self):
        names = {"text": "VARCHAR", "integer": "BIGINT", "timestamp without time zone": "TIMESTAMP"}
        kind = re.compile(r"type: (.+)")
        schema = kind.sub(lambda found: f"type: {names.get(found[1], found[1].upper())}", properties__schema_yml)
        return {"schema.yml": schema}


class SimpleCopyUppercase(TestSimpleCopyUppercase):
    @pytest.fixture(scope="class")
    def dbt_profile_target(self, volary_target):
        return volary_target


class PrePostModelHooks(TestPrePostModelHooks):
    """The hooks outside of transactions select, because there is no VACUUM."""

    @pytest.fixture(scope="class")
    def project_config_update(self):
        outside = {"sql": "select count(*) from {{ this.schema }}.on_model_hook", "transaction": False}
        hooks = {"pre-hook": [MODEL_PRE_HOOK, outside], "post-hook": [outside, MODEL_POST_HOOK]}
        return {"models": {"test": hooks}}


class InvalidGrants(TestInvalidGrants):
    def privilege_does_not_exist_error(self):
        return "fake_privilege"


class DoubleLimit(TestShowDoesNotHandleDoubleLimit):
    DATABASE_ERROR_MESSAGE = "sql parser error"


class DateSpine(TestDateSpine):
    """The type of a text is not known, so dates are written as dates."""

    @pytest.fixture(scope="class")
    def models(self):
        from dbt.tests.adapter.utils import fixture_date_spine as fixture

        sql = fixture.models__test_date_spine_sql.replace("target.type == 'postgres'", "true")
        return {
            "test_date_spine.yml": fixture.models__test_date_spine_yml,
            "test_date_spine.sql": self.interpolate_macro_namespace(sql, "date_spine"),
        }


class TypeInt(TestTypeInt):
    """The integers of seeds are BIGINT, if their type is not given."""

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"seeds": {"test": {"+column_types": {"int_col": "integer"}}}}


class CurrentTimestamps(TestCurrentTimestamps):
    @pytest.fixture(scope="class")
    def expected_schema(self):
        return {
            "current_timestamp": "TIMESTAMP WITH TIME ZONE",
            "current_timestamp_in_utc_backcompat": "TIMESTAMP",
            "current_timestamp_backcompat": "TIMESTAMP",
        }

    @pytest.fixture(scope="class")
    def expected_sql(self):
        return """
            select now() as current_timestamp,
                   cast(now() at time zone 'UTC' as timestamp) as current_timestamp_in_utc_backcompat,
                   cast(now() at time zone 'UTC' as timestamp) as current_timestamp_backcompat
        """


def _without_zone(sql):
    """Returns the statement with timestamps that have no time zone. Theirs is `-0`, which only PostgreSQL reads."""
    return sql.replace("-0'", "'")


class Microbatch(microbatch.BaseMicrobatch):
    @pytest.fixture(scope="class")
    def input_model_sql(self):
        return _without_zone(microbatch._input_model_sql)

    @pytest.fixture(scope="class")
    def insert_two_rows_sql(self, project):
        return (
            f"insert into {project.test_schema}.input_model (id, event_time) "
            "values (4, timestamp '2020-01-04'), (5, timestamp '2020-01-05')"
        )


class SampleMode(sample_mode.BaseSampleModeTest):
    @pytest.fixture(scope="class")
    def input_model_sql(self):
        return _without_zone(sample_mode.fixtures.input_model_sql)


def _with_timestamps(module):
    """Writes the ends of valid rows as timestamps. The suite writes them with a function `date`."""
    for name, text in vars(module).items():
        if isinstance(text, str):
            setattr(module, name, re.sub(r"date\(('\d+-\d+-\d+')\)", r"timestamp \1", text))


_with_timestamps(various_configs)
_with_timestamps(new_record_dbt_valid_to_current)

# One of the tests expects the rows of a query without ORDER BY in the order in which they were written.
various_configs.run_sql_with_adapter = lambda adapter, sql, fetch: sorted(
    run_sql_with_adapter(adapter, sql, fetch), key=lambda row: (row[0], row[2])
)


def _check_hooks(self, state, project, host, count=None):
    """Checks what hooks wrote. The original expects a PostgreSQL of the user root."""
    ctxs = [self.get_ctx_vars(state, project)] if count is None else self.get_ctx_vars(state, count, project)
    for ctx in ctxs:
        assert ctx["test_state"] == state
        assert (ctx["target_dbname"], ctx["target_type"]) == ("volary", "volary")
        assert (ctx["target_host"], ctx["target_schema"]) == (host, project.test_schema)
        assert (ctx["target_name"], ctx["target_threads"]) == ("default", 4)
        assert ctx["target_pass"] == ""
        assert ctx["run_started_at"]
        assert ctx["invocation_id"]
        assert ctx["thread_id"].startswith(("Thread-", "MainThread"))


BasePrePostRunHooks.check_hooks = _check_hooks
BaseTestPrePost.check_hooks = lambda self, state, project, host, count=1: _check_hooks(
    self, state, project, host, count
)

CHANGED = tuple(
    kind
    for kind in list(globals().values())
    if isinstance(kind, type) and kind.__module__ == __name__ and kind.__bases__[-1].__module__.startswith("dbt.tests.")
)
