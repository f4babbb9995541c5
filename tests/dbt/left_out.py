"""The tests of `dbt-tests-adapter` that are left out, by module, class or method, and why."""

_NO_FUNCTIONS = "Volary has no functions of users"
_NO_MATERIALIZED_VIEWS = "Volary has no materialized views"
_NO_CLONES = "a copy of a table is no clone, so clones are views, which BaseCloneNotPossible tests"
_HOOKS_CHANGE_TABLES = "the hooks are ALTER TABLE … ADD COLUMN and UPDATE, which Volary does not have"
_HOOKS_VACUUM = "the hooks are VACUUM, which Volary does not need; changed.py has another of these tests without it"

LEFT_OUT = {
    "catalog.relation_types": _NO_MATERIALIZED_VIEWS,
    "dbt_clone.test_dbt_clone.BaseClonePossible": _NO_CLONES,
    "dbt_clone.test_dbt_clone.BaseCloneSameSourceAndTarget": _NO_CLONES,
    "empty.test_empty.BaseTestEmptySeedFlag": "dbt-core reads no seed with --empty before release 1.12",
    "functions": _NO_FUNCTIONS,
    "hooks.test_model_hooks.TestPrePostModelHooksOnSeeds": _HOOKS_CHANGE_TABLES,
    "hooks.test_model_hooks.TestPrePostModelHooksOnSeedsPlusPrefixed": _HOOKS_CHANGE_TABLES,
    "hooks.test_model_hooks.TestPrePostModelHooksOnSeedsPlusPrefixedWhitespace": _HOOKS_CHANGE_TABLES,
    "hooks.test_model_hooks.TestPrePostModelHooksOnSnapshots": _HOOKS_CHANGE_TABLES,
    "hooks.test_model_hooks.TestPrePostSnapshotHooksInConfigKwargs": _HOOKS_CHANGE_TABLES,
    "hooks.test_model_hooks.TestPrePostModelHooksInConfigWithCount": _HOOKS_VACUUM,
    "hooks.test_model_hooks.TestPrePostModelHooksUnderscores": _HOOKS_VACUUM,
    "incremental.test_incremental_merge_exclude_columns": "there is no MERGE: test_volary.py tests that it is refused",
    "materialized_view": _NO_MATERIALIZED_VIEWS,
    "python_model": "Volary runs no Python",
    "simple_copy.test_simple_copy.TestSimpleCopyBase.test_simple_copy_with_materialized_views": _NO_MATERIALIZED_VIEWS,
    "utils.test_current_timestamp.BaseCurrentTimestampNaive": "now() has a time zone",
    "utils.test_escape_single_quotes.BaseEscapeSingleQuotesBackslash": "a quote is escaped by doubling it",
    "utils.test_get_intervals_between.TestGetIntervalsBetween": "its dates are such as 09/01/2023",
}
