//! A statement gets a generic plan ([`plan_attempt`]) when it is planned for the second time with
//! the same settings. The plan is used as long as what it reads stays the same, apart from the rows
//! ([`PlanDependencies`]). For a query of few rows, planning is most of the gateway's work, and a
//! generic plan avoids it. Two things decide whether a statement can have a generic plan: where its
//! parameters stand ([`parameter_uses`]), and what the planner makes of them. All other statements
//! are planned each time.
//!
//! A statement whose literals could be parameters shares the generic plan of its
//! [`Template`] with all statements that differ from it in these literals only.

/// Checks where parameters stand in a statement.
mod parameter_uses;
/// Makes the generic plan of a statement.
mod plan_attempt;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use chrono::Utc;
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use moka::sync::Cache;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;
use volary_node::memory;

use plan_attempt::PlanAttempt;
use volary_catalog::{CatalogState, Table};
use volary_planner::gather::{QueryContext, RunSpan};
use volary_planner::generic_plan::GenericPlan;

use super::context::StatementContext;
use super::kept_plan::PlanDependencies;
use super::parameters::Parameters;
use super::session::Claimant;
use super::statement_key::StatementKey;
use super::{Engine, PlannedQuery, StatementDescription};
use crate::client_types::ClientSchemas;
use crate::sql::explained::explained_statement;
use crate::sql::literals::Template;

/// Estimated size of an entry of the cache, without the text of its statement and without its plan,
/// in bytes.
const ENTRY_BYTES: usize = 512;
/// Minimum estimated size of a plan, in bytes. [`PLAN_BYTES_PER_STATEMENT_BYTE`] is added for each
/// byte of its statement.
const MIN_PLAN_BYTES: usize = 32 << 10;
const PLAN_BYTES_PER_STATEMENT_BYTE: usize = 128;
/// Estimated size of the part of a plan that belongs to one column of the result, in bytes. The
/// column is described to several kinds of clients.
const BYTES_PER_COLUMN: usize = 2 << 10;
/// Estimated size of the part of a plan that belongs to one worker, in bytes.
const BYTES_PER_WORKER: usize = 128;
/// Number of times that a statement is planned with values that suit no generic plan until there is
/// little hope for other values.
const MOST_UNSUITABLE: u32 = 4;
/// Number of uses that make a plan worth replacing after what it reads has changed. A plan with
/// fewer uses was not worth making.
const MIN_USES: u32 = 2;
/// Maximum number of workers of a plan whose values are bound inline. Finding the workers for the
/// values then takes less time than waking up another thread.
const FEW_WORKERS: usize = 8;

/// The generic plans of a gateway.
#[derive(Debug)]
pub(super) struct GenericPlans {
    entries: Cache<StatementKey, CacheEntry>,
    capacity_bytes: usize,
}

/// What is known about a statement.
#[derive(Debug, Clone)]
enum CacheEntry {
    /// The statement has no generic plan.
    None {
        /// Number of times that the statement was planned.
        planned: u32,
        /// Says whether the last attempt to make a generic plan gives no hope that the next one
        /// will succeed.
        is_hopeless: bool,
    },
    Plan(Arc<CachedPlan>),
}

/// Returns whether a generic plan is to be made for a statement that was planned this number of
/// times. A statement that nobody repeats leaves no plan in the cache. Attempts that fail become
/// rare, but never end, because values and tables may be others by then.
fn is_attempt_due(planned: u32) -> bool {
    planned >= 2 && planned.is_power_of_two()
}

/// Returns the estimated size of an entry of the cache, in bytes.
fn entry_bytes(key: &StatementKey, entry: &CacheEntry) -> usize {
    let statement = key.bytes();
    let plan = match entry {
        CacheEntry::None { .. } => 0,
        CacheEntry::Plan(generic) => {
            MIN_PLAN_BYTES
                + statement.saturating_mul(PLAN_BYTES_PER_STATEMENT_BYTE)
                + generic.schema.fields().len() * BYTES_PER_COLUMN
                + generic.plan.worker_count() * BYTES_PER_WORKER
        }
    };
    ENTRY_BYTES + statement + plan
}

