//! Filters that are known only while a query runs: the keys of a join's small side narrow the scans of its other side.
//!
//! A hash join on the gateway reads its build side first, and then says in a [`DynamicFilterPhysicalExpr`] which keys can match.
//! By the time a gather on the probe side is polled, that is known: the fragment is sent with the filter above its scans, and
//! workers send only rows that can find a partner. A filter only ever leaves out rows that the join would throw away, so
//! that a weaker one, or none, is right as well.

/// What can be said of the keys that find a partner.
mod condition;
/// Which expressions cannot fail.
mod fallible;
/// What a filter of several keys says of one of them.
mod one_key;
/// Where a filter goes within a fragment.
mod place;
/// What joins say.
mod reader;
/// How far down a plan filters may go that only leave out rows.
mod take_down;
#[cfg(test)]
mod tests;
/// Which conditions leave out enough to be sent.
mod worth;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Statistics;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, InListExpr};
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use futures::FutureExt;

pub use one_key::{known_keys, of_each_key};
pub use place::place;
pub use take_down::{Stay, take_down};

use fallible::may_fail;
use reader::{Keep, Reader};

type Expr = Arc<dyn PhysicalExpr>;

/// Which rows can find a partner.
#[derive(Debug, Clone)]
pub enum Narrowed {
    /// All, as far as is known.
    All,
    /// None: the fragment need not run.
    None,
    /// Those for which this is true. It can be sent to workers.
    To(Expr),
}

impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all rows"),
            Self::None => f.write_str("no row"),
            Self::To(filter) => {
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

/// What the joins above know by now. Lists of keys are sent if they have at most `max_values` different ones, and bounds if they
/// leave out some of the rows that `statistics` tell of.
///
/// # Errors
/// If an expression does not fit `schema`, that of the fragment's rows.
pub fn narrowed(
    filters: &[Expr],
    schema: &Schema,
    statistics: &Statistics,
    max_values: usize,
) -> Result<Narrowed> {
    let mut parts = Vec::new();
    for filter in filters {
        let Some(dynamic) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() else {
            continue;
        };
        // A join that has not seen its whole build side knows nothing yet; to wait for it could be to wait for oneself.
        if dynamic.wait_complete().now_or_never().is_none() {
            continue;
        }
        match (Reader { max_values }).read(&dynamic.current()?) {
            Keep::All => {}
            Keep::None => return Ok(Narrowed::None),
            Keep::Where(conditions) => {
                for condition in worth::sending(&conditions, statistics) {
                    let part = condition.into_expression(schema)?;
                    // Workers evaluate it before other conditions.
                    if !may_fail(&part, schema) {
                        parts.push(part);
                    }
                }
            }
        }
    }
    Ok(if parts.is_empty() {
        Narrowed::All
    } else {
        Narrowed::To(conjunction(parts))
    })
}
