//! A merge by relays keeps the form of the rows. Partial aggregates stay partial aggregates, and
//! the first rows of each worker stay the first rows. So neither the plan above the gather nor the
//! fragment below it changes.

/// Estimates the cost of a merge, with relays and without.
mod cost;
/// Estimates how many rows workers have to merge, from the statistics of the catalog.
mod estimate;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use volary_gather::members::MembersExec;
use volary_gather::merge::BucketMergeExec;

use crate::fragment::{ShardScanExec, encode};
use crate::gather::GatherExec;
use crate::gather::config;
use crate::gather::relay_plan::RelayPlan;
use crate::session_settings::SessionSettings;
use crate::targets;
use cost::MergeEstimate;

/// Maximum number of first rows that relays merge. A relay holds the first rows until it has seen
/// all rows, while the gateway merges ordered rows without holding them.
const MAX_FIRST_ROWS: usize = 10_000;

/// Adds relays to gathers if the rows can be merged, and if relays are estimated to be faster or
/// were requested. It is the last rule, because other rules look for gathers.
#[derive(Debug)]
pub(crate) struct RelayTree;

impl PhysicalOptimizerRule for RelayTree {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = SessionSettings::relays(options);
        if wanted == config::RelaySetting::Off {
            return Ok(plan);
        }
        let relayed = plan.transform_up(|node| {
            Ok(match add_relays(&node, wanted)? {
                Some(relayed) => Transformed::yes(relayed),
                None => Transformed::no(node),
            })
        })?;
        Ok(relayed.data)
    }

    fn name(&self) -> &'static str {
        "RelayTree"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the same operator over a gather with relays. Returns `None` if the gather gets no
/// relays.
fn add_relays(
    node: &Arc<dyn ExecutionPlan>,
    wanted: config::RelaySetting,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(gather) = node.downcast_ref::<GatherExec>() {
        return Ok(relay_first_rows(gather, wanted)?.map(|gather| Arc::new(gather) as _));
    }
    let aggregate = match node.downcast_ref::<BucketMergeExec<GatherExec>>() {
        Some(merge) => merge.aggregate(),
        None => node,
    };
    let Some(aggregate) = aggregate.downcast_ref::<AggregateExec>() else {
        return Ok(None);
    };
    // Below an aggregate without groups, an operator brings all rows into one partition.
    let [input] = node.children()[..] else {
        return Ok(None);
    };
    let coalescing = input.downcast_ref::<CoalescePartitionsExec>();
    let below = coalescing.map_or(input, CoalescePartitionsExec::input);
    let Some(gather) = below.downcast_ref::<GatherExec>() else {
        return Ok(None);
    };
    let Some(gather) = relay_aggregates(aggregate, gather, wanted)? else {
        return Ok(None);
    };
    let gather: Arc<dyn ExecutionPlan> = Arc::new(gather);
    let gather = match coalescing {
        Some(_) => with_child(input, gather)?,
        None => gather,
    };
    with_child(node, gather).map(Some)
}

fn with_child(
    node: &Arc<dyn ExecutionPlan>,
    child: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let unchanged = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(node).replace_children(vec![child], unchanged)
}

/// Returns the gather with relays that merge partial aggregates. Returns `None` if relays cannot do
/// this, or are not needed.
fn relay_aggregates(
    aggregate: &AggregateExec,
    gather: &GatherExec,
    wanted: config::RelaySetting,
) -> Result<Option<GatherExec>> {
    let merges = matches!(
        aggregate.mode(),
        AggregateMode::Final | AggregateMode::FinalPartitioned
    );
    let by_bucket = gather.has_buckets();
    let has_groups = !aggregate.group_expr().is_empty();
    let schema = gather.schema();
    let mut fields = schema.fields().iter();
    let is_flat = !fields.any(|field| field.data_type().is_nested());
    if !merges || by_bucket != has_groups || !is_flat || !gather.is_unordered() {
        return Ok(None);
    }
    let Some(count) = relay_count(wanted, gather, || {
        if has_groups {
            estimate::grouped(gather)
        } else {
            Ok(estimate::ungrouped(gather))
        }
    })?
    else {
        return Ok(None);
    };
    let plan: Arc<dyn ExecutionPlan> = Arc::new(AggregateExec::try_new(
        AggregateMode::PartialReduce,
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        vec![None; aggregate.aggr_expr().len()],
        members_input(gather),
        aggregate.input_schema(),
    )?);
    with_relays(gather, plan, count)
}

/// Returns the gather with relays that keep only the first rows. Returns `None` if relays cannot do
/// this, or are not needed.
fn relay_first_rows(
    gather: &GatherExec,
    wanted: config::RelaySetting,
) -> Result<Option<GatherExec>> {
    let (Some(ordering), Some(fetch)) = (gather.ordering(), gather.fetch_per_worker()) else {
        return Ok(None);
    };
    if fetch > MAX_FIRST_ROWS {
        return Ok(None);
    }
    let Some(count) = relay_count(wanted, gather, || Ok(estimate::first_rows(gather, fetch)))?
    else {
        return Ok(None);
    };
    let sort = SortExec::new(ordering.clone(), members_input(gather))
        .with_fetch(Some(fetch))
        .with_preserve_partitioning(true);
    with_relays(gather, Arc::new(sort), count)
}

/// Returns the number of relays, or `None` if there should be none.
fn relay_count(
    wanted: config::RelaySetting,
    gather: &GatherExec,
    merge: impl FnOnce() -> Result<MergeEstimate>,
) -> Result<Option<usize>> {
    let workers = gather.targets().len();
    Ok(match wanted {
        config::RelaySetting::Off => None,
        // A single worker has nothing to merge with. It may also be one of several workers that
        // have the same rows.
        _ if workers < 2 => None,
        config::RelaySetting::Count(count) => Some(count.get().min(workers)),
        config::RelaySetting::Auto if workers < cost::MIN_WORKERS => None,
        config::RelaySetting::Auto => merge()?.best_relay_count(),
    })
}

fn members_input(gather: &GatherExec) -> Arc<dyn ExecutionPlan> {
    Arc::new(MembersExec::new(gather.schema(), None, 1))
}

/// Returns the gather with relays that run `plan`. Returns `None` if the plan cannot be sent, or if
/// its rows have other types than those of the fragment.
fn with_relays(
    gather: &GatherExec,
    plan: Arc<dyn ExecutionPlan>,
    count: usize,
) -> Result<Option<GatherExec>> {
    let types = |plan: &dyn ExecutionPlan| -> Vec<_> {
        let schema = plan.schema();
        let fields = schema.fields().iter();
        fields.map(|field| field.data_type().clone()).collect()
    };
    let fits = types(plan.as_ref()) == types(gather) && encode::can_encode_node(&plan);
    if !fits {
        return Ok(None);
    }
    let rotation = stable_rotation(gather)?;
    Ok(Some(gather.with_relays(RelayPlan {
        plan,
        count,
        rotation,
    })))
}

/// Returns a number that is the same for a repeated statement, even with other values. So each run
/// uses the same relays, which keep the statement's fragment and their connections.
fn stable_rotation(gather: &GatherExec) -> Result<usize> {
    let mut hasher = DefaultHasher::new();
    for scan in targets::scans_of(gather.fragment())? {
        if let Some(scan) = scan.downcast_ref::<ShardScanExec>() {
            scan.table().id().hash(&mut hasher);
            scan.projection().hash(&mut hasher);
        }
    }
    // All bits of the hash are equally good, so it may be truncated.
    Ok(hasher.finish() as usize)
}
