//! Statements that come again and again.
//!
//! A statement that is planned for the second time, with the same settings, gets a generic plan ([`made`]), as long as what it reads
//! stays as it is, but for its rows ([`basis`]): planning is most of what a gateway does for a query of few rows. Which plans can be generic is
//! decided by where parameters stand ([`places`]) and by what becomes of them; all others are planned each time.

/// What a generic plan was made for.
mod basis;
/// From a statement to its generic plan.
mod made;
/// Where parameters stand in a statement.
mod places;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use moka::sync::Cache;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;
use volary_node::memory;

use basis::Basis;
use made::Made;
use volary_catalog::access::Rights;
use volary_catalog::{State, Table};
use volary_planner::gather::QueryContext;
use volary_planner::generic_plan::GenericPlan;

use super::context::StatementContext;
use super::parameters::Parameters;
use super::session::Claimant;
use super::{Engine, Query, Session};

/// What is known of a statement takes so much beside its text.
const ENTRY_BYTES: usize = 512;
/// A statement whose values gave no plan so often has none.
const ATTEMPTS: u8 = 3;
/// What a plan takes, at least, and for each byte of its statement.
const PLAN_BYTES: usize = 32 << 10;
const PLAN_BYTES_PER_BYTE: usize = 128;
/// A worker that is asked takes so much of a plan.
const BYTES_PER_WORKER: usize = 128;
/// A plan that was used less often before what it reads changed was not worth its making.
const LEAST_USES: u32 = 2;
/// So many workers are found, for values of their own, in less time than another thread takes to wake up.
const FEW_WORKERS: usize = 8;

/// The generic plans of a gateway.
#[derive(Debug)]
pub(super) struct GenericPlans {
    known: Cache<StatementKey, Known>,
}

/// A statement, and the settings and rights that it is planned with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StatementKey {
    sql: String,
    /// Whose it is; `None` for those who may do everything.
    user: Option<String>,
    settings: Vec<(String, String)>,
}

/// What is known of a statement.
#[derive(Debug, Clone)]
enum Known {
    /// It was planned, and so often there was no generic plan of its values. One that nobody repeats gets none to keep.
    Seen(u8),
    Plan(Arc<Generic>),
    /// It can have none.
    Never,
}

impl StatementKey {
    /// Of a statement of this session, whose user has these rights.
    pub(super) fn of(session: &Session, rights: &Rights, sql: &str) -> Self {
        let mut settings: Vec<_> = session.settings().into_iter().collect();
        settings.sort_unstable();
        let user = (!rights.is_unrestricted()).then(|| rights.user().to_owned());
        Self {
            sql: sql.to_owned(),
            user,
            settings,
        }
    }
}

impl GenericPlans {
    /// That take so many bytes, by estimate.
    pub(super) fn new(bytes: usize) -> Self {
        let weight = |key: &StatementKey, known: &Known| {
            let settings = key.settings.iter();
            let settings: usize = settings.map(|(name, value)| name.len() + value.len()).sum();
            let statement = key.sql.len() + settings;
            let plan = match known {
                Known::Seen(_) | Known::Never => 0,
                Known::Plan(generic) => {
                    PLAN_BYTES
                        + statement.saturating_mul(PLAN_BYTES_PER_BYTE)
                        + generic.plan.workers() * BYTES_PER_WORKER
                }
            };
            u32::try_from(ENTRY_BYTES + statement + plan).unwrap_or(u32::MAX)
        };
        let known = Cache::builder().max_capacity(bytes as u64).weigher(weight);
        Self {
            known: known.build(),
        }
    }

    /// The plan of a statement, if what it reads is still as it was, and may still be read.
    pub(super) fn find(&self, catalog: &State, key: &StatementKey) -> Option<Found> {
        let Known::Plan(generic) = self.known.get(key)? else {
            return None;
        };
        let is_still = generic.basis.is_still(catalog);
        is_still.then(|| Found {
            snapshot: catalog.snapshot(),
            lineage: catalog.lineage(),
            tables: generic.plan.tables(catalog),
            generic,
        })
    }

    /// Notes that a query was planned by itself, and makes a generic plan if one is due.
    pub(super) async fn planned(
        &self,
        context: &StatementContext,
        key: StatementKey,
        plan: LogicalPlan,
        query: &Query,
        values: Option<&RecordBatch>,
    ) {
        let attempts = match self.known.get(&key) {
            None => None,
            Some(Known::Never) => return,
            Some(Known::Seen(attempts)) => Some(attempts),
            Some(Known::Plan(former)) => {
                if former.basis.is_still(&context.catalog) {
                    return; // it does not suit these values
                }
                let uses = former.uses.load(Ordering::Relaxed);
                (uses >= LEAST_USES).then_some(0)
            }
        };
        let known = match attempts {
            None => Known::Seen(0),
            Some(attempts) => match made::generic(context, plan, query, values).await {
                Ok(Made::Plan(generic)) => Known::Plan(Arc::new(*generic)),
                Ok(Made::NotOfTheseValues) if attempts < ATTEMPTS => Known::Seen(attempts + 1),
                Ok(Made::NotOfTheseValues | Made::Never) => Known::Never,
                Err(error) => {
                    tracing::debug!(%error, "there is no generic plan");
                    Known::Never
                }
            },
        };
        self.known.insert(key, known);
    }
}

/// A generic plan, with what a query takes beside it.
pub(super) struct Generic {
    basis: Basis,
    plan: GenericPlan,
    parameters: Parameters,
    /// Of the values that it was made with; others may have been planned otherwise.
    types: Vec<DataType>,
    schema: SchemaRef,
    config: SessionConfig,
    /// That of the query that it was made with: others differ in their ids, and in what they see.
    context: Arc<QueryContext>,
    memory: memory::Limit,
    uses: AtomicU32,
}

impl fmt::Debug for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generic")
            .field("basis", &self.basis)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// A plan that is right for one state of the catalog, and what a query sees then.
#[derive(Debug)]
pub(super) struct Found {
    generic: Arc<Generic>,
    snapshot: Snapshot,
    lineage: Lineage,
    /// What it reads, as of the snapshot.
    tables: Vec<Arc<Table>>,
}

impl Found {
    /// Whether a query is made in less time than another thread takes to wake up.
    pub(super) fn is_quick(&self) -> bool {
        self.generic.plan.workers() <= FEW_WORKERS
    }

    /// The query with these values. `None` if it must be planned by itself; what is wrong with the values is said there, too.
    ///
    /// # Errors
    /// Those of encoding the values.
    pub(super) fn query(
        &self,
        engine: &Engine,
        claimant: Claimant,
        values: Option<&RecordBatch>,
        id: QueryId,
    ) -> Result<Option<Query>> {
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
        let query_context = Arc::new(QueryContext {
            query_id: id,
            owner: claimant.number(),
            snapshot: self.snapshot.clone(),
            counted: None,
            lineage: self.lineage,
            tables: self.tables.clone(),
            ..QueryContext::clone(&generic.context)
        });
        let config = generic.config.clone().with_extension(query_context);
        // Operators that are planned look up no function.
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
        Ok(Some(Query {
            id,
            schema: Arc::clone(&generic.schema),
            snapshot: self.snapshot.clone(),
            reads: generic.basis.reads().clone(),
            access: Arc::clone(generic.basis.access()),
            plan,
            task: Arc::new(task),
            runtimes: engine.runtimes.clone(),
            planned_in: started.elapsed(),
            gate: engine.gate.clone(),
            claimant,
            // Tables of the gateway itself have no generic plans.
            is_listing: false,
        }))
    }
}
