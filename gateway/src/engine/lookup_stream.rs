//! A stream of lookups is a statement that goes on until its client ends it. Each of its batches is
//! looked up like a query of its own: with the rights and the snapshot of the moment.

use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use chrono::Utc;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use tokio::sync::OwnedSemaphorePermit;
use volary_catalog::access::Privilege;
use volary_catalog::{CatalogState, RelationName, Table};
use volary_exec::batches::used_bytes;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, Result, SqlState};
use volary_gather::MergedStreams;
use volary_gather::report::StreamReports;
use volary_node::Runtimes;
use volary_node::admission::RunPlace;
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};
use volary_planner::gather::{LookupFragment, LookupMemory, QueryContext, RunSpan};

use super::context::StatementContext;
use super::result_columns::with_sql_types;
use super::{Engine, Session};
use crate::lookup::division::divide;
use crate::lookup::found_rows::{FoundRows, OrderedRows};
use crate::lookup::keys::{KeyColumn, Keys};
use crate::lookup::streams::LookupStreams;
use crate::sql::names::{WrittenName, is_cluster_schema};
use crate::statements::{ProgressHandle, WorkerStatistics};

/// Number of lookups of one stream that run at the same time.
pub(crate) const MAX_RUNNING: usize = 4;

/// What a client wants to look up.
#[derive(Debug)]
pub(crate) struct LookupTarget {
    /// The name of the table.
    pub(crate) table: WrittenName,
    /// The names of the columns, exactly as they are. Empty for all columns.
    pub(crate) columns: Vec<String>,
    /// Says whether all batches see the same snapshot.
    pub(crate) one_snapshot: bool,
}

/// An open stream of lookups in a table.
pub(crate) struct LookupStream {
    engine: Arc<Engine>,
    session: Session,
    context: StatementContext,
    table: Arc<Table>,
    key: KeyColumn,
    /// The columns of the workers' rows, by position in the table.
    projection: Vec<usize>,
    plan: Arc<LookupPlan>,
    fixed: Option<FixedState>,
    progress: ProgressHandle,
    _place: OwnedSemaphorePermit,
}

/// What a lookup needs beside its keys.
struct LookupPlan {
    fragment: LookupFragment,
    /// The position of the shard key in the workers' rows.
    key: usize,
    /// The columns that the client gets. They are the first ones of the workers' rows.
    columns: SchemaRef,
    query: Arc<QueryContext>,
    pool: Arc<dyn MemoryPool>,
}

/// What all batches of a stream see, if it has one snapshot.
struct FixedState {
    snapshot: Snapshot,
    as_of_us: i64,
}

/// The rows of a lookup, with the memory that they take.
#[derive(Debug)]
pub(crate) struct LookedUp {
    pub(crate) ordered: OrderedRows,
    pub(crate) memory: MemoryReservation,
}

impl Engine {
    /// Opens a stream of lookups, whose batches of keys have the schema `keys`. `query_id`: see
    /// [`Self::execute`].
    ///
    /// # Errors
    /// `NOT_FOUND` if the table or a column does not exist, `PERMISSION_DENIED` without the right
    /// to read it, `INVALID_ARGUMENT` for a table without a shard key and for keys of a wrong type,
    /// `RESOURCE_EXHAUSTED` if too many streams are open.
    pub(crate) async fn open_lookup_stream(
        self: &Arc<Self>,
        session: &Session,
        target: LookupTarget,
        keys: SchemaRef,
        query_id: QueryId,
    ) -> Result<LookupStream> {
        let (engine, own) = (Arc::clone(self), session.clone());
        let opening = async move { engine.open_lookups(own, &target, &keys, query_id) };
        self.on_cpu(session, opening).await
    }

