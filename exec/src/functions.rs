use std::sync::Arc;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

use crate::value_limit::bounded_aggregates;
use crate::{
    checked_arithmetic, checked_sum, date_bin, date_part, date_trunc, from_unixtime, instants,
    integer_rounding, intervals, map_extract, math_order, postgres, row_numbers, single_row,
    text_casts, timestamp_diff, uuids, zoned_sum,
};
use volary_node::memory::ByteLimit;

/// Returns the functions that DataFusion does not have, or that replace those of DataFusion, except
/// those with limits.
pub fn scalar_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let others = [
        date_bin::date_bin(),
        date_part::date_part(),
        date_trunc::date_trunc(),
        from_unixtime::from_unixtime(),
        intervals::length(),
        map_extract::map_extract(),
        single_row::single_row(),
        timestamp_diff::timestamp_diff(),
        uuids::random_uuid(),
    ];
    let functions = instants::functions().into_iter();
    let functions = functions.chain(math_order::functions());
    let functions = functions.chain(integer_rounding::functions());
    let functions = functions.chain(text_casts::functions());
    let functions = functions.chain(intervals::functions());
    let functions = functions.chain(postgres::functions());
    functions
        .chain(checked_arithmetic::functions())
        .chain(zoned_sum::functions())
        .chain(others)
}

/// Returns the aggregates that replace those of DataFusion. `available` are DataFusion's, and
/// `limit` limits the values that they make.
pub fn aggregates<'a>(
    available: impl IntoIterator<Item = &'a Arc<AggregateUDF>>,
    limit: ByteLimit,
) -> impl Iterator<Item = Arc<AggregateUDF>> {
    let bounded = bounded_aggregates(available, limit).into_iter();
    bounded
        .chain([checked_sum::checked_sum()])
        .chain(intervals::aggregates())
}

/// Returns the window functions that replace those of DataFusion.
pub fn window_functions() -> impl Iterator<Item = Arc<WindowUDF>> {
    row_numbers::window_functions().into_iter()
}
