//! Planning a query of few rows takes longer than everything else that the gateway does for it. If
//! a statement is repeated, only the values of its parameters change. The plan is used again with
//! other values in its fragment, and with the shards that follow from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::fragment::{ShardScanExec, statement_parameter};
use crate::gather::{GatherExec, PreparedFragment, QueryContext, WorkerTarget};
use crate::{table, targets};
use volary_catalog::{CatalogState, Table};

/// Maximum size of a row of constants in a kept plan, in bytes. A function may have made a large
/// row from a short statement.
const MAX_CONSTANT_BYTES: usize = 4096;

/// A plan that is right for all values of its statement's parameters.
///
/// The plan has one gather, whose fragment contains all parameters. Or it is a row of constants and
/// has no gather. The operators above the gather are rebuilt for each query, because operators keep
/// the state of their execution.
#[derive(Debug)]
pub struct GenericPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// The request to the workers. `None` if no worker is asked.
    prepared: Option<PreparedGather>,
}

/// The request to the workers, with the values that the plan was made with.
#[derive(Debug)]
struct PreparedGather {
    fragment: Arc<PreparedFragment>,
    scans: Vec<Arc<dyn ExecutionPlan>>,
    targets: Vec<WorkerTarget>,
}

impl GenericPlan {
    /// Builds a generic plan from a plan in which literals stand for parameters (see
    /// [`statement_parameter`]). `uses` counts how often each parameter is used in the statement.
    /// `query` is a query with the same settings. Returns `None` if the plan is not generic. For
    /// example, a parameter that the fragment contains less often has become part of the plan
    /// itself.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub fn from_plan(
        plan: Arc<dyn ExecutionPlan>,
        uses: &[usize],
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<Option<Self>> {
        if uses.is_empty() && is_constant(&plan) {
            let prepared = None;
            return Ok(Some(Self { plan, prepared }));
        }
        let Some(gather) = only_gather(&plan).filter(|gather| gather.is_plain()) else {
            return Ok(None);
        };
        if has_exact_filter_count(gather.fragment())? {
            return Ok(None);
        }
        let fragment = gather.prepare(query, batch_rows)?;
        let mut counts = vec![0; uses.len()];
        for number in fragment.statement_parameters() {
            if let Some(found) = counts.get_mut(number) {
                *found += 1;
            }
        }
        if counts != uses {
            return Ok(None);
        }
        let prepared = Some(PreparedGather {
            scans: targets::scans_of(gather.fragment())?,
            targets: gather.targets().to_vec(),
            fragment: Arc::new(fragment),
        });
        Ok(Some(Self { plan, prepared }))
    }

    /// Returns whether a plan might be generic. If a statement reads tables but its plan asks no
    /// worker, it is answered from the catalog. Such a plan is better than any generic one.
    pub fn may_be_generic(plan: &Arc<dyn ExecutionPlan>, reads_tables: bool) -> bool {
        only_gather(plan).is_some() || !reads_tables && is_constant(plan)
    }

    /// Returns the tables that the plan reads, as they are in this state of the catalog.
    pub fn tables(&self, catalog: &CatalogState) -> Vec<Arc<Table>> {
        let scans = self.prepared.iter().flat_map(|prepared| &prepared.scans);
        let scans = scans.filter_map(|scan| scan.downcast_ref::<ShardScanExec>());
        scans
            .filter_map(|scan| catalog.table_by_id(scan.table().id()).cloned())
            .collect()
    }

    /// Returns the approximate number of workers that are asked.
    pub fn worker_count(&self) -> usize {
        let prepared = self.prepared.as_ref();
        prepared.map_or(0, |prepared| prepared.targets.len())
    }

    /// Returns the plan for a query with these values. Returns `None` if the values need a plan of
    /// their own. For example, a plan for one worker may give it work that several workers cannot
    /// do.
    ///
    /// # Errors
    /// An error if a value cannot be encoded, or if the plan cannot be rebuilt.
    pub fn with_values(&self, values: &[ScalarValue]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(prepared) = &self.prepared else {
            return rebuild_over(&self.plan, None).map(Some);
        };
        let Some(targets) = prepared.targets_for_values(values)? else {
            return Ok(None);
        };
        let gather = only_gather(&self.plan)
            .ok_or_else(|| internal_datafusion_err!("a generic plan without its gather"))?;
        let gather: Arc<dyn ExecutionPlan> =
            Arc::new(gather.with_parameters(&prepared.fragment, values, targets)?);
        rebuild_over(&self.plan, Some(&gather)).map(Some)
    }
}

