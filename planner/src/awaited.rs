//! A statement is planned within one poll, and an aborted task ends only between two polls. The
//! planning of a statement with thousands of columns takes half a minute. Meanwhile its client may
//! have gone, or its deadline may have passed. So each rule first checks whether anybody still
//! waits for the plan.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use volary_node::runtimes::check_awaited;

/// A rule of the analyzer.
pub(crate) type DynAnalyzerRule = dyn AnalyzerRule + Send + Sync;
/// A rule of the logical optimizer.
pub(crate) type DynLogicalRule = dyn OptimizerRule + Send + Sync;
/// A rule of the physical optimizer.
pub(crate) type DynPhysicalRule = dyn PhysicalOptimizerRule + Send + Sync;

/// Wraps a rule, and fails before running it if nobody waits for the plan any more.
#[derive(Debug)]
pub(crate) struct AwaitedRule<R: ?Sized>(pub(crate) Arc<R>);

impl AnalyzerRule for AwaitedRule<DynAnalyzerRule> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> DfResult<LogicalPlan> {
        check_awaited()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for AwaitedRule<DynLogicalRule> {
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
    ) -> DfResult<Transformed<LogicalPlan>> {
        check_awaited()?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for AwaitedRule<DynPhysicalRule> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        check_awaited()?;
        self.0.optimize(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use datafusion::execution::SessionStateBuilder;
    use datafusion::execution::session_state::SessionState;
    use futures::FutureExt;
    use volary_flight_proto::{Error, ErrorCode};
    use volary_node::runtimes::OwnedRuntimes;

    use super::*;
    use crate::rules::{analyzer_rules, logical_rules, physical_rules};

    fn state() -> SessionState {
        SessionStateBuilder::new()
            .with_default_features()
            .with_analyzer_rules(analyzer_rules(Vec::new()))
            .with_optimizer_rules(logical_rules())
            .with_physical_optimizer_rules(physical_rules())
            .build()
    }

    /// Returns the error of each rule, or `None`, for the logical or the physical plan.
    fn failures(
        state: &SessionState,
        plan: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Vec<Option<Error>> {
        let config = state.config_options();
        let analyzing = state.analyzer().rules.iter();
        let analyzed = analyzing.map(|rule| rule.analyze(plan.clone(), config).err());
        let logical = state.optimizers().iter();
        let rewritten = logical.map(|rule| rule.rewrite(plan.clone(), state).err());
        let optimizing = state.physical_optimizers().iter();
        let optimized = optimizing.map(|rule| rule.optimize(Arc::clone(physical), config).err());
        let failures = analyzed.chain(rewritten).chain(optimized);
        failures.map(|error| error.map(Error::from)).collect()
    }

    #[tokio::test]
    async fn every_rule_fails_when_nobody_waits_any_more() {
        let state = state();
        let sql = "SELECT 1 + 1 AS two";
        let plan = state.create_logical_plan(sql).await.unwrap();
        let physical = state.create_physical_plan(&plan).await.unwrap();
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (said, is_said) = mpsc::channel();
        let mut planning = Box::pin(runtimes.handles().on_cpu(async move {
            begun.send(()).unwrap();
            while check_awaited().is_ok() {
                std::thread::yield_now();
            }
            said.send(failures(&state, &plan, &physical)).unwrap();
            Ok(())
        }));
        assert!((&mut planning).now_or_never().is_none());
        has_begun.recv().unwrap();
        drop(planning);
        for failure in is_said.recv().unwrap() {
            assert_eq!(failure.unwrap().code(), ErrorCode::Cancelled);
        }
    }
}
