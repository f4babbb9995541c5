//! DataFusion computes constant expressions while it plans a statement, and replaces each call by
//! its value. Each later rule copies the plan, and columns are named after their expressions. A
//! value of 40 MB was copied thirty times, and planning took seconds. So calls that make large
//! values stay calls. The same holds for calls that compute for long, and for all calls of a
//! statement whose constants have taken too long together. Operators that run a statement can be
//! stopped, but rules that plan it cannot.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::checked_arithmetic::check_constants;

/// Size in bytes above which a value is not computed while a statement is planned.
pub(super) const MAX_BYTES: u64 = 64 << 10;
/// Number of steps above which a call is not computed while a statement is planned. They take about
/// ten milliseconds.
pub(super) const MAX_STEPS: u64 = 1 << 22;
/// Time that the constants of one statement may take together.
const MAX_TIME: Duration = Duration::from_millis(500);

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget::of(None)) };
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time that is left for the constants of the statement that this thread planned last. One
/// thread plans a statement from the first rule to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    /// Time at which the planning of the statement began. It identifies the statement.
    statement: Option<DateTime<Utc>>,
    left: Duration,
}

impl Budget {
    const fn of(statement: Option<DateTime<Utc>>) -> Self {
        Self {
            statement,
            left: MAX_TIME,
        }
    }

    /// Returns the budget that is left for this statement.
    fn for_statement(self, statement: Option<DateTime<Utc>>) -> Self {
        if self.statement == statement {
            self
        } else {
            Self::of(statement)
        }
    }

    fn without(self, spent: Duration) -> Self {
        Self {
            left: self.left.saturating_sub(spent),
            ..self
        }
    }
}

/// Returns whether this thread is computing constants of a statement that is being planned.
pub(super) fn is_folding() -> bool {
    UNTIL.get().is_some()
}

/// Returns whether this thread is computing constants and the statement's time for them is over.
pub(super) fn is_out_of_time() -> bool {
    UNTIL.get().is_some_and(|until| Instant::now() >= until)
}

/// A rule that computes constants, except for large ones and for those that would wrap around.
#[derive(Debug)]
pub struct SmallConstantFolding(Arc<dyn OptimizerRule + Send + Sync>);

impl SmallConstantFolding {
    /// Wraps a rule that computes constants.
    pub fn of(rule: Arc<dyn OptimizerRule + Send + Sync>) -> Self {
        Self(rule)
    }
}

impl OptimizerRule for SmallConstantFolding {
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
        let statement = config.query_execution_start_time();
        // The rule is needed even if no time is left: it also replaces calls that cannot be
        // executed, such as `arrow_cast`.
        let _folding = FoldingGuard::begin(BUDGET.get().for_statement(statement));
        let checked = check_constants(plan)?;
        let rewritten = self.0.rewrite(checked.data, config)?;
        let is_changed = checked.transformed || rewritten.transformed;
        Ok(Transformed {
            transformed: is_changed,
            ..rewritten
        })
    }
}

/// Subtracts the elapsed time from the statement's budget when it is dropped.
struct FoldingGuard {
    budget: Budget,
    since: Instant,
}

impl FoldingGuard {
    fn begin(budget: Budget) -> Self {
        let since = Instant::now();
        UNTIL.set(Some(since + budget.left));
        Self { budget, since }
    }
}

impl Drop for FoldingGuard {
    fn drop(&mut self) {
        UNTIL.set(None);
        BUDGET.set(self.budget.without(self.since.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::TreeNode;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::functions::core::expr_fn::arrow_cast;
    use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
    use datafusion::optimizer::simplify_expressions::SimplifyExpressions;

    use super::*;

    #[test]
    fn what_cannot_be_executed_is_replaced_when_no_time_is_left() {
        let mut state = SessionStateBuilder::new().with_default_features().build();
        state.mark_start_execution();
        let statement = state.query_execution_start_time();
        assert!(statement.is_some());
        BUDGET.set(Budget::of(statement).without(MAX_TIME));
        let plan = LogicalPlanBuilder::empty(true)
            .project([arrow_cast(lit(1_i64), lit("Int32"))])
            .and_then(LogicalPlanBuilder::build)
            .unwrap();
        let rule = SmallConstantFolding::of(Arc::new(SimplifyExpressions::new()));
        let plan = rule.rewrite(plan, &state).unwrap().data;
        for expression in plan.expressions() {
            let is_call = |part: &Expr| Ok(matches!(part, Expr::ScalarFunction(_)));
            assert!(!expression.exists(is_call).unwrap(), "{expression}");
        }
    }

    #[test]
    fn the_constants_of_one_statement_share_their_time() {
        let (first, second) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
        let budget = Budget::of(Some(first)).without(MAX_TIME / 2);
        assert_eq!(budget.for_statement(Some(first)).left, MAX_TIME / 2);
        let spent = budget.without(MAX_TIME);
        assert!(spent.for_statement(Some(first)).left.is_zero());
        assert_eq!(spent.for_statement(Some(second)), Budget::of(Some(second)));
    }

    #[test]
    fn a_thread_that_computes_constants_knows_when_it_is_late() {
        assert!(!is_folding() && !is_out_of_time());
        {
            let _folding = FoldingGuard::begin(Budget::of(None).without(MAX_TIME));
            assert!(is_folding() && is_out_of_time());
        }
        assert!(!is_folding() && !is_out_of_time());
        assert!(BUDGET.get().left.is_zero());
    }
}