/// A statement that is planned now, with its generic plan if it has one.
pub(super) struct Lookup {
    /// The text of the statement itself.
    pub(super) key: StatementKey,
    /// The statement with parameters in place of literals, and the literals. `None` if none of its
    /// literals can be a parameter.
    template: Option<(StatementKey, RecordBatch)>,
    /// The generic plan of the statement, or of its template.
    pub(super) plan: Option<MatchingPlan>,
}

impl Lookup {
    /// Returns the lookup of a statement that is planned without a generic plan.
    pub(super) fn without_plan(key: StatementKey) -> Self {
        Self {
            key,
            template: None,
            plan: None,
        }
    }
}

impl GenericPlans {
    /// Creates a cache of plans that may take this number of bytes, by estimate.
    pub(super) fn new(bytes: usize) -> Self {
        let weight = |key: &StatementKey, entry: &CacheEntry| {
            u32::try_from(entry_bytes(key, entry)).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(bytes as u64).weigher(weight);
        Self {
            entries: cache.build(),
            capacity_bytes: bytes,
        }
    }

    /// Keeps an entry, if it is not larger than the whole cache. The cache would evict such an
    /// entry only some time later.
    fn keep(&self, key: &StatementKey, entry: CacheEntry) {
        if entry_bytes(key, &entry) <= self.capacity_bytes {
            self.entries.insert(key.clone(), entry);
        }
    }

    /// Looks for the generic plan of a statement with these parameters.
    pub(super) fn look_up(
        &self,
        catalog: &CatalogState,
        key: StatementKey,
        values: Option<&RecordBatch>,
    ) -> Lookup {
        let mut lookup = Lookup::without_plan(key);
        lookup.plan = self.find(catalog, &lookup.key);
        let has_values = values.is_some_and(|values| values.num_columns() > 0);
        if lookup.plan.is_none()
            && !has_values
            && let Some(template) = Template::of(lookup.key.sql())
        {
            let key = lookup.key.of_other(template.sql);
            lookup.plan = self.find(catalog, &key).map(|plan| MatchingPlan {
                literals: Some(template.values.clone()),
                ..plan
            });
            lookup.template = Some((key, template.values));
        }
        lookup
    }

    /// Returns the plan of a statement, if what it reads is unchanged and the same rights apply.
    fn find(&self, catalog: &CatalogState, key: &StatementKey) -> Option<MatchingPlan> {
        let CacheEntry::Plan(generic) = self.entries.get(key)? else {
            return None;
        };
        let is_current = generic.dependencies.is_current(catalog);
        is_current.then(|| MatchingPlan {
            snapshot: catalog.snapshot(),
            lineage: catalog.lineage(),
            tables: generic.plan.tables(catalog),
            literals: None,
            generic,
        })
    }

    /// Notes that a query was planned without a generic plan. Makes a generic plan if one is due:
    /// that of the statement's template, or that of the statement if its template cannot have one.
    /// `plan` is the logical plan of the statement without values.
    pub(super) async fn note_planned(
        &self,
        context: &StatementContext,
        lookup: Lookup,
        plan: LogicalPlan,
        query: &PlannedQuery,
        values: Option<&RecordBatch>,
    ) {
        if let Some((key, literals)) = &lookup.template {
            match self.count_planned(context, key) {
                Due::Nothing => return,
                Due::Attempt { planned } => {
                    let making =
                        plan_attempt::make_plan_of_template(context, key, &plan, query, literals);
                    return self.keep_outcome(key, planned, making.await);
                }
                Due::Other => {}
            }
        }
        let key = &lookup.key;
        if let Due::Attempt { planned } = self.count_planned(context, key) {
            let making = plan_attempt::make_generic_plan(context, plan, query, values);
            self.keep_outcome(key, planned, making.await);
        }
    }

    /// Says whether the statement that an EXPLAIN explains uses a generic plan, and why if it does
    /// not. `explaining` is the key of the EXPLAIN. The explained statement was just planned as
    /// `query`, and `plan` is its logical plan without values. Returns `None` if `explaining` is no
    /// EXPLAIN.
    pub(super) async fn explain(
        &self,
        context: &StatementContext,
        explaining: &StatementKey,
        plan: &LogicalPlan,
        query: &PlannedQuery,
        values: Option<&RecordBatch>,
    ) -> Option<String> {
        let key = explaining.of_other(explained_statement(explaining.sql())?.to_owned());
        let lookup = self.look_up(&context.catalog, key, values);
        if let Some(generic) = &lookup.plan
            && generic.suitable_values(values).is_some()
        {
            let text = lookup
                .template
                .as_ref()
                .map_or(lookup.key.sql(), |(key, _)| key.sql());
            return Some(format!("used: the kept plan of {text}"));
        }
        if let Some((key, literals)) = &lookup.template {
            let making = plan_attempt::make_plan_of_template(context, key, plan, query, literals);
            if let Ok(PlanAttempt::Plan(_)) = making.await {
                return Some(self.explain_absence(context, key));
            }
        }
        let making = plan_attempt::make_generic_plan(context, plan.clone(), query, values);
        Some(match making.await {
            Ok(PlanAttempt::Plan(_)) => self.explain_absence(context, &lookup.key),
            Ok(PlanAttempt::UnsuitableValues) => {
                "none: a plan for these values would not suit other values".to_owned()
            }
            Ok(PlanAttempt::Impossible(reason)) => format!("none: {reason}"),
            Err(error) => format!("none: {error}"),
        })
    }

    /// Says when a statement gets a generic plan that could have one now.
    fn explain_absence(&self, context: &StatementContext, key: &StatementKey) -> String {
        let text = key.sql();
        match self.entries.get(key) {
            Some(CacheEntry::Plan(generic))
                if generic.dependencies.is_current(&context.catalog) =>
            {
                format!("none: the kept plan does not suit these values: {text}")
            }
            Some(CacheEntry::None { planned, .. }) if planned >= 2 => {
                let next = planned.saturating_add(1).next_power_of_two();
                format!(
                    "not yet: earlier values had none; the next attempt is made when the statement was planned {next} times, and it was planned {planned} times, for {text}"
                )
            }
            _ => format!(
                "not yet: it is made when the statement is planned for the second time, for {text}"
            ),
        }
    }

    /// Counts that a statement was planned without a generic plan. Returns what is due now.
    fn count_planned(&self, context: &StatementContext, key: &StatementKey) -> Due {
        let (planned, is_hopeless) = match self.entries.get(key) {
            Some(CacheEntry::None {
                planned,
                is_hopeless,
            }) => (planned.saturating_add(1), is_hopeless),
            Some(CacheEntry::Plan(former)) => {
                // The plan does not suit these values.
                if former.dependencies.is_current(&context.catalog) {
                    return Due::Nothing;
                }
                if former.uses.load(Ordering::Relaxed) >= MIN_USES {
                    return Due::Attempt { planned: 1 };
                }
                (1, false)
            }
            None => (1, false),
        };
        if is_attempt_due(planned) {
            return Due::Attempt { planned };
        }
        self.keep(
            key,
            CacheEntry::None {
                planned,
                is_hopeless,
            },
        );
        match is_hopeless {
            true => Due::Other,
            false => Due::Nothing,
        }
    }

    /// Keeps the outcome of an attempt to make the generic plan of a statement that was planned
    /// this number of times.
    fn keep_outcome(&self, key: &StatementKey, planned: u32, outcome: Result<PlanAttempt>) {
        let none = |is_hopeless| CacheEntry::None {
            planned,
            is_hopeless,
        };
        let entry = match outcome {
            Ok(PlanAttempt::Plan(generic)) => CacheEntry::Plan(Arc::new(*generic)),
            Ok(PlanAttempt::UnsuitableValues) => none(planned >= MOST_UNSUITABLE),
            Ok(PlanAttempt::Impossible(_)) => none(true),
            Err(error) => {
                tracing::debug!(%error, "the statement gets no generic plan");
                none(true)
            }
        };
        self.keep(key, entry);
    }
}

/// What is due after a statement was planned without a generic plan.
enum Due {
    Nothing,
    /// A generic plan is to be made. The statement was planned this number of times.
    Attempt {
        planned: u32,
    },
    /// There is little hope for a generic plan. If the statement is a template, a plan of the text
    /// with its literals may be due.
    Other,
}

/// A generic plan, with everything else that a query made from it needs.
pub(super) struct CachedPlan {
    dependencies: PlanDependencies,
    plan: GenericPlan,
    parameters: Parameters,
    /// The types of the values that the plan was made with. Values of other types might be planned
    /// differently.
    types: Vec<DataType>,
    schema: SchemaRef,
    client_schemas: Arc<ClientSchemas>,
    /// What a client is told of the statement before it sends values.
    description: StatementDescription,
    config: SessionConfig,
    /// The context of the query that the plan was made with. The contexts of other queries differ
    /// in their ids and in what they see.
    context: Arc<QueryContext>,
    memory: memory::ByteLimit,
    uses: AtomicU32,
}

impl fmt::Debug for CachedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedPlan")
            .field("dependencies", &self.dependencies)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// A generic plan that is right for one state of the catalog, with what a query sees in that state.
#[derive(Debug)]
pub(super) struct MatchingPlan {
    generic: Arc<CachedPlan>,
    snapshot: Snapshot,
    lineage: Lineage,
    /// The tables that the plan reads, as of the snapshot.
    tables: Vec<Arc<Table>>,
    /// The literals of the statement, if the plan is that of its template. `None` if the statement
    /// itself has the plan's parameters.
    literals: Option<RecordBatch>,
}

impl MatchingPlan {
    /// Returns whether making a query takes less time than waking up another thread.
    pub(super) fn is_quick(&self) -> bool {
        self.generic.plan.worker_count() <= FEW_WORKERS
    }

