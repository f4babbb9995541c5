"""Says which features the suite may expect of Volary. docs/clients/sqlalchemy.md lists the missing ones for users.

Requirements that are not named here keep SQLAlchemy's defaults.
"""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements


def _without(*names):
    return {name: property(lambda self: exclusions.closed()) for name in names}


def _with(*names):
    return {name: property(lambda self: exclusions.open()) for name in names}


# Keys describe a model. They are stored and reflected, but not checked. The server generates none.
_KEYS = _without("autoincrement_insert", "autoincrement_without_sequence", "duplicate_key_raises_integrity_error")

# There are no indexes. Shard and sort keys determine where rows are.
_INDEXES = _without(
    "index_ddl_if_exists",
    "index_reflection",
    "indexes_with_ascdesc",
    "indexes_with_expressions",
    "reflect_indexes_with_ascdesc",
)

# A column has a default, but no generated value and no collation.
_COLUMNS = _without("column_collation_reflection", "computed_columns", "identity_columns")

# The suite expects temporary tables in all connections of a pool. Views store no rows.
_TABLES = _without(
    "create_temp_table_as",
    "has_temp_table",
    "materialized_views",
    "temp_table_names",
    "temp_table_reflection",
    "temporary_views",
)

# Rows can be appended and tables dropped, but there is no UPDATE and no DELETE.
_WRITES = _without("ctes_with_update_delete", "delete_from", "update_from")

# Each statement commits by itself. There is no rollback, and there is only one isolation level.
_TRANSACTIONS = _without("autocommit", "savepoints", "skip_autocommit_rollback")

# FETCH supports neither PERCENT nor WITH TIES.
_QUERIES = _without("fetch_percent", "fetch_ties")

# JSON is text, and times of day have no time zone.
_TYPES = _without("legacy_unconditional_json_extract", "time_timezone")

# Features that SQLAlchemy does not expect of a database, but that Volary has.
_MORE = _with(
    "array_type",
    "check_constraint_reflection",
    "comment_reflection",
    "comment_reflection_full_unicode",
    "create_or_replace_view",
    "create_table_as",
    "cross_schema_fk_reflection",
    "ctes",
    "ctes_with_values",
    "date_historic",
    "datetime_historic",
    "datetime_interval",
    "datetime_literals",
    "datetime_timezone",
    "datetime_timezone_historic",
    "default_schema_name_switch",
    "expression_server_defaults",
    "fetch_expression",
    "fetch_first",
    "fetch_no_order_by",
    "fk_constraint_option_reflection_ondelete_restrict",
    "fk_constraint_option_reflection_onupdate_restrict",
    "float_or_double_precision_behaves_generically",
    "foreign_key_constraint_name_reflection",
    "foreign_key_constraint_option_reflection_ondelete",
    "foreign_key_constraint_option_reflection_onupdate",
    "infinity_floats",
    "inline_check_constraint_reflection",
    "isolation_level",
    "json_type",
    "percent_schema_names",
    "precision_numerics_many_significant_digits",
    "precision_numerics_retains_significant_digits",
    "reflect_table_options",
    "reflects_pk_names",
    "regexp_match",
    "regexp_replace",
    "schema_create_delete",
    "schema_reflection",
    "schemas",
    "server_defaults",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_or",
    "supports_bitwise_shift",
    "supports_bitwise_xor",
    "supports_distinct_on",
    "table_ddl_if_exists",
    "table_value_constructor",
    "timestamp_microseconds",
    "tuple_in",
    "unicode_ddl",
    "unique_constraint_reflection",
    "uuid_data_type",
    "views",
    "window_functions",
    "window_range",
    "window_range_non_numeric",
    "window_range_numeric",
)

_GROUPS = (_KEYS, _INDEXES, _COLUMNS, _TABLES, _WRITES, _TRANSACTIONS, _QUERIES, _TYPES, _MORE)

Requirements = type(
    "Requirements", (SuiteRequirements,), {name: is_ for group in _GROUPS for name, is_ in group.items()}
)
