//! Plans that are used again with other values.
//!
//! Planning takes longer than all else that a gateway does for a query of few rows. Of a statement that comes again and again, only
//! the values of its parameters change: they stand in its fragment, and the shards that are asked follow from them.

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
use crate::gather::{GatherExec, PreparedFragment, QueryContext, Target};
use crate::{table, targets};
use volary_catalog::{State, Table};

/// The most bytes that a row of constants takes in a plan that is kept: a function may have made them of a short statement.
const MAX_CONSTANT_BYTES: usize = 4096;

/// A plan that is right for all values of its statement's parameters.
///
/// It has one gather, whose fragment holds all parameters, or is a row of constants and has none. What is above the gather is made anew for
/// each query: operators keep what they did.
#[derive(Debug)]
pub struct GenericPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// `None` if nobody is asked.
    question: Option<Question>,
}

/// What workers are asked, with values in it.
#[derive(Debug)]
struct Question {
    fragment: Arc<PreparedFragment>,
    scans: Vec<Arc<dyn ExecutionPlan>>,
    targets: Vec<Target>,
}

impl GenericPlan {
    /// Of a plan in which literals stand for parameters (see [`statement_parameter`]). `uses`: how often each of them stands in the
    /// statement. `None` if these values give none: what is not found in the fragment has become part of the plan itself.
    /// `query`: one with the same settings.
    ///
    /// # Errors
    /// If the fragment cannot be encoded.
    pub fn of(
        plan: Arc<dyn ExecutionPlan>,
        uses: &[usize],
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<Option<Self>> {
        if uses.is_empty() && is_constant(&plan) {
            let question = None;
            return Ok(Some(Self { plan, question }));
        }
        let Some(gather) = only_gather(&plan).filter(|gather| gather.is_plain()) else {
            return Ok(None);
        };
        if says_how_many_rows_pass(gather.fragment())? {
            return Ok(None);
        }
        let fragment = gather.prepare(query, batch_rows)?;
        let mut found = vec![0; uses.len()];
        for number in fragment.statement_parameters() {
            if let Some(found) = found.get_mut(number) {
                *found += 1;
            }
        }
        if found != uses {
            return Ok(None);
        }
        let question = Some(Question {
            scans: targets::scans_of(gather.fragment())?,
            targets: gather.targets().to_vec(),
            fragment: Arc::new(fragment),
        });
        Ok(Some(Self { plan, question }))
    }

    /// Whether a plan might be generic. One of a statement that reads tables and asks nobody is answered by what the catalog knows, and is
    /// better than any generic one.
    pub fn may_be_of(plan: &Arc<dyn ExecutionPlan>, reads_tables: bool) -> bool {
        only_gather(plan).is_some() || !reads_tables && is_constant(plan)
    }

    /// The tables that are read, as this state of the catalog has them.
    pub fn tables(&self, catalog: &State) -> Vec<Arc<Table>> {
        let scans = self.question.iter().flat_map(|question| &question.scans);
        let scans = scans.filter_map(|scan| scan.downcast_ref::<ShardScanExec>());
        scans
            .filter_map(|scan| catalog.table_by_id(scan.table().id()).cloned())
            .collect()
    }

    /// How many workers are asked, about.
    pub fn workers(&self) -> usize {
        let question = self.question.as_ref();
        question.map_or(0, |question| question.targets.len())
    }

    /// The plan for a query with these values. `None` if they need one of their own: what one worker can do alone, several cannot,
    /// and none has no rows to count.
    ///
    /// # Errors
    /// If a value cannot be encoded, or the plan cannot be rebuilt.
    pub fn with_values(&self, values: &[ScalarValue]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(question) = &self.question else {
            return above(&self.plan, None).map(Some);
        };
        let Some(targets) = question.targets_of(values)? else {
            return Ok(None);
        };
        let gather = only_gather(&self.plan)
            .ok_or_else(|| internal_datafusion_err!("a generic plan without its gather"))?;
        let gather: Arc<dyn ExecutionPlan> =
            Arc::new(gather.filled(&question.fragment, values, targets)?);
        above(&self.plan, Some(&gather)).map(Some)
    }
}

impl Question {
    /// Who is asked with these values. `None` if that is another kind of plan, or if one of them has no copy of a reference table.
    fn targets_of(&self, values: &[ScalarValue]) -> Result<Option<Vec<Target>>> {
        let scans = self.scans.iter().map(|scan| with_values(scan, values));
        let scans = scans.collect::<Result<Vec<_>>>()?;
        let targets = self.targets_by(&scans);
        Ok(targets.filter(|targets| match self.targets.len() {
            0 | 1 => targets.len() == self.targets.len(),
            _ => targets.len() > 1,
        }))
    }

