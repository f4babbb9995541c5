use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_coop::EnsureCooperative;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use volary_exec::instants::plan_in_utc;
use volary_exec::unambiguous_pushdown::UnambiguousPushdown;
use volary_flight_proto::Result;

/// Pushes filters into Parquet scans, including filters that are known only while the fragment runs
/// (those of joins and top-k).
///
/// # Errors
/// Returns the errors of the rules.
pub fn optimize(
    mut plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let rules: [&dyn PhysicalOptimizerRule; 3] = [
        &UnambiguousPushdown(Arc::new(FilterPushdown::new())),
        &EnsureCooperative::new(),
        // This rule keeps references into the plan, so it is the last one.
        &UnambiguousPushdown(Arc::new(FilterPushdown::new_post_optimization())),
    ];
    for rule in rules {
        plan = rule.optimize(plan, config)?;
    }
    Ok(plan)
}

/// Returns the settings that fragments run with.
pub fn session_config(batch_rows: usize, target_partitions: usize) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_batch_size(batch_rows.max(1))
        .with_target_partitions(target_partitions.max(1));
    let options = config.options_mut();
    // A partition is a set of shards, so it must not read the files of another partition.
    options.execution.enable_file_stream_work_stealing = false;
    // Each scan says for itself whether it filters while it reads: see
    // ShardScan::late_materialisation.
    options.execution.parquet.pushdown_filters = false;
    options.execution.parquet.reorder_filters = true;
    // The dynamic filter that DataFusion makes of aggregates overlooks aggregates of expressions
    // (apache/datafusion#24816).
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    plan_in_utc(options);
    config
}