    /// Describes the statement with these values. Returns `None` if the statement must be planned
    /// to describe it.
    pub(super) fn describe(&self, values: Option<&RecordBatch>) -> Option<StatementDescription> {
        let mut description = self.generic.description.clone();
        if self.literals.is_some() {
            description.parameters.clear();
        }
        let has_unbound_parameters = values.is_none() && !description.parameters.is_empty();
        (has_unbound_parameters || self.suitable_values(values).is_some()).then_some(description)
    }

    /// Returns the values of the plan's parameters: these values, or the literals of the statement.
    /// Returns `None` if the plan does not suit them.
    fn suitable_values(&self, values: Option<&RecordBatch>) -> Option<Vec<ScalarValue>> {
        let generic = &self.generic;
        if let Some(literals) = &self.literals
            && !generic.parameters.mean_the_same_as(literals)
        {
            return None;
        }
        let given = self.literals.as_ref().or(values);
        let values = generic.parameters.values(given).ok()?;
        let types = values.iter().map(ScalarValue::data_type);
        types.eq(generic.types.iter().cloned()).then_some(values)
    }

    /// Returns the query with these values. Returns `None` if the query must be planned without the
    /// generic plan. If the values are wrong, planning then reports the error.
    ///
    /// # Errors
    /// Returns an error if the values cannot be encoded.
    pub(super) fn bind_values(
        &self,
        engine: &Engine,
        claimant: Claimant,
        values: Option<&RecordBatch>,
        id: QueryId,
    ) -> Result<Option<PlannedQuery>> {
        let started = Instant::now();
        let generic = &self.generic;
        let Some(values) = self.suitable_values(values) else {
            return Ok(None);
        };
        let Some(plan) = generic.plan.with_values(&values)? else {
            return Ok(None);
        };
        generic.uses.fetch_add(1, Ordering::Relaxed);
        let owner = claimant.owner_number();
        let query_context = Arc::new(QueryContext {
            query_id: id,
            owner,
            snapshot: self.snapshot.clone(),
            counted_writes: None,
            as_of_us: Utc::now().timestamp_micros(),
            lineage: self.lineage,
            tables: self.tables.clone(),
            span: RunSpan::current(),
            ..QueryContext::clone(&generic.context)
        });
        let config = generic.config.clone().with_extension(query_context);
        // Planned operators look up no functions.
        let task = TaskContext::new(
            None,
            String::new(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            engine.memory.env(generic.memory),
        );
        Ok(Some(PlannedQuery {
            id,
            schema: Arc::clone(&generic.schema),
            snapshot: self.snapshot.clone(),
            reads: generic.dependencies.reads().clone(),
            access: Arc::clone(generic.dependencies.access()),
            plan,
            task: Arc::new(task),
            runtimes: engine.runtimes.of_user(owner),
            parsing_time: Duration::ZERO,
            planning_time: started.elapsed(),
            plan_found: true,
            queue: engine.queue.clone(),
            claimant,
            // Queries of system tables have no generic plans.
            is_listing: false,
            client_schemas: Arc::clone(&generic.client_schemas),
        }))
    }
}
