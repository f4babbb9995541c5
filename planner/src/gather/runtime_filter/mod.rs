//! The keys of a join's small side narrow the scans of its other side.
//!
//! A hash join on the gateway reads its build side first. Then it writes the keys that can match
//! into a [`DynamicFilterPhysicalExpr`]. By the time a gather on the probe side is polled, these
//! keys are known. The fragment is sent with the filter above its scans, so workers send only rows
//! that can find a partner. A filter only leaves out rows that the join would discard, so a weaker
//! filter, or none, is also correct.

/// Represents conditions on the keys that can find a partner in a join.
mod condition;
/// Decides which expressions cannot fail.
mod fallible;
/// Places a filter within a fragment.
mod fragment_filter;
/// Pushes filters down a plan, as far as they may go.
mod push_down;
/// Reads the conditions that joins write for the keys that they have seen.
mod reader;
/// Decides which conditions leave out enough rows to be worth sending.
mod selectivity;
/// Derives filters on one key from a join's filter on several keys.
mod single_key;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Statistics;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, InListExpr};
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use futures::FutureExt;

pub(crate) use fragment_filter::filter_fragment;
pub(crate) use push_down::push_down;
pub(crate) use single_key::{resolved_keys, split_by_key};

use fallible::may_fail;
use reader::{FilterReader, KeptRows};

type Expr = Arc<dyn PhysicalExpr>;

/// The rows that can find a partner.
#[derive(Debug, Clone)]
pub(crate) enum NarrowedRows {
    /// All rows, as far as is known.
    All,
    /// No row, so that the fragment need not run.
    None,
    /// The rows for which this expression is true. The expression can be sent to workers.
    Matching(Expr),
}

impl fmt::Display for NarrowedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all rows"),
            Self::None => f.write_str("no row"),
            Self::Matching(filter) => {
                let mut separator = "";
                for part in split_conjunction(filter) {
                    f.write_str(separator)?;
                    match part.downcast_ref::<InListExpr>() {
                        Some(list) => write!(f, "{} IN ({} values)", list.expr(), list.len())?,
                        None => write!(f, "{part}")?,
                    }
                    separator = " AND ";
                }
                Ok(())
            }
        }
    }
}

/// Returns the rows that can match, as far as the joins above the gather know them by now. A list
/// of keys is sent if it has at most `max_values` different keys. Bounds are sent if they leave out
/// some of the rows that `statistics` describe.
///
/// # Errors
/// An error if an expression does not fit `schema`, the schema of the fragment's rows.
pub(crate) fn narrow(
    filters: &[Expr],
    schema: &Schema,
    statistics: &Statistics,
    max_values: usize,
) -> Result<NarrowedRows> {
    let mut parts = Vec::new();
    for filter in filters {
        let Some(dynamic) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() else {
            continue;
        };
        // A join that has not read its whole build side knows nothing yet. It may itself be waiting
        // for this gather, so waiting for the join could deadlock.
        if dynamic.wait_complete().now_or_never().is_none() {
            continue;
        }
        match (FilterReader { max_values }).read(&dynamic.current()?) {
            KeptRows::All => {}
            KeptRows::None => return Ok(NarrowedRows::None),
            KeptRows::Where(conditions) => {
                for condition in selectivity::select_useful(&conditions, statistics) {
                    let part = condition.into_expression(schema)?;
                    // Workers may evaluate the filter before other conditions, so it must not fail.
                    if !may_fail(&part, schema) {
                        parts.push(part);
                    }
                }
            }
        }
    }
    Ok(if parts.is_empty() {
        NarrowedRows::All
    } else {
        NarrowedRows::Matching(conjunction(parts))
    })
}
