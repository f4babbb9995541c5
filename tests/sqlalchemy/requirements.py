"""What the suite may ask of Volary, and what it must not. docs/clients/sqlalchemy.md says the latter to users.

Requirements that are not named here are as SQLAlchemy has them.
"""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements


def _without(*names):
    return {name: property(lambda self: exclusions.closed()) for name in names}


def _with(*names):
    return {name: property(lambda self: exclusions.open()) for name in names}


# Keys and constraints are taken as what they say of a model: none is kept, checked, or made up.
_KEYS = _without(
    "autoincrement_insert",
    "autoincrement_without_sequence",
    "check_constraint_reflection",
    "duplicate_key_raises_integrity_error",
    "foreign_key_constraint_reflection",
    "implicitly_named_constraints",
    "inline_check_constraint_reflection",
    "named_constraints",
    "primary_key_constraint_reflection",
    "unique_constraint_reflection",
)

# There are no indexes: shard and sort keys say where rows are.
_INDEXES = _without(
    "index_ddl_if_exists",
    "index_reflection",
    "indexes_with_ascdesc",
    "indexes_with_expressions",
    "reflect_indexes_with_ascdesc",
)

# Columns are a name, a type and whether there are NULLs: no defaults, generated values, comments and collations.
_COLUMNS = _without(
    "column_collation_reflection",
    "comment_reflection",
    "computed_columns",
    "expression_server_defaults",
    "identity_columns",
    "server_defaults",
)

# Tables and views are in one schema, for all sessions, and views keep no rows.
_TABLES = _without(
    "create_temp_table_as",
    "cross_schema_fk_reflection",
    "default_schema_name_switch",
    "has_temp_table",
    "materialized_views",
    "schema_create_delete",
    "schemas",
    "temp_table_names",
    "temp_table_reflection",
    "temporary_views",
)

# Rows are appended, and tables dropped: there are no UPDATE and DELETE.
_WRITES = _without("ctes_with_update_delete", "delete_from", "update_from")

# Each statement commits by itself: nothing is rolled back, and there is no other isolation level to go to and back.
_TRANSACTIONS = _without("autocommit", "savepoints", "skip_autocommit_rollback")

# The planner wants the columns of a query to have different names, and knows LIMIT only.
_QUERIES = _without("duplicate_names_in_cursor_description", "fetch_percent", "fetch_ties")

# JSON is text, and times of day have no zone.
_TYPES = _without("legacy_unconditional_json_extract", "time_timezone")

# What SQLAlchemy takes no database to have, and Volary has.
_MORE = _with(
    "array_type",
    "create_or_replace_view",
    "create_table_as",
    "ctes",
    "ctes_with_values",
    "date_historic",
    "datetime_historic",
    "datetime_interval",
    "datetime_literals",
    "datetime_timezone",
    "datetime_timezone_historic",
    "fetch_expression",
    "fetch_first",
    "fetch_no_order_by",
    "float_or_double_precision_behaves_generically",
    "infinity_floats",
    "isolation_level",
    "json_type",
    "percent_schema_names",
    "precision_numerics_many_significant_digits",
    "precision_numerics_retains_significant_digits",
    "reflect_table_options",
    "regexp_match",
    "regexp_replace",
    "schema_reflection",
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
