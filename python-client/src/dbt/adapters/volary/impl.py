"""The adapter: what dbt and the macros ask for beyond SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from dbt.adapters.base import AdapterConfig, ConstraintSupport, available
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ColumnLevelConstraint, ConstraintType
from dbt_common.exceptions import DbtRuntimeError

from .catalog import catalog_query
from .column import VolaryColumn
from .connections import VolaryConnectionManager
from .relation import VolaryRelation

if TYPE_CHECKING:
    import agate

_ADVICE_OF_STRATEGY = {
    "merge": "there is no MERGE and no UPDATE; `delete+insert` with a unique_key leaves the same rows",
    "insert_overwrite": "there are no partitions; `delete+insert` replaces the rows that have the same unique_key "
    "(which need not be unique: it may be the column that you would partition by), and `microbatch` replaces "
    "periods of time",
}


@dataclass
class VolaryConfig(AdapterConfig):
    """The options of a model's table: those of CREATE TABLE … WITH."""

    shard_key: str | None = None
    shards: int | None = None
    sort_key: str | list[str] | None = None
    reference: bool | None = None


class VolaryAdapter(SQLAdapter):
    """The adapter of dbt for Volary. Most of it are the macros in `dbt/include/volary`."""

    ConnectionManager = VolaryConnectionManager
    Relation = VolaryRelation
    Column = VolaryColumn
    AdapterSpecificConfigs = VolaryConfig

    connections: VolaryConnectionManager

    CONSTRAINT_SUPPORT = {  # noqa: RUF012
        ConstraintType.check: ConstraintSupport.ENFORCED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.primary_key: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_ENFORCED,
    }

    _capabilities = CapabilityDict(
        {
            Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full),
            Capability.GetCatalogForSingleRelation: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadata: CapabilitySupport(support=Support.Unsupported),
            # Batches that replace rows write the whole table anew, so one would undo what another one has done.
            Capability.MicrobatchConcurrency: CapabilitySupport(support=Support.Unsupported),
        }
    )

    @classmethod
    def date_function(cls) -> str:
        """Returns the SQL of the current time."""
        return "now()"

    def debug_query(self) -> None:
        """Runs the statement of `dbt debug`."""
        self.execute("select 1 as id")

    # Types of seeds

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Returns the type of a column of text."""
        return "varchar"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Returns the type of a column of integers."""
        return "bigint"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Returns the type of a column of numbers."""
        import agate

        return "double" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "bigint"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Returns the type of a column of dates with times."""
        return "timestamp"

    @available.parse_none
    def insert_rows(self, relation: VolaryRelation, columns: str, table: agate.Table) -> str:
        """Writes the rows of a seed into a table as one write. Returns the statement, for the log and `target/run`."""
        sql = f"insert into {relation.render()} ({columns}) values ({', '.join('?' for _ in table.column_names)})"
        connection = self.connections.get_thread_connection()
        with self.connections.exception_handler(sql):
            connection.handle.cursor().executemany(self.connections._add_query_comment(sql), list(table.rows))
        return sql

    # Constraints

    @available
    @classmethod
    def render_added_constraints(
        cls, columns: Mapping[str, Mapping[str, Any]], constraints: Iterable[dict[str, Any]]
    ) -> list[str]:
        """Returns the constraints of a contract as ALTER TABLE … ADD takes them.

        NOT NULL is left out: a table that is created from a query has it where the query's columns have it.
        """
        added = []
        for column in columns.values():
            name = cls.quote(column["name"]) if column.get("quote") else column["name"]
            for raw in column.get("constraints") or ():
                if rendered := _of_table(cls._parse_column_constraint(raw), name):
                    added.append(rendered)
        for raw in constraints:
            constraint = cls._parse_model_constraint(raw)
            if constraint.type != ConstraintType.not_null and (rendered := cls.render_model_constraint(constraint)):
                added.append(f"{rendered} not valid" if constraint.type == ConstraintType.check else rendered)
        return added

    # The catalog, for `dbt docs generate`

    def _get_one_catalog(
        self, information_schema: Any, schemas: set[str], used_schemas: frozenset[tuple[str, str]]
    ) -> agate.Table:
        return self._catalog_filter_table(self._catalog(schemas), used_schemas)

    def _get_one_catalog_by_relations(
        self,
        information_schema: Any,
        relations: list[VolaryRelation],
        used_schemas: frozenset[tuple[str, str]],
    ) -> agate.Table:
        schemas = {relation.schema for relation in relations}
        names = {relation.identifier for relation in relations}
        return self._catalog_filter_table(self._catalog(schemas, names), used_schemas)

    def get_catalog_for_single_relation(self, relation: VolaryRelation) -> Any:
        """Returns what the catalog has about one table or view, or None."""
        from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata

        rows = [dict(row.items()) for row in self._catalog({relation.schema}, {relation.identifier}).rows]
        if not rows:
            return None
        first = rows[0]
        return CatalogTable(
            metadata=TableMetadata(
                type=first["table_type"],
                schema=first["table_schema"],
                name=first["table_name"],
                database=first["table_database"],
                comment=first["table_comment"],
                owner=first["table_owner"],
            ),
            columns={
                row["column_name"]: ColumnMetadata(
                    type=row["column_type"],
                    index=int(row["column_index"]),
                    name=row["column_name"],
                    comment=row["column_comment"],
                )
                for row in rows
            },
            stats={},
        )

    def _catalog(self, schemas: set[str], names: set[str] | None = None) -> agate.Table:
        _, table = self.execute(catalog_query(schemas, names), fetch=True)
        return table

    # Incremental models

    def valid_incremental_strategies(self) -> list[str]:
        """Returns the strategies of incremental models."""
        return ["append", "delete+insert", "microbatch"]

    @available.parse_none
    def get_incremental_strategy_macro(self, model_context: Any, strategy: str) -> Any:
        """Returns the macro of a strategy. Says why Volary cannot have some of dbt's strategies."""
        if advice := _ADVICE_OF_STRATEGY.get(strategy):
            raise DbtRuntimeError(f"The incremental strategy '{strategy}' is not valid for Volary: {advice}.")
        return super().get_incremental_strategy_macro(model_context, strategy)

    # What Volary has no statement for

    def rename_relation(self, from_relation: VolaryRelation, to_relation: VolaryRelation) -> NoReturn:
        """Raises an error: nothing can be renamed."""
        raise DbtRuntimeError(
            f"{from_relation} cannot be renamed, because Volary has no ALTER TABLE … RENAME. Create {to_relation} with "
            f"CREATE OR REPLACE TABLE … AS SELECT, which replaces a table in one step, and drop {from_relation}."
        )

    # SQL that dbt's tests and macros ask for

    def timestamp_add_sql(self, add_to: str, number: int = 1, interval: str = "hour") -> str:
        """Returns the SQL of a time that is some intervals later."""
        return f"{add_to} + interval '{number} {interval}'"


def _of_table(constraint: ColumnLevelConstraint, column: str) -> str | None:
    """Returns a constraint of a column as one of its table, or None if it needs none."""
    expression = constraint.expression or ""
    match constraint.type:
        case ConstraintType.check if expression:
            return f"check ({expression}) not valid"
        case ConstraintType.unique:
            return f"unique ({column})"
        case ConstraintType.primary_key:
            return f"primary key ({column})"
        case ConstraintType.foreign_key if constraint.to and constraint.to_columns:
            return f"foreign key ({column}) references {constraint.to} ({', '.join(constraint.to_columns)})"
        case ConstraintType.foreign_key if expression:
            return f"foreign key ({column}) references {expression}"
        case ConstraintType.custom:
            raise DbtRuntimeError(
                f'column {column}: the custom constraint "{expression}" cannot be added to a table that exists; '
                "write a constraint of the model, as ALTER TABLE … ADD takes it"
            )
        case _:
            return None
