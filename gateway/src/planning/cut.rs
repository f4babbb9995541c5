//! The maximal shard-local subtrees become fragments.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::ids::WorkerId;

use crate::catalog::TableKind;
use crate::fragment::{ShardScanExec, encode};
use crate::gather::{GatherExec, Target};
use crate::planning::late_materialisation;
use crate::planning::locality::{Locality, locality};

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
        let CutPlan { plan, place, .. } = cutter.cut(plan)?;
        match place {
            Locality::Gateway(_) => Ok(plan),
            local => cutter.gather(plan, &local, None, "it is the whole query".into()),
        }
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
    /// Where its root can run.
    place: Locality,
    /// See [`encode::levels`].
    levels: usize,
}

impl Cutter {
    fn cut(&self, plan: Arc<dyn ExecutionPlan>) -> Result<CutPlan> {
        let mut children = Vec::new();
        let mut places = Vec::new();
        let mut levels = Vec::new();
        for child in plan.children() {
            let cut = self.cut(Arc::clone(child))?;
            children.push(cut.plan);
            places.push(cut.place);
            levels.push(cut.levels);
        }
        let mut place = locality(&plan, &places);
        let levels = encode::levels(&plan, levels.into_iter())?;
        if !matches!(place, Locality::Gateway(_)) && !children.is_empty() {
            if levels > encode::MAX_LEVELS {
                place = Locality::Gateway("a fragment may not be nested deeper".into());
            } else if !encode::can_encode_node(&plan) {
                let name = plan.name();
                place = Locality::Gateway(format!("{name} cannot be sent to a worker").into());
            }
        }
        let Locality::Gateway(reason) = &place else {
            // Below a local root nothing was gathered: the children are as they were.
            return Ok(CutPlan {
                plan,
                place,
                levels,
            });
        };
        for (child, child_place) in children.iter_mut().zip(&places) {
            if !matches!(child_place, Locality::Gateway(_)) {
                *child =
                    self.gather(Arc::clone(child), child_place, Some(&plan), reason.clone())?;
            }
        }
        let plan = if children.is_empty() {
            plan
        } else {
            let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            plan.replace_children(children, recompute)?
        };
        Ok(CutPlan {
            plan,
            place,
            levels,
        })
    }

    fn gather(
        &self,
        fragment: Arc<dyn ExecutionPlan>,
        place: &Locality,
        parent: Option<&Arc<dyn ExecutionPlan>>,
        ends_because: Cow<'static, str>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fragment = late_materialisation::mark(fragment)?;
        let scans = scans_of(&fragment)?;
        let targets = match place {
            Locality::Replicated { copies } | Locality::OneWorker { copies } => {
                one_target(&scans, copies)
            }
            _ => targets(&scans),
        };
        let fetch = parent
            .filter(|parent| {
                parent.is::<SortPreservingMergeExec>() || parent.is::<CoalescePartitionsExec>()
            })
            .and_then(|parent| parent.fetch())
            .into_iter()
            .chain(fragment.fetch())
            .min();
        let ordered = fragment.output_ordering().is_some();
        let partitions = self.target_partitions.min(targets.len()).max(1);
        Ok(Arc::new(GatherExec::new(
            fragment,
            targets,
            ordered,
            fetch,
            partitions,
            ends_because,
        )))
    }
}

/// The scans of a fragment, in the order in which they are encoded.
pub fn scans_of(fragment: &Arc<dyn ExecutionPlan>) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let mut scans = Vec::new();
    fragment.apply(|node| {
        if node.is::<ShardScanExec>() {
            scans.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

/// For each worker that holds shards of a scan, its shards by scan.
fn targets(scans: &[Arc<dyn ExecutionPlan>]) -> Vec<Target> {
    let mut by_worker: BTreeMap<WorkerId, Vec<ScanShards>> = BTreeMap::new();
    for (ordinal, scan) in scans.iter().enumerate() {
        let Some(scan) = scan.downcast_ref::<ShardScanExec>() else {
            continue;
        };
        if let TableKind::Sharded { .. } = scan.table().kind() {
            for shard in scan.shards() {
                if let Some(worker) = scan.table().worker_of(shard) {
                    by_worker
                        .entry(worker)
                        .or_insert_with(|| vec![ScanShards::default(); scans.len()])[ordinal]
                        .shards
                        .push(shard);
                }
            }
        }
    }
    by_worker
        .into_iter()
        .map(|(worker, scans)| Target {
            worker,
            others: Vec::new(),
            scans,
        })
        .collect()
}

/// A fragment of reference tables alone runs on one worker; which one differs between queries, so that all get their part.
fn one_target(scans: &[Arc<dyn ExecutionPlan>], copies: &BTreeSet<WorkerId>) -> Vec<Target> {
    let mut copies: VecDeque<_> = copies.iter().copied().collect();
    copies.rotate_left(next_index(copies.len()));
    let Some(worker) = copies.pop_front() else {
        return Vec::new();
    };
    vec![Target {
        worker,
        others: copies.into(),
        scans: vec![ScanShards::default(); scans.len()],
    }]
}

fn next_index(count: usize) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % count.max(1)
}
