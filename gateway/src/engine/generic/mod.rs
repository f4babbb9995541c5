//! A statement gets a generic plan ([`plan_attempt`]) when it is planned for the second time with
//! the same settings. The plan is used as long as what it reads stays the same, apart from the rows
//! ([`dependencies`]). For a query of few rows, planning is most of the gateway's work, and a
//! generic plan avoids it. Two things decide whether a statement can have a generic plan: where its
//! parameters stand ([`parameter_uses`]), and what the planner makes of them. All other statements
//! are planned each time.

/// Records what a generic plan was made for.
mod dependencies;
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
use std::time::Instant;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use chrono::Utc;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use moka::sync::Cache;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;
use volary_node::memory;

use dependencies::PlanDependencies;
use plan_attempt::PlanAttempt;
use volary_catalog::access::Rights;
use volary_catalog::{CatalogState, Table};
use volary_planner::gather::{QueryContext, RunSpan};
use volary_planner::generic_plan::GenericPlan;

use super::context::StatementContext;
use super::parameters::Parameters;
use super::session::Claimant;
use super::{Engine, PlannedQuery, Session};

/// Estimated size of an entry of the cache, without the text of its statement and without its plan,
/// in bytes.
const ENTRY_BYTES: usize = 512;
/// Number of failed attempts to make a generic plan after which one last attempt is made. If this
/// attempt fails too, the statement gets no generic plan.
const MAX_ATTEMPTS: u8 = 3;
/// Minimum estimated size of a plan, in bytes. [`PLAN_BYTES_PER_STATEMENT_BYTE`] is added for each
/// byte of its statement.
const MIN_PLAN_BYTES: usize = 32 << 10;
const PLAN_BYTES_PER_STATEMENT_BYTE: usize = 128;
/// Estimated size of the part of a plan that belongs to one worker, in bytes.
const BYTES_PER_WORKER: usize = 128;
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
}

/// A statement, with the settings and rights that it is planned with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StatementKey {
    sql: String,
    /// The user of the statement. `None` for users who may do everything.
    user: Option<String>,
    settings: Vec<(String, String)>,
    /// The [number](CatalogState::temporary_names) of the temporary tables that the session has.
    temporary_names: Option<u64>,
}

/// What is known about a statement.
#[derive(Debug, Clone)]
enum CacheEntry {
    /// The statement was planned, and this number of attempts to make a generic plan failed. No
    /// attempt is made when a statement is planned for the first time, so that a statement that
    /// nobody repeats leaves no plan in the cache.
    Seen(u8),
    Plan(Arc<CachedPlan>),
    /// The statement cannot have a generic plan.
    Impossible,
}

impl StatementKey {
    /// Creates the key of a statement of this session, whose user has these rights.
    pub(super) fn new(
        session: &Session,
        catalog: &CatalogState,
        rights: &Rights,
        sql: &str,
    ) -> Self {
        let mut settings: Vec<_> = session.settings().into_iter().collect();
        settings.sort_unstable();
        let user = (!rights.is_unrestricted()).then(|| rights.user().to_owned());
        Self {
            sql: sql.to_owned(),
            user,
            settings,
            temporary_names: session
                .temporary_session()
                .and_then(|session| catalog.temporary_names(session)),
        }
    }
}

impl GenericPlans {
    /// Creates a cache of plans that may take this number of bytes, by estimate.
    pub(super) fn new(bytes: usize) -> Self {
        let weight = |key: &StatementKey, entry: &CacheEntry| {
            let settings = key.settings.iter();
            let settings: usize = settings.map(|(name, value)| name.len() + value.len()).sum();
            let statement = key.sql.len() + settings;
            let plan = match entry {
                CacheEntry::Seen(_) | CacheEntry::Impossible => 0,
                CacheEntry::Plan(generic) => {
                    MIN_PLAN_BYTES
                        + statement.saturating_mul(PLAN_BYTES_PER_STATEMENT_BYTE)
                        + generic.plan.worker_count() * BYTES_PER_WORKER
                }
            };
            u32::try_from(ENTRY_BYTES + statement + plan).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(bytes as u64).weigher(weight);
        Self {
            entries: cache.build(),
        }
    }

    /// Returns the plan of a statement, if what it reads is unchanged and the same rights apply.
    pub(super) fn find(&self, catalog: &CatalogState, key: &StatementKey) -> Option<MatchingPlan> {
        let CacheEntry::Plan(generic) = self.entries.get(key)? else {
            return None;
        };
        let is_current = generic.dependencies.is_current(catalog);
        is_current.then(|| MatchingPlan {
            snapshot: catalog.snapshot(),
            lineage: catalog.lineage(),
            tables: generic.plan.tables(catalog),
            generic,
        })
    }

    /// Notes that a query was planned without a generic plan. Makes a generic plan if one is due.
    pub(super) async fn note_planned(
        &self,
        context: &StatementContext,
        key: StatementKey,
        plan: LogicalPlan,
        query: &PlannedQuery,
        values: Option<&RecordBatch>,
    ) {
        let attempts = match self.entries.get(&key) {
            None => None,
            Some(CacheEntry::Impossible) => return,
            Some(CacheEntry::Seen(attempts)) => Some(attempts),
            Some(CacheEntry::Plan(former)) => {
                if former.dependencies.is_current(&context.catalog) {
                    return; // the plan does not suit these values
                }
                let uses = former.uses.load(Ordering::Relaxed);
                (uses >= MIN_USES).then_some(0)
            }
        };
        let entry = match attempts {
            None => CacheEntry::Seen(0),
            Some(attempts) => {
                match plan_attempt::make_generic_plan(context, plan, query, values).await {
                    Ok(PlanAttempt::Plan(generic)) => CacheEntry::Plan(Arc::new(*generic)),
                    Ok(PlanAttempt::UnsuitableValues) if attempts < MAX_ATTEMPTS => {
                        CacheEntry::Seen(attempts + 1)
                    }
                    Ok(PlanAttempt::UnsuitableValues | PlanAttempt::Impossible) => {
                        CacheEntry::Impossible
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the statement gets no generic plan");
                        CacheEntry::Impossible
                    }
                }
            }
        };
        self.entries.insert(key, entry);
    }
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
}

impl MatchingPlan {
    /// Returns whether making a query takes less time than waking up another thread.
    pub(super) fn is_quick(&self) -> bool {
        self.generic.plan.worker_count() <= FEW_WORKERS
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
        let Ok(values) = generic.parameters.values(values) else {
            return Ok(None);
        };
        let types = values.iter().map(|value| value.data_type());
        if !types.eq(generic.types.iter().cloned()) {
            return Ok(None);
        }
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
            planning_time: started.elapsed(),
            queue: engine.queue.clone(),
            claimant,
            // Queries of system tables have no generic plans.
            is_listing: false,
        }))
    }
}
