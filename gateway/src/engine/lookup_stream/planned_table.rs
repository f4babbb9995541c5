use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::TryStreamExt;
use volary_catalog::Table;
use volary_exec::batches::used_bytes;
use volary_flight_proto::{Error, Result};
use volary_gather::MergedStreams;
use volary_gather::report::StreamReports;
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};
use volary_planner::gather::{LookupFragment, LookupMemory, QueryContext};

use crate::engine::context::StatementContext;
use crate::lookup::division::divide;
use crate::lookup::found_rows::{FoundRows, OrderedRows};
use crate::lookup::keys::Keys;
use crate::statements::{ProgressHandle, WorkerStatistics};

/// Number of lookups of one stream that run at the same time.
pub(crate) const MAX_RUNNING: usize = 4;

/// The rows of a lookup, with the memory that they take.
#[derive(Debug)]
pub(crate) struct LookedUp {
    pub(crate) ordered: OrderedRows,
    pub(crate) memory: MemoryReservation,
}

/// A table as it is at one time, and what a lookup in it needs beside its keys.
#[derive(Clone)]
pub(super) struct PlannedTable {
    pub(super) table: Arc<Table>,
    plan: Arc<LookupPlan>,
}

struct LookupPlan {
    fragment: LookupFragment,
    /// The position of the shard key in the workers' rows.
    key: usize,
    /// The columns that the client gets. They are the first ones of the workers' rows.
    columns: SchemaRef,
    query: Arc<QueryContext>,
    pool: Arc<dyn MemoryPool>,
}

impl PlannedTable {
    /// Plans lookups of the columns `projection` of a table. The first `asked` of them are for the
    /// client, and the shard key is at the position `key`.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub(super) fn new(
        context: &StatementContext,
        table: &Arc<Table>,
        projection: &[usize],
        key: usize,
        asked: usize,
    ) -> Result<Self> {
        let config = context.state.config();
        let query = config
            .get_extension::<QueryContext>()
            .ok_or_else(|| Error::internal("a lookup has no query context"))?;
        let fragment = LookupFragment::new(table, projection, key, &query, config.batch_size())?;
        let fields = fragment
            .schema()
            .fields()
            .iter()
            .take(asked)
            .cloned()
            .collect::<Vec<_>>();
        let plan = LookupPlan {
            fragment,
            key,
            columns: Arc::new(Schema::new(fields)),
            query,
            pool: Arc::clone(context.task().memory_pool()),
        };
        Ok(Self {
            table: Arc::clone(table),
            plan: Arc::new(plan),
        })
    }

    /// Plans the same lookups in another state of the table, or in the table that has replaced it.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table has other columns now.
    pub(super) fn follow(
        &self,
        context: &StatementContext,
        projection: &[usize],
        table: &Arc<Table>,
    ) -> Result<Self> {
        let has_same_columns = table.schema() == self.table.schema();
        if !has_same_columns || table.shard_key() != self.table.shard_key() {
            return Err(Error::not_found(format!(
                "the columns of table \"{}\" have changed while keys were looked up in it; open another stream",
                table.name()
            )));
        }
        let is_same = table.id() == self.table.id()
            && table.name() == self.table.name()
            && table.has_same_retention(&self.table);
        if is_same {
            return Ok(Self {
                table: Arc::clone(table),
                plan: Arc::clone(&self.plan),
            });
        }
        let (key, asked) = (self.plan.key, self.plan.columns.fields().len());
        Self::new(context, table, projection, key, asked)
    }

    /// Returns the columns that the client gets.
    pub(super) fn columns(&self) -> &SchemaRef {
        &self.plan.columns
    }

    /// Returns a query with the settings of the lookups.
    pub(super) fn query(&self) -> &QueryContext {
        &self.plan.query
    }

    /// Returns the memory pool that all lookups of the stream share.
    pub(super) fn pool(&self) -> &Arc<dyn MemoryPool> {
        &self.plan.pool
    }

    /// Returns the rows of the keys, as `query` sees them.
    ///
    /// # Errors
    /// The errors of the workers, and `RESOURCE_EXHAUSTED` if there is too little memory.
    pub(super) async fn look_up(
        &self,
        keys: &Keys,
        query: &QueryContext,
        progress: &ProgressHandle,
    ) -> Result<LookedUp> {
        let Self { table, plan } = self;
        if keys.values().get_array_memory_size() > SHORT_WORK_BYTES {
            continue_on_cpu().await;
        }
        let memory = MemoryConsumer::new("rows of lookups").register(&plan.pool);
        let workers = divide(keys.values(), table)?;
        let reports = StreamReports::default();
        let transit = LookupMemory {
            lookups: MAX_RUNNING,
            pool: Arc::clone(&plan.pool),
        };
        let streams = plan
            .fragment
            .open(&workers, table, query, &transit, &reports)?;
        let shards = workers.iter().map(|asked| asked.shards.len()).sum();
        let asked = workers.len();
        drop(workers);
        let mut found = MergedStreams::new(streams);
        let mut batches = Vec::new();
        while let Some(rows) = found.try_next().await? {
            memory.try_grow(used_bytes(&rows.batch))?;
            batches.push(rows.batch);
        }
        drop(found);
        progress.add_work(&WorkerStatistics::of_reports(asked, shards, &reports));
        if memory.size() > SHORT_WORK_BYTES {
            continue_on_cpu().await;
        }
        let found = FoundRows::new(keys, batches, plan.key)?;
        memory.try_grow(found.ordered_bytes())?;
        let ordered = found.into_order(&plan.columns)?;
        Ok(LookedUp { ordered, memory })
    }
}
