//! The maximal shard-local subtrees become fragments.

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
use crate::gather::{GatherExec, what_holds_of_merged};
use crate::locality::{Locality, locality};
use crate::{late_materialisation, targets};

/// Puts every maximal shard-local subtree below a [`GatherExec`].
///
/// A gather declares its real, small number of partitions, and no hash partitioning. Operators above it that relied on the
/// scan's partitioning do so no longer: the planner's own rule for distribution has to run after this one.
#[derive(Debug)]
pub struct Cut;

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

/// A plan with fragments below its gateway parts.
struct CutPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// The same as a worker sees it, if it can run there. Operators that were planned with what the catalog knows of the rows, such as
    /// a filter that leaves one value of a column, may not be what they are without it.
    on_worker: Option<Arc<dyn ExecutionPlan>>,
    /// Where its root can run.
    place: Locality,
    /// See [`encode::levels`].
    levels: usize,
}

impl Cutter {
    fn cut(&self, plan: Arc<dyn ExecutionPlan>) -> Result<CutPlan> {
        let children = plan
            .children()
            .into_iter()
            .map(|child| self.cut(Arc::clone(child)))
            .collect::<Result<Vec<_>>>()?;
        let places: Vec<_> = children.iter().map(|child| child.place.clone()).collect();
        let levels = encode::levels(&plan, children.iter().map(|child| child.levels))?;
        let reason = match locality(&plan, &places) {
            Locality::Gateway(reason) => reason,
            place => {
                let inputs = children.iter().filter_map(|child| child.on_worker.clone());
                match on_worker(&plan, inputs.collect(), levels) {
                    // Below a local root nothing was gathered: the children are as they were.
                    Ok(on_worker) => {
                        return Ok(CutPlan {
                            plan,
                            on_worker: Some(on_worker),
                            place,
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
            on_worker: None,
            place: Locality::Gateway(reason),
            levels,
        })
    }

    /// What is not on the gateway yet, below a gather.
    fn gather(
        &self,
        cut: CutPlan,
        parent: Option<&Arc<dyn ExecutionPlan>>,
        ends_because: Cow<'static, str>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(on_worker) = cut.on_worker else {
            return Ok(cut.plan);
        };
        let fragment = late_materialisation::mark(cut.plan)?;
        let scans = targets::scans_of(&fragment)?;
        let targets = match &cut.place {
            Locality::Replicated { copies } | Locality::OneWorker { copies } => {
                targets::one_of_copies(&scans, copies)
            }
            _ => targets::sharded(&scans),
        };
        let fetch = fetch(&on_worker, parent)?;
        let partitions = self.target_partitions.min(targets.len()).max(1);
        Ok(Arc::new(GatherExec::new(
            fragment,
            &on_worker,
            targets,
            fetch,
            partitions,
            ends_because,
        )))
    }
}

/// An operator that may run on a worker, as it is there, over inputs as they are there.
///
/// # Errors
/// Why it stays on the gateway nevertheless.
fn on_worker(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    levels: usize,
) -> std::result::Result<Arc<dyn ExecutionPlan>, Cow<'static, str>> {
    if let Some(scan) = plan.downcast_ref::<ShardScanExec>() {
        return Ok(Arc::new(scan.without_statistics()));
    }
    let name = plan.name();
    if levels > encode::MAX_LEVELS {
        Err("a fragment may not be nested deeper".into())
    } else if !encode::can_encode_node(plan) {
        Err(format!("{name} cannot be sent to a worker").into())
    } else if !encode::can_travel(&plan.schema()) {
        Err("rows of such types cannot be sent by a worker".into())
    } else {
        // Also where inputs seem to be the same: a scan without statistics has the properties of the one with them.
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        match Arc::clone(plan).replace_children(inputs, recompute) {
            Ok(rebuilt) if has_its_orderings(&rebuilt) => Ok(rebuilt),
            _ => Err(format!("{name} needs to know more of its rows than workers do").into()),
        }
    }
}

/// Whether the inputs are ordered as the operator needs them.
fn has_its_orderings(plan: &Arc<dyn ExecutionPlan>) -> bool {
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

/// How many rows of a worker are of use; `fragment` is as a worker sees it.
fn fetch(
    fragment: &Arc<dyn ExecutionPlan>,
    parent: Option<&Arc<dyn ExecutionPlan>>,
) -> Result<Option<usize>> {
    let merge = parent.and_then(|parent| parent.downcast_ref::<SortPreservingMergeExec>());
    // The fragment's partitions may be in order, each by itself, and a worker's rows not.
    if let Some(merge) = merge
        && !what_holds_of_merged(fragment).ordering_satisfy(merge.expr().iter().cloned())?
    {
        return Ok(None);
    }
    let of_parent = parent
        .filter(|parent| merge.is_some() || parent.is::<CoalescePartitionsExec>())
        .and_then(|parent| parent.fetch());
    Ok(of_parent.into_iter().chain(fragment.fetch()).min())
}