    fn open_lookups(
        self: &Arc<Self>,
        session: Session,
        target: &LookupTarget,
        keys: &Schema,
        query_id: QueryId,
    ) -> Result<LookupStream> {
        let place = self.lookups.enter()?;
        self.cluster.refuse_conflicts()?;
        let context = StatementContext::new(self, &session, query_id, None, false)?;
        let name = context.search_path().find(&context.catalog, &target.table);
        let (table, key) = find_table(&context, &name)?;
        let mut projection = find_columns(&table, &target.columns)?;
        let asked = projection.len();
        let key_field = table.schema().field(key);
        let key = projection
            .iter()
            .position(|column| *column == key)
            .unwrap_or_else(|| {
                projection.push(key);
                asked
            });
        let key_column = KeyColumn {
            table: name.to_string(),
            name: key_field.name().clone(),
            data_type: key_field.data_type().clone(),
            zone: context.time_zone(),
        };
        key_column.check_schema(keys)?;
        let plan = LookupPlan::new(&context, &table, &projection, key, asked)?;
        let progress = self.statements.progress(query_id);
        progress.set_running(&context.task().runtime_env());
        let fixed = target.one_snapshot.then(|| FixedState {
            snapshot: context.snapshot.clone(),
            as_of_us: plan.query.as_of_us,
        });
        if fixed.is_none() {
            progress.set_reads_since(None);
        }
        Ok(LookupStream {
            engine: Arc::clone(self),
            session,
            context,
            table,
            key: key_column,
            projection,
            plan: Arc::new(plan),
            fixed,
            progress,
            _place: place,
        })
    }
}

impl LookupPlan {
    /// Creates the plan for the columns `projection` of a table. The first `asked` of them are for
    /// the client, and the shard key is at the position `key`.
    fn new(
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
        Ok(Self {
            fragment,
            key,
            columns: Arc::new(Schema::new(fields)),
            query,
            pool: Arc::clone(context.task().memory_pool()),
        })
    }
}

/// Returns a table in which keys can be looked up, and the position of its shard key.
///
/// # Errors
/// `NOT_FOUND` if it does not exist, `PERMISSION_DENIED` if the user may not read it, and
/// `INVALID_ARGUMENT` if it has no shard key.
fn find_table(context: &StatementContext, name: &RelationName) -> Result<(Arc<Table>, usize)> {
    let without_key = |what: &str| {
        Error::invalid(format!(
            "keys cannot be looked up in \"{name}\", because {what}; query it with SELECT"
        ))
    };
    if is_cluster_schema(name.schema()) {
        return Err(without_key("the tables of this schema have no shard key"));
    }
    let catalog = &context.catalog;
    catalog.check_privilege(Privilege::Select, name, &context.rights)?;
    let table = catalog
        .table(name)
        .ok_or_else(|| without_key("it is a view, which has no shard key"))?;
    match table.shard_key() {
        Some(key) => Ok((Arc::clone(table), key)),
        None if table.is_reference() => Err(without_key(
            "it is a reference table, which has no shard key",
        )),
        None => Err(without_key("the table has no shard key")),
    }
}

/// Returns the positions of the columns with these names, or of all columns if there are no names.
///
/// # Errors
/// `NOT_FOUND` for a column that does not exist. `INVALID_ARGUMENT` for one that is named twice.
fn find_columns(table: &Table, names: &[String]) -> Result<Vec<usize>> {
    let columns = table.schema().fields();
    if names.is_empty() {
        return Ok((0..columns.len()).collect());
    }
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let Some((position, _)) = columns.find(name) else {
            let known: Vec<_> = columns
                .iter()
                .map(|column| column.name().as_str())
                .collect();
            return Err(Error::not_found(format!(
                "table \"{}\" has no column \"{name}\"; it has {}",
                table.name(),
                known.join(", ")
            ))
            .with_sqlstate(SqlState::UndefinedColumn));
        };
        if found.contains(&position) {
            return Err(Error::invalid(format!(
                "column \"{name}\" is asked for twice; name it once"
            ))
            .with_sqlstate(SqlState::DuplicateColumn));
        }
        found.push(position);
    }
    Ok(found)
}

impl LookupStream {
    /// Returns the runtimes on which the stream's batches are looked up.
    pub(crate) fn runtimes(&self) -> &Runtimes {
        &self.context.runtimes
    }

    /// Returns the columns that the client gets, in DataFusion's own types.
    pub(crate) fn columns(&self) -> SchemaRef {
        with_sql_types(&self.plan.columns)
    }

    /// Reads the keys of a batch.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for keys that cannot be looked up.
    pub(crate) fn read_keys(&self, batch: &RecordBatch) -> Result<Keys> {
        self.key.read(batch, self.engine.config.lookup.max_keys)
    }

    /// Returns what all streams of lookups share.
    pub(crate) fn counts(&self) -> Arc<LookupStreams> {
        Arc::clone(&self.engine.lookups)
    }

    /// Takes memory for what the client has sent.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is too little memory.
    pub(crate) fn memory_for_keys(&self, bytes: usize) -> Result<MemoryReservation> {
        let memory = MemoryConsumer::new("keys of lookups").register(&self.plan.pool);
        memory.try_grow(bytes)?;
        Ok(memory)
    }