impl PreparedGather {
    /// Returns the workers that are asked for these values. Returns `None` if their number needs
    /// another kind of plan, or if one of them has no copy of a reference table.
    fn targets_for_values(&self, values: &[ScalarValue]) -> Result<Option<Vec<WorkerTarget>>> {
        let scans = self.scans.iter().map(|scan| scan_with_values(scan, values));
        let scans = scans.collect::<Result<Vec<_>>>()?;
        let targets = self.targets_of_scans(&scans);
        Ok(targets.filter(|targets| match self.targets.len() {
            0 | 1 => targets.len() == self.targets.len(),
            _ => targets.len() > 1,
        }))
    }

    /// Returns the workers that are asked for the shards of these scans.
    fn targets_of_scans(&self, scans: &[Arc<dyn ExecutionPlan>]) -> Option<Vec<WorkerTarget>> {
        let references: Vec<_> = scans.iter().filter_map(as_reference_scan).collect();
        if references.len() == scans.len() {
            let copies: BTreeSet<_> = self
                .targets
                .iter()
                .flat_map(|target| target.replicas.iter().chain([&target.worker]))
                .copied()
                .collect();
            return Some(targets::replica_target(scans, &copies));
        }
        let targets = targets::shard_targets(scans);
        let have_copies = references.iter().all(|scan| {
            let copies = scan.workers();
            targets.iter().all(|target| copies.contains(&target.worker))
        });
        have_copies.then_some(targets)
    }
}

/// Returns whether a plan is one row of known values that are not large.
pub fn is_constant(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(row) = plan.downcast_ref::<ProjectionExec>() else {
        return false;
    };
    let bytes = row.expr().iter().map(|column| {
        let literal = column.expr.downcast_ref::<Literal>();
        literal.map(|literal| literal.value().size())
    });
    row.input().is::<PlaceholderRowExec>()
        && bytes
            .sum::<Option<usize>>()
            .is_some_and(|bytes| bytes <= MAX_CONSTANT_BYTES)
}

/// Returns the only gather of a plan, if all operators above it can be rebuilt over another gather.
fn only_gather(plan: &Arc<dyn ExecutionPlan>) -> Option<&GatherExec> {
    let mut node = plan;
    while can_be_rebuilt(node) {
        let [input] = node.children()[..] else {
            return None;
        };
        node = input;
    }
    node.downcast_ref()
}

/// Returns whether the planner knows exactly how many rows a filter passes. That is the case if no
/// row passes with the current values. The planner then leaves out operators, such as a limit, that
/// other values would need.
fn has_exact_filter_count(fragment: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut is_exact = false;
    fragment.apply(|node| {
        if node.is::<FilterExec>() {
            let arguments = StatisticsArgs::new();
            let statistics = StatisticsContext::new().compute(node.as_ref(), &arguments)?;
            is_exact |= matches!(statistics.num_rows, Precision::Exact(_));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_exact)
}

fn can_be_rebuilt(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<AggregateExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<FilterExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
}

/// Returns the operators of `plan`, over `gather` if the plan has a gather.
fn rebuild_over(
    plan: &Arc<dyn ExecutionPlan>,
    gather: Option<&Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(gather) = gather
        && plan.is::<GatherExec>()
    {
        return Ok(Arc::clone(gather));
    }
    let inputs = plan.children().into_iter();
    let inputs = inputs.map(|input| rebuild_over(input, gather));
    // An operator that gets other inputs shares its state with the original operator: the threshold
    // of a top-k, and the metrics.
    replace_children_if_necessary(Arc::clone(plan), inputs.collect::<Result<_>>()?)?.reset_state()
}

fn as_reference_scan(scan: &Arc<dyn ExecutionPlan>) -> Option<&ShardScanExec> {
    let scan = scan.downcast_ref::<ShardScanExec>();
    scan.filter(|scan| scan.is_reference())
}

/// Returns the scan of the shards that can hold rows with these values.
fn scan_with_values(
    plan: &Arc<dyn ExecutionPlan>,
    values: &[ScalarValue],
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(scan) = plan.downcast_ref::<ShardScanExec>() else {
        return Ok(Arc::clone(plan));
    };
    let filters = scan.filters().iter();
    let filters = filters.map(|filter| statement_parameter::substitute_values(filter, values));
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let selection = table::select_shards(scan.table(), &filters);
    Ok(Arc::new(scan.with_selection(selection)))
}
