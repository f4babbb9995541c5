//! Some plans are kept for later statements: generic plans, and logical plans that were made to
//! describe a statement. This module says which logical plans may be kept, and for how long they
//! hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use volary_catalog::access::Access;
use volary_catalog::{CatalogState, RelationName, Table};
use volary_flight_proto::Result;
use volary_planner::table::ShardedTable;

/// Number of rows up to which the exact size of a table does not matter for its plans.
const FEW_ROWS: u64 = 10_000;
/// Factor by which a table's number of rows may change before its plans are out of date.
const MAX_ROWS_FACTOR: u64 = 2;

/// The state for which a plan was made: the tables and views that it reads, and the rights.
#[derive(Debug)]
pub(super) struct PlanDependencies {
    /// The versions of the tables and views that the plan reads, by name: see
    /// [`CatalogState::version_of`].
    reads: BTreeMap<RelationName, u64>,
    tables: Vec<Arc<Table>>,
    /// The users, roles and grants at the time of planning.
    access: Arc<Access>,
}

impl PlanDependencies {
    /// Records the dependencies of a plan that was made for this state of the catalog.
    pub(super) fn new(catalog: &CatalogState, reads: BTreeMap<RelationName, u64>) -> Self {
        let tables = reads.keys().filter_map(|name| catalog.table(name));
        Self {
            tables: tables.cloned().collect(),
            reads,
            access: Arc::clone(catalog.access()),
        }
    }

    /// Returns the users, roles and grants at the time of planning.
    pub(super) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Returns the versions of what the plan reads: see [`crate::engine::PlannedQuery::reads`].
    pub(super) fn reads(&self) -> &BTreeMap<RelationName, u64> {
        &self.reads
    }

    /// Returns whether the plan suits this state of the catalog. The tables and views must be the
    /// same, on the same workers, with about as many rows that are kept as long. Users, roles and
    /// grants must be unchanged.
    pub(super) fn is_current(&self, catalog: &CatalogState) -> bool {
        if !Arc::ptr_eq(&self.access, catalog.access()) {
            return false;
        }
        let mut reads = self.reads.iter();
        let mut tables = self.tables.iter();
        reads.all(|(name, version)| catalog.version_of(name) == Some(*version))
            && tables.all(|before| {
                let now = catalog.table(before.name());
                now.is_some_and(|now| {
                    now.has_same_placement(before)
                        && now.has_same_retention(before)
                        && has_similar_size(now, before)
                })
            })
    }
}

fn has_similar_size(now: &Table, before: &Table) -> bool {
    let (now, before) = (now.statistics().rows, before.statistics().rows);
    let (fewer, more) = (now.min(before), now.max(before));
    more <= FEW_ROWS || more / MAX_ROWS_FACTOR <= fewer
}

/// Returns whether the plan is a query that reads only tables, and calls only scalar functions that
/// are immutable. `now()` and `random()` are not.
///
/// # Errors
/// No error is known to occur.
pub(super) fn is_repeatable_query(plan: &LogicalPlan) -> Result<bool> {
    let mut is_repeatable = true;
    plan.apply_with_subqueries(|node| {
        is_repeatable &= match node {
            LogicalPlan::TableScan(scan) => source_as_provider(&scan.source)?.is::<ShardedTable>(),
            LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::DescribeTable(_)
            | LogicalPlan::Extension(_) => false,
            _ => true,
        };
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                is_repeatable &= match expression {
                    Expr::ScalarFunction(call) => {
                        call.func.signature().volatility == Volatility::Immutable
                    }
                    Expr::ScalarVariable(_, _) => false,
                    _ => true,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if is_repeatable {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    })?;
    Ok(is_repeatable)
}

/// Returns the plan with other versions of its tables, subqueries included. `replace` returns the
/// version that takes a table's place.
///
/// # Errors
/// Returns the errors of `replace`.
pub(super) fn replace_tables(
    plan: LogicalPlan,
    replace: impl Fn(&ShardedTable) -> Result<ShardedTable>,
) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|mut node| {
        let LogicalPlan::TableScan(scan) = &mut node else {
            return Ok(Transformed::no(node));
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<ShardedTable>() else {
            return Ok(Transformed::no(node));
        };
        scan.source = provider_as_source(Arc::new(replace(table)?));
        Ok(Transformed::yes(node))
    })?;
    Ok(plan.data)
}