    /// Waits until the stream may look up batches.
    pub(crate) fn wait_for_turn(&self) -> BoxFuture<'static, Result<RunPlace>> {
        let (queue, claimant) = (self.engine.queue.clone(), self.session.claimant());
        async move { queue.wait_for_turn(&claimant).await }.boxed()
    }

    /// Returns whether other statements wait for the place that the stream has.
    pub(crate) fn must_give_way(&self) -> bool {
        self.engine.queue.is_full()
    }

    /// Notes since when the oldest running lookup runs, or that none runs.
    pub(crate) fn note_running(&self, since: Option<Instant>) {
        // A stream with one snapshot reads what was committed when it was opened.
        if self.fixed.is_none() {
            self.progress.set_reads_since(since);
        }
    }

    /// Begins to look up keys, with the rights and the snapshot of this moment.
    ///
    /// # Errors
    /// The errors that end the stream: `NOT_FOUND` if the table was dropped or has other columns,
    /// `PERMISSION_DENIED` or `UNAUTHENTICATED` if the user may no longer read it.
    pub(crate) fn begin(
        &mut self,
        keys: Keys,
    ) -> Result<impl Future<Output = Result<LookedUp>> + Send + use<>> {
        self.engine.cluster.refuse_conflicts()?;
        let state = self.engine.catalog.state();
        let rights = state.access().current_rights(self.session.rights())?;
        let table = self.find_again(&state)?;
        state.check_privilege(Privilege::Select, table.name(), &rights)?;
        self.follow(table)?;
        let current = state.snapshot();
        let (snapshot, counted_writes, as_of_us) = match &self.fixed {
            None => (current, None, Utc::now().timestamp_micros()),
            Some(fixed) => {
                let counted = (fixed.snapshot != current).then_some(current);
                (fixed.snapshot.clone(), counted, fixed.as_of_us)
            }
        };
        let query = QueryContext {
            snapshot,
            counted_writes,
            as_of_us,
            lineage: state.lineage(),
            tables: vec![Arc::clone(&self.table)],
            span: RunSpan::current(),
            ..QueryContext::clone(&self.plan.query)
        };
        let plan = Arc::clone(&self.plan);
        let (table, progress) = (Arc::clone(&self.table), self.progress.clone());
        Ok(look_up(plan, keys, table, query, progress))
    }

    /// Returns the table as it is now. A table that was replaced is found by its name, as a query
    /// would find it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such table any more.
    fn find_again<'s>(&self, state: &'s CatalogState) -> Result<&'s Arc<Table>> {
        let name = self.table.name();
        let by_name = || match &self.fixed {
            None => state.table(name),
            // The rows of another table are not in the snapshot.
            Some(_) => None,
        };
        let table = state.table_by_id(self.table.id()).or_else(by_name);
        table.ok_or_else(|| {
            Error::not_found(format!(
                "table \"{name}\" was dropped while keys were looked up in it; create the table again, and open another stream"
            ))
            .with_sqlstate(SqlState::UndefinedTable)
        })
    }

    /// Takes over a newer state of the table.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table has other columns now.
    fn follow(&mut self, table: &Arc<Table>) -> Result<()> {
        if Arc::ptr_eq(table, &self.table) {
            return Ok(());
        }
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
        self.table = Arc::clone(table);
        if !is_same {
            let (key, asked) = (self.plan.key, self.plan.columns.fields().len());
            let plan = LookupPlan::new(&self.context, table, &self.projection, key, asked)?;
            self.plan = Arc::new(plan);
        }
        Ok(())
    }
}

async fn look_up(
    plan: Arc<LookupPlan>,
    keys: Keys,
    table: Arc<Table>,
    query: QueryContext,
    progress: ProgressHandle,
) -> Result<LookedUp> {
    if keys.values().get_array_memory_size() > SHORT_WORK_BYTES {
        continue_on_cpu().await;
    }
    let memory = MemoryConsumer::new("rows of lookups").register(&plan.pool);
    let workers = divide(keys.values(), &table)?;
    let reports = StreamReports::default();
    let transit = LookupMemory {
        lookups: MAX_RUNNING,
        pool: Arc::clone(&plan.pool),
    };
    let streams = plan
        .fragment
        .open(&workers, &table, &query, &transit, &reports)?;
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
    let found = FoundRows::new(&keys, batches, plan.key)?;
    memory.try_grow(found.ordered_bytes())?;
    let ordered = found.into_order(&plan.columns)?;
    Ok(LookedUp { ordered, memory })
}
