use std::borrow::Cow;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
    replace_children_if_necessary,
};

use crate::fragment::{ShardScanExec, encode};
use crate::gather::{GatherExec, merged_properties};
use crate::locality::{Locality, locality};
use crate::{late_materialisation, targets};

/// Puts every maximal shard-local subtree below a [`GatherExec`].
///
/// A gather declares its real, small number of partitions, and no hash partitioning. Operators
/// above it can no longer rely on the partitioning of the scan. So the planner's own rule for
/// distribution must run again after this rule.
#[derive(Debug)]
pub(crate) struct Cut;

impl PhysicalOptimizerRule for Cut {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let cutter = Cutter {
            target_partitions: config.execution.target_partitions.max(1),
        };
        let cut = cutter.cut(plan)?;
        cutter.gather(cut, None, "it is the whole query".into())
    }

    fn name(&self) -> &'static str {
        "Cut"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

struct Cutter {
    target_partitions: usize,
}

/// A plan whose parts on the gateway already have fragments below them.
struct CutPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// The plan as a worker sees it, if it can run on a worker. The gateway plans with statistics
    /// of the catalog that workers do not have. Without them, an operator may have other
    /// properties: for example, a filter may no longer prove that a column is constant.
    worker_plan: Option<Arc<dyn ExecutionPlan>>,
    /// The place where the root of the plan can run.
    locality: Locality,
    /// The depth of the plan's message: see [`encode::levels`].
    levels: usize,
}

impl Cutter {
    fn cut(&self, plan: Arc<dyn ExecutionPlan>) -> Result<CutPlan> {
        let children = plan
            .children()
            .into_iter()
            .map(|child| self.cut(Arc::clone(child)))
            .collect::<Result<Vec<_>>>()?;
        let localities: Vec<_> = children
            .iter()
            .map(|child| child.locality.clone())
            .collect();
        let levels = encode::levels(&plan, children.iter().map(|child| child.levels))?;
        let reason = match locality(&plan, &localities) {
            Locality::Gateway(reason) => reason,
            worker_locality => {
                let inputs = children
                    .iter()
                    .filter_map(|child| child.worker_plan.clone());
                match plan_for_worker(&plan, inputs.collect(), levels) {
                    // Nothing was gathered below a root that runs on workers, so the children are
                    // unchanged.
                    Ok(worker_plan) => {
                        return Ok(CutPlan {
                            plan,
                            worker_plan: Some(worker_plan),
                            locality: worker_locality,
                            levels,
                        });
                    }
                    Err(reason) => reason,
                }
            }
        };
        let inputs = children
            .into_iter()
            .map(|child| self.gather(child, Some(&plan), reason.clone()))
            .collect::<Result<Vec<_>>>()?;
        Ok(CutPlan {
            plan: replace_children_if_necessary(plan, inputs)?,
            worker_plan: None,
            locality: Locality::Gateway(reason),
            levels,
        })
    }

    /// Puts the plan below a gather if its root runs on workers.
    fn gather(
        &self,
        cut: CutPlan,
        parent: Option<&Arc<dyn ExecutionPlan>>,
        end_reason: Cow<'static, str>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(worker_plan) = cut.worker_plan else {
            return Ok(cut.plan);
        };
        let fragment = late_materialisation::mark_scans(cut.plan)?;
        let scans = targets::scans_of(&fragment)?;
        let targets = match &cut.locality {
            Locality::Replicated { copies } | Locality::OneWorker { copies } => {
                targets::replica_target(&scans, copies)
            }
            _ => targets::shard_targets(&scans),
        };
        let fetch = rows_per_worker(&worker_plan, parent)?;
        let partitions = self.target_partitions.min(targets.len()).max(1);
        Ok(Arc::new(GatherExec::new(
            fragment,
            &worker_plan,
            targets,
            fetch,
            partitions,
            end_reason,
        )))
    }
}

/// Returns the operator as a worker sees it, over `inputs` as a worker sees them.
///
/// # Errors
/// The reason why the operator must stay on the gateway.
fn plan_for_worker(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    levels: usize,
) -> std::result::Result<Arc<dyn ExecutionPlan>, Cow<'static, str>> {
    if let Some(scan) = plan.downcast_ref::<ShardScanExec>() {
        return Ok(Arc::new(scan.without_statistics()));
    }
    let name = plan.name();
    if levels > encode::MAX_LEVELS {
        Err("a fragment may not be nested more deeply".into())
    } else if !encode::can_encode_node(plan) {
        Err(format!("{name} cannot be sent to a worker").into())
    } else if !encode::can_send_unchanged(&plan.schema()) {
        Err("workers cannot send rows with such types unchanged".into())
    } else {
        // Always recompute the properties. A scan without statistics looks like the same input, but
        // an operator above it may have other properties.
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        match Arc::clone(plan).replace_children(inputs, recompute) {
            Ok(rebuilt) if has_required_orderings(&rebuilt) => Ok(rebuilt),
            _ => Err(format!("{name} relies on statistics that workers do not have").into()),
        }
    }
}

/// Returns whether the inputs have the orderings that the operator requires.
fn has_required_orderings(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let required = plan.required_input_ordering();
    let mut inputs = plan.children().into_iter().zip(required);
    inputs.all(|(input, required)| {
        let properties = input.equivalence_properties();
        required.is_none_or(|required| {
            let satisfied = properties.ordering_satisfy_requirement(required.into_single());
            satisfied.unwrap_or(false)
        })
    })
}

/// Returns the maximum number of rows that are needed from each worker. `fragment` is the plan as a
/// worker sees it.
fn rows_per_worker(
    fragment: &Arc<dyn ExecutionPlan>,
    parent: Option<&Arc<dyn ExecutionPlan>>,
) -> Result<Option<usize>> {
    let merge = parent.and_then(|parent| parent.downcast_ref::<SortPreservingMergeExec>());
    // Each partition of the fragment may be in this order while the rows of the whole worker are
    // not.
    if let Some(merge) = merge
        && !merged_properties(fragment).ordering_satisfy(merge.expr().iter().cloned())?
    {
        return Ok(None);
    }
    let parent_fetch = parent
        .filter(|parent| merge.is_some() || parent.is::<CoalescePartitionsExec>())
        .and_then(|parent| parent.fetch());
    Ok(parent_fetch.into_iter().chain(fragment.fetch()).min())
}
