use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;

use super::Expr;
use super::push_down::push_down;

/// Returns the fragment with `filter`, an expression over its rows, as near to its scans as
/// possible.
///
/// # Errors
/// An error if an operator cannot be rebuilt.
pub(crate) fn filter_fragment(
    fragment: Arc<dyn ExecutionPlan>,
    filter: &Expr,
) -> Result<Arc<dyn ExecutionPlan>> {
    let filters = split_conjunction(filter).into_iter().cloned().collect();
    push_down(fragment, filters, &|node, filters| {
        Ok(Arc::new(FilterExec::try_new(conjunction(filters), node)?))
    })
}
