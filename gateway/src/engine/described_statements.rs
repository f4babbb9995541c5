//! Drivers describe a statement before they run it: CreatePreparedStatement or GetSchema comes
//! before GetFlightInfo, and some drivers prepare a statement several times. What describing it has
//! made is kept for a short time, so that the later calls do not parse it again, on whatever
//! connection of its user they come. They do not make its logical plan again either, if it is a
//! query that reads only tables. A handle contains the whole statement, so another gateway, or this
//! one after that time, parses it again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use volary_catalog::CatalogState;
use volary_flight_proto::Result;

use super::StatementDescription;
use super::context::StatementContext;
use super::kept_plan::{PlanDependencies, is_repeatable_query, replace_tables};
use super::statement_key::StatementKey;

/// Time for which the results of describing a statement are kept. Drivers run a statement right
/// after they have described it.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Estimated size of an entry, without anything that grows with its statement, in bytes.
const ENTRY_BYTES: usize = 4 << 10;
/// Estimated size of a parsed statement and the expressions of its plan, in bytes for each byte of
/// text.
const BYTES_PER_TEXT_BYTE: usize = 128;
/// Estimated size of an operator of a plan, in bytes. A column of the operator takes
/// [`COLUMN_BYTES`] in addition.
const OPERATOR_BYTES: usize = 1 << 10;
/// Estimated size of a column of an operator or of a description, in bytes.
const COLUMN_BYTES: usize = 512;
/// Number of copies of a long list's values: as they were read, in the type of what they are
/// compared with, and twice that in a hash table.
const COPIES_OF_LISTS: usize = 4;

/// The statements of a gateway that were described a short time ago.
pub(super) struct DescribedStatements {
    entries: Cache<StatementKey, Arc<DescribedStatement>>,
    /// Maximum estimated size of one entry. The cache may exceed its size by some entries, until it
    /// evicts others.
    most_bytes: usize,
}

/// The results of describing a statement without values of its parameters.
pub(super) struct DescribedStatement {
    /// The parsed statement. `None` if it is too large, or if long lists were taken out of its
    /// text.
    parsed: Option<DfStatement>,
    /// The logical plan, if it may be kept.
    plan: Option<DescribedPlan>,
    bytes: usize,
}

struct DescribedPlan {
    plan: LogicalPlan,
    dependencies: PlanDependencies,
    description: StatementDescription,
}

impl DescribedStatements {
    /// Creates a cache that may take this number of bytes, by estimate.
    pub(super) fn new(bytes: usize) -> Self {
        let weight = |_: &StatementKey, described: &Arc<DescribedStatement>| {
            u32::try_from(described.bytes).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder()
            .max_capacity(bytes as u64)
            .weigher(weight)
            // The newest statement is the one that is run next. Other policies may refuse it.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_live(KEPT_FOR);
        Self {
            entries: cache.build(),
            most_bytes: bytes / 4,
        }
    }

    /// Returns the results of describing this statement, if they are still kept.
    pub(super) fn get(&self, key: &StatementKey) -> Option<Arc<DescribedStatement>> {
        self.entries.get(key)
    }

    /// Returns whether the parsed statement with the text `sql` may be kept, which was parsed for
    /// this context.
    pub(super) fn may_keep_parsed(&self, context: &StatementContext, sql: &str) -> bool {
        // The functions of the lists belong to the context, and may have got their types.
        !context.has_lists() && text_bytes(context, sql) <= self.most_bytes
    }

    /// Keeps the results of describing a statement, unless they are too large.
    pub(super) fn keep(&self, key: StatementKey, described: DescribedStatement) {
        if described.bytes <= self.most_bytes {
            self.entries.insert(key, Arc::new(described));
        }
    }
}

impl fmt::Debug for DescribedStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescribedStatements")
            .field("entries", &self.entries.entry_count())
            .finish_non_exhaustive()
    }
}

impl DescribedStatement {
    /// Creates the results of describing the statement `sql` in this context. The parsed statement
    /// is given if it [may be kept](DescribedStatements::may_keep_parsed). The logical plan is
    /// given if it holds for all values of the statement's parameters.
    ///
    /// # Errors
    /// No error is known to occur.
    pub(super) fn new(
        context: &StatementContext,
        sql: &str,
        parsed: Option<DfStatement>,
        plan: Option<LogicalPlan>,
        description: &StatementDescription,
    ) -> Result<Self> {
        let plan = match plan {
            Some(plan) if is_repeatable_query(&plan)? => Some(DescribedPlan {
                plan,
                dependencies: PlanDependencies::new(&context.catalog, context.reads()),
                description: description.clone(),
            }),
            _ => None,
        };
        let plan_bytes = match &plan {
            Some(described) => plan_bytes(&described.plan, &described.description)?,
            None => 0,
        };
        Ok(Self {
            parsed,
            plan,
            bytes: text_bytes(context, sql).saturating_add(plan_bytes),
        })
    }

    /// Returns the parsed statement, without its plan.
    pub(super) fn parsed(&self) -> Option<&DfStatement> {
        self.parsed.as_ref()
    }

    /// Returns the description of the statement, if what it reads is unchanged in this state of the
    /// catalog and the same rights apply.
    pub(super) fn description(&self, catalog: &CatalogState) -> Option<&StatementDescription> {
        let described = self.plan.as_ref()?;
        let is_current = described.dependencies.is_current(catalog);
        is_current.then_some(&described.description)
    }

    /// Returns the logical plan of the statement for a context, with the tables as the context sees
    /// them. Returns `None` if the statement must be planned again.
    ///
    /// # Errors
    /// No error is known to occur.
    pub(super) fn plan_in(&self, context: &StatementContext) -> Result<Option<LogicalPlan>> {
        let Some(described) = &self.plan else {
            return Ok(None);
        };
        if !described.dependencies.is_current(&context.catalog) {
            return Ok(None);
        }
        context.note_reads(described.dependencies.reads());
        let plan = described.plan.clone();
        replace_tables(plan, |table| context.sharded_table(table.table().name())).map(Some)
    }
}

/// Returns the estimated size of what grows with the text of a statement, in bytes.
fn text_bytes(context: &StatementContext, sql: &str) -> usize {
    let lists = context.list_bytes().saturating_mul(COPIES_OF_LISTS);
    let parsed = match context.are_lists_typed() {
        true => context.parsed_bytes,
        // The planner got the whole text.
        false => sql.len(),
    };
    let parsed = parsed.saturating_mul(BYTES_PER_TEXT_BYTE);
    let bytes = (ENTRY_BYTES + sql.len()).saturating_add(parsed);
    bytes.saturating_add(lists)
}

/// Returns the estimated size of a plan with its description, in bytes. The views of a short text
/// may have many columns.
fn plan_bytes(plan: &LogicalPlan, description: &StatementDescription) -> Result<usize> {
    let columns = description.rows.as_ref();
    let mut bytes = columns.map_or(0, |rows| rows.fields().len() * COLUMN_BYTES);
    plan.apply_with_subqueries(|node| {
        bytes += OPERATOR_BYTES + node.schema().fields().len() * COLUMN_BYTES;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}
