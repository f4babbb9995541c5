//! Constants that are not computed while a statement is planned.
//!
//! DataFusion computes what it can of a statement while it plans it, and puts the value in the place of the call. Each rule that comes after
//! that copies the plan, and columns are named by their expressions: of a value of 40 MB there were thirty copies, and planning
//! took seconds. So calls that make large values stay calls.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// What a call makes that is computed while a statement is planned, in bytes.
pub(super) const MOST_BYTES: u64 = 64 << 10;

thread_local! {
    static IS_FOLDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread computes constants of a statement that is planned.
pub(super) fn is_folding() -> bool {
    IS_FOLDING.get()
}

/// A rule that computes constants, but for large ones.
#[derive(Debug)]
pub struct SmallConstants(Arc<dyn OptimizerRule + Send + Sync>);

impl SmallConstants {
    /// The same rule for everything else.
    pub fn of(rule: Arc<dyn OptimizerRule + Send + Sync>) -> Self {
        Self(rule)
    }
}

impl OptimizerRule for SmallConstants {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let _folding = Folding::begin();
        self.0.rewrite(plan, config)
    }
}

struct Folding;

impl Folding {
    fn begin() -> Self {
        IS_FOLDING.set(true);
        Self
    }
}

impl Drop for Folding {
    fn drop(&mut self) {
        IS_FOLDING.set(false);
    }
}
