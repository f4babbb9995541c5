"""The tests of Ibis that Volary does not pass, and why.

`suite` expects each of them to fail, so a test that begins to pass must be removed here.
"""

from __future__ import annotations

# Tests with these fixtures are skipped.
SKIPPED = {
    "snapshot": "compares SQL with files that Ibis keeps for its own backends",
    "assert_sql": "compares SQL with files that Ibis keeps for its own backends",
}

# A test without its parameters stands for all of its variants.
FAILING = {
    "it looks up what its backend returns, and knows only Ibis' own backends": [
        "test_binary.py::test_binary_literal",
        "test_client.py::test_list_catalogs",
        "test_client.py::test_list_database_contents",
        "test_generic.py::test_boolean_literal",
        "test_generic.py::test_null_literal",
        "test_generic.py::test_null_literal_typed_typeof",
        "test_network.py::test_inet_literal",
        "test_network.py::test_macaddr_literal",
        "test_numeric.py::test_decimal_literal",
        "test_numeric.py::test_numeric_literal",
        "test_string.py::test_string_literal",
        "test_temporal.py::test_date_literal",
        "test_temporal.py::test_interval_literal",
        "test_temporal.py::test_time_literal",
        "test_temporal.py::test_timestamp_literal",
        "test_uuid.py::test_uuid_literal",
    ],
    "rows of a table cannot be changed or deleted": [
        "test_client.py::test_insert_overwrite_from_dataframe",
        "test_client.py::test_insert_overwrite_from_expr",
        "test_client.py::test_insert_overwrite_from_list",
        "test_client.py::test_upsert_from_dataframe",
        "test_client.py::test_upsert_from_expr",
        "test_client.py::test_upsert_from_memtable",
    ],
    "a table cannot be renamed": ["test_client.py::test_rename_table"],
    "create_table creates no temporary tables": [
        "test_client.py::test_create_table_overwrite_temp[volary-temp overwrite]",
        "test_client.py::test_create_table_overwrite_temp[volary-temp, no overwrite]",
        "test_client.py::test_create_temporary_table_from_schema",
    ],
    "functions of Python do not run on the server": [
        "test_aggregation.py::test_aggregate[volary-mean_udf]",
        "test_aggregation.py::test_aggregate_grouped[volary-mean_udf]",
        "test_aggregation.py::test_aggregate_list_like",
        "test_aggregation.py::test_aggregate_mixed_udf",
        "test_impure.py::test_chained_selections[volary-udf]",
        "test_window.py::test_grouped_unbounded_window[volary-mean_udf]",
        "test_window.py::test_ungrouped_bounded_expanding_window[volary-mean_udf]",
        "test_window.py::test_ungrouped_unbounded_window[volary-ordered-mean_udf]",
        "test_window.py::test_ungrouped_unbounded_window[volary-ordered-zscore_udf]",
        "test_window.py::test_ungrouped_unbounded_window[volary-unordered-mean_udf]",
        "test_window.py::test_ungrouped_unbounded_window[volary-unordered-zscore_udf]",
        "test_impure.py::test_impure_correlated[volary-udf]",
        "test_impure.py::test_impure_uncorrelated_different_id[volary-udf]",
        "test_impure.py::test_impure_uncorrelated_same_id[volary-udf]",
        "test_udf.py::test_map_merge_udf",
        "test_udf.py::test_map_udf",
        "test_udf.py::test_udf",
        "test_udf.py::test_vectorized_udf",
    ],
    "there is no function mode": [
        "test_aggregation.py::test_aggregate[volary-mode]",
        "test_aggregation.py::test_aggregate_grouped[volary-mode]",
        "test_aggregation.py::test_reduction_ops[volary-no_cond-mode]",
        "test_aggregation.py::test_reduction_ops[volary-is_in-mode]",
        "test_array.py::test_array_agg_numeric[volary-nulls-modes]",
        "test_array.py::test_array_agg_numeric[volary-no-nulls-modes]",
        "test_generic.py::test_table_describe[volary-all_cols]",
        "test_generic.py::test_table_describe[volary-string_col]",
    ],
    "there is no function kurtosis": [
        "test_aggregation.py::test_reduction_ops[volary-no_cond-kurtosis_samp]",
        "test_aggregation.py::test_reduction_ops[volary-is_in-kurtosis_samp]",
    ],
    "quantiles are those of numbers": [
        "test_aggregation.py::test_date_quantile",
        "test_aggregation.py::test_string_quantile",
    ],
    "string_agg cannot be computed over a moving window": ["test_aggregation.py::test_group_concat_over_window"],
    "there are no lambdas": [
        "test_array.py::test_array_filter",
        "test_array.py::test_array_filter_with_index",
        "test_array.py::test_array_filter_with_index_lambda",
        "test_array.py::test_array_map",
        "test_array.py::test_array_map_with_conflicting_names",
        "test_array.py::test_array_map_with_index",
        "test_array.py::test_complex_array_map",
        "test_array.py::test_table_unnest_column_expr",
    ],
    "the fields of zipped lists cannot be renamed": [
        "test_array.py::test_zip",
        "test_array.py::test_zip_null",
        "test_array.py::test_zip_unnest_lift",
    ],
    "there are no such joins": [
        "test_asof_join.py::test_asof_join",
        "test_asof_join.py::test_keyed_asof_join",
        "test_asof_join.py::test_keyed_asof_join_with_tolerance",
        "test_asof_join.py::test_noop_keyed_asof_join",
        "test_join.py::test_positional_join",
    ],
    "INTERSECT ALL and EXCEPT ALL are refused": [
        "test_set_ops.py::test_difference[volary-all]",
        "test_set_ops.py::test_intersect[volary-all]",
        "test_set_ops.py::test_top_level_intersect_difference[volary-False-intersect-False]",
        "test_set_ops.py::test_top_level_intersect_difference[volary-False-difference-False]",
        "test_set_ops.py::test_top_level_intersect_difference[volary-True-intersect-False]",
        "test_set_ops.py::test_top_level_intersect_difference[volary-True-difference-False]",
    ],
    "limits and offsets are constants": [
        "test_generic.py::test_dynamic_table_slice",
        "test_generic.py::test_dynamic_table_slice_with_computed_offset",
    ],
    "bounds of windows are constants": ["test_window.py::test_range_expression_bounds"],
    "there is no function that hashes any value": ["test_generic.py::test_hash"],
    "there are no row ids": ["test_column.py::test_rowid"],
    "samples cannot be repeated": ["test_generic.py::test_sample_with_seed"],
    "no function splits text at a regular expression": [
        "test_string.py::test_re_split",
        "test_string.py::test_re_split_column",
        "test_string.py::test_re_split_column_multiple_patterns",
    ],
    "no function merges maps": [
        "test_map.py::test_column_map_merge",
        "test_map.py::test_literal_map_merge",
        "test_map.py::test_map_merge_nulls",
    ],
    "a small table in memory is written into the statement, and so has no name": [
        "test_client.py::test_memtable_cleanup",
        "test_sql.py::test_to_sql_default_backend",
    ],
    "raw_sql returns a result of the client, and not a cursor": ["test_client.py::test_create_table_timestamp"],
    "Ibis' own implementation has no such format or option": [
        "test_export.py::test_roundtrip_delta",
        "test_export.py::test_roundtrip_partitioned_parquet",
        "test_export.py::test_to_json",
    ],
    "it needs extensions of DuckDB": ["test_io.py::test_read_garbage"],
    "NaN is a number, and not NULL": ["test_generic.py::test_column_fill_null[volary-nan_col]"],
    "it expects NULL where timestamps are numbers of seconds": [
        "test_generic.py::test_try_cast_func[volary-datetime-to-float]",
        "test_generic.py::test_try_cast_null[volary-2023-01-01 00:00:00-int]",
    ],
    "each reference to a query computes uuid() anew": ["test_impure.py::test_self_join_with_generated_keys"],
    "a comma is a character like others": [
        "test_string.py::test_string_methods_accents_and_emoji[volary-find_in_set_w_comma]"
    ],
    "the join of an empty array is an empty text": ["test_string.py::test_empty_array_string_join[volary]"],
}
_REASONS = {test: reason for reason, tests in FAILING.items() for test in tests}


def reason_of(test: str) -> str | None:
    """Returns why a test, written as `file::name`, fails."""
    return _REASONS.get(test) or _REASONS.get(test.partition("[")[0])