    /// Those with the shards of these scans.
    fn targets_by(&self, scans: &[Arc<dyn ExecutionPlan>]) -> Option<Vec<Target>> {
        let references: Vec<_> = scans.iter().filter_map(reference).collect();
        if references.len() == scans.len() {
            let copies: BTreeSet<_> = self
                .targets
                .iter()
                .flat_map(|target| target.others.iter().chain([&target.worker]))
                .copied()
                .collect();
            return Some(targets::one_of_copies(scans, &copies));
        }
        let targets = targets::sharded(scans);
        let have_copies = references.iter().all(|scan| {
            let copies = scan.workers();
            targets.iter().all(|target| copies.contains(&target.worker))
        });
        have_copies.then_some(targets)
    }
}

/// Whether a plan is one row of values that are known, and that are not large.
fn is_constant(plan: &Arc<dyn ExecutionPlan>) -> bool {
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

/// The gather of a plan that has one, below operators that are rebuilt over another one.
fn only_gather(plan: &Arc<dyn ExecutionPlan>) -> Option<&GatherExec> {
    let mut node = plan;
    while is_rebuilt(node) {
        let [input] = node.children()[..] else {
            return None;
        };
        node = input;
    }
    node.downcast_ref()
}

/// Whether a filter is known to let so many rows pass and no others: with these values it lets none, and the planner leaves out what is
/// of no use then, such as a limit.
fn says_how_many_rows_pass(fragment: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut says = false;
    fragment.apply(|node| {
        if node.is::<FilterExec>() {
            let arguments = StatisticsArgs::new();
            let statistics = StatisticsContext::new().compute(node.as_ref(), &arguments)?;
            says |= matches!(statistics.num_rows, Precision::Exact(_));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(says)
}

fn is_rebuilt(node: &Arc<dyn ExecutionPlan>) -> bool {
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

/// The operators of `plan`, over another gather if it has one.
fn above(
    plan: &Arc<dyn ExecutionPlan>,
    gather: Option<&Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(gather) = gather
        && plan.is::<GatherExec>()
    {
        return Ok(Arc::clone(gather));
    }
    let inputs = plan.children().into_iter();
    let inputs = inputs.map(|input| above(input, gather));
    // Operators that are given other inputs share what they hold with those that they were: the threshold of a top-k, their metrics.
    replace_children_if_necessary(Arc::clone(plan), inputs.collect::<Result<_>>()?)?.reset_state()
}

fn reference(scan: &Arc<dyn ExecutionPlan>) -> Option<&ShardScanExec> {
    let scan = scan.downcast_ref::<ShardScanExec>();
    scan.filter(|scan| scan.is_reference())
}

/// The scan of the shards that can hold rows with these values.
fn with_values(
    plan: &Arc<dyn ExecutionPlan>,
    values: &[ScalarValue],
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(scan) = plan.downcast_ref::<ShardScanExec>() else {
        return Ok(Arc::clone(plan));
    };
    let filters = scan.filters().iter();
    let filters = filters.map(|filter| statement_parameter::with_values(filter, values));
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let selection = table::select(scan.table(), &filters);
    Ok(Arc::new(scan.with_selection(selection)))
}
