//! A stream of lookups is a statement that goes on until its client ends it. Each of its batches is
//! looked up like a query of its own: with the rights and the snapshot of the moment.

/// Plans and runs lookups in one state of a table.
mod planned_table;
/// Finds the table and the columns that a client names.
mod target;

use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use chrono::Utc;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use volary_catalog::access::Privilege;
use volary_catalog::{CatalogState, Table};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};
use volary_node::Runtimes;
use volary_node::admission::RunPlace;
use volary_planner::gather::{QueryContext, RunSpan};

use self::planned_table::PlannedTable;
pub(crate) use self::planned_table::{LookedUp, MAX_RUNNING};
use self::target::{find_columns, find_table};
use super::context::StatementContext;
use super::result_columns::with_sql_types;
use super::statement_queue::StatementQueue;
use super::{Engine, Session};
use crate::lookup::keys::{KeyColumn, Keys};
use crate::lookup::streams::LookupStreams;
use crate::sql::names::WrittenName;
use crate::statements::ProgressHandle;

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
    opened: Arc<OpenedLookups>,
    /// The table as the last lookup found it.
    planned: PlannedTable,
    one_snapshot: Option<OneSnapshot>,
    _place: OwnedSemaphorePermit,
}

/// What stays the same as long as a stream is open.
struct OpenedLookups {
    engine: Arc<Engine>,
    session: Session,
    context: StatementContext,
    key: KeyColumn,
    /// The columns of the workers' rows, by position in the table.
    projection: Vec<usize>,
    progress: ProgressHandle,
}

/// What all batches of a stream see, if it has one snapshot.
#[derive(Clone)]
struct OneSnapshot {
    snapshot: Snapshot,
    as_of_us: i64,
    /// Says whether keys were looked up in the snapshot. Until then, the stream may have a newer
    /// one.
    is_used: bool,
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
        let planned = PlannedTable::new(&context, &table, &projection, key, asked)?;
        let progress = self.statements.progress(query_id);
        progress.set_running(&context.task().runtime_env());
        let one_snapshot = target.one_snapshot.then(|| OneSnapshot {
            snapshot: context.snapshot.clone(),
            as_of_us: planned.query().as_of_us,
            is_used: false,
        });
        if one_snapshot.is_none() {
            progress.set_reads_since(None);
        }
        let opened = OpenedLookups {
            engine: Arc::clone(self),
            session,
            context,
            key: key_column,
            projection,
            progress,
        };
        Ok(LookupStream {
            opened: Arc::new(opened),
            planned,
            one_snapshot,
            _place: place,
        })
    }
}

impl LookupStream {
    /// Returns the runtimes on which the stream's batches are looked up.
    pub(crate) fn runtimes(&self) -> &Runtimes {
        &self.opened.context.runtimes
    }

    /// Returns the columns that the client gets, in DataFusion's own types.
    pub(crate) fn columns(&self) -> SchemaRef {
        with_sql_types(self.planned.columns())
    }

    /// Returns whether all batches see the same snapshot.
    pub(crate) fn has_one_snapshot(&self) -> bool {
        self.one_snapshot.is_some()
    }

    /// Reads the keys of a batch.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for keys that cannot be looked up.
    pub(crate) fn read_keys(&self, batch: &RecordBatch) -> Result<Keys> {
        let max_keys = self.opened.engine.config.lookup.max_keys;
        self.opened.key.read(batch, max_keys)
    }

    /// Returns what all streams of lookups share.
    pub(crate) fn counts(&self) -> Arc<LookupStreams> {
        Arc::clone(&self.opened.engine.lookups)
    }

    /// Takes memory for what the client has sent.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is too little memory.
    pub(crate) fn memory_for_keys(&self, bytes: usize) -> Result<MemoryReservation> {
        let memory = MemoryConsumer::new("keys of lookups").register(self.planned.pool());
        memory.try_grow(bytes)?;
        Ok(memory)
    }

    /// Returns the queue in which the stream waits for its turns.
    pub(crate) fn statement_queue(&self) -> &StatementQueue {
        &self.opened.engine.queue
    }

    /// Waits until the stream may look up batches.
    pub(crate) fn wait_for_turn(&self) -> BoxFuture<'static, Result<RunPlace>> {
        let (queue, claimant) = (
            self.statement_queue().clone(),
            self.opened.session.claimant(),
        );
        async move { queue.wait_for_turn(&claimant).await }.boxed()
    }

    /// Returns whether other statements wait for the place that the stream has.
    pub(crate) fn must_give_way(&self) -> bool {
        self.statement_queue().is_full()
    }

    /// Notes since when the oldest running lookup runs, or that none runs.
    pub(crate) fn note_running(&self, since: Option<Instant>) {
        // A stream with one snapshot reads what was committed when it was opened.
        if self.one_snapshot.is_none() {
            self.opened.progress.set_reads_since(since);
        }
    }

    /// Begins to look up keys, with the rights and the snapshot of this moment.
    ///
    /// # Errors
    /// The errors that end the stream: `NOT_FOUND` if the table was dropped or has other columns,
    /// or was replaced after the snapshot of the stream, `PERMISSION_DENIED` or `UNAUTHENTICATED`
    /// if the user may no longer read it.
    pub(crate) fn begin(
        &mut self,
        keys: Keys,
    ) -> Result<impl Future<Output = Result<LookedUp>> + Send + use<>> {
        let opened = Arc::clone(&self.opened);
        let now = Instant::now();
        let is_used = self.one_snapshot.as_ref().is_some_and(|one| one.is_used);
        let (state, planned) = opened.find_now(&self.planned, !is_used)?;
        if let Some(one) = &mut self.one_snapshot {
            if planned.table.id() != self.planned.table.id() {
                one.snapshot = state.snapshot();
                one.as_of_us = Utc::now().timestamp_micros();
                opened.progress.set_reads_since(Some(now));
            }
            one.is_used |= keys.count() > 0;
        }
        self.planned = planned.clone();
        let one_snapshot = self.one_snapshot.clone();
        let query = query_of(&planned, &state, one_snapshot.as_ref());
        Ok(async move {
            let found = planned.look_up(&keys, &query, &opened.progress).await;
            match found {
                // The table was replaced since the lookup began, and a worker has dropped its rows.
                Err(error) if opened.is_gone(&planned.table, &error) => {
                    let (state, planned) = opened.find_now(&planned, one_snapshot.is_none())?;
                    let query = query_of(&planned, &state, one_snapshot.as_ref());
                    planned.look_up(&keys, &query, &opened.progress).await
                }
                found => found,
            }
        })
    }
}

impl OpenedLookups {
    /// Returns the catalog's state of this moment, and the table as it is then. `known` is the
    /// table as it was before. `may_be_replaced` says whether a table that has replaced it is found
    /// by its name, as a query would find it.
    ///
    /// # Errors
    /// The errors of [`LookupStream::begin`].
    fn find_now(
        &self,
        known: &PlannedTable,
        may_be_replaced: bool,
    ) -> Result<(Arc<CatalogState>, PlannedTable)> {
        self.engine.cluster.refuse_conflicts()?;
        let state = self.engine.catalog.state();
        let rights = state.access().current_rights(self.session.rights())?;
        let table = find_again(&state, &known.table, may_be_replaced)?;
        state.check_privilege(Privilege::Select, table.name(), &rights)?;
        let planned = known.follow(&self.context, &self.projection, table)?;
        Ok((state, planned))
    }

    /// Returns whether a lookup has failed because its table does not exist any more.
    fn is_gone(&self, table: &Table, error: &Error) -> bool {
        let exists = || {
            let state = self.engine.catalog.state();
            state.table_by_id(table.id()).is_some()
        };
        error.code() == ErrorCode::NotFound && !exists()
    }
}

/// Returns the table `known` as it is now: see [`OpenedLookups::find_now`].
///
/// # Errors
/// `NOT_FOUND` if there is no such table any more.
fn find_again<'s>(
    state: &'s CatalogState,
    known: &Table,
    may_be_replaced: bool,
) -> Result<&'s Arc<Table>> {
    if let Some(table) = state.table_by_id(known.id()) {
        return Ok(table);
    }
    let name = known.name();
    let what = match state.table(name) {
        Some(table) if may_be_replaced => return Ok(table),
        // The rows of another table are not in the snapshot.
        Some(_) => {
            "was replaced or emptied since the stream of lookups took its snapshot; look the keys up again, in another stream"
        }
        None => {
            "was dropped while keys were looked up in it; create the table again, and open another stream"
        }
    };
    let error = Error::not_found(format!("table \"{name}\" {what}"));
    Err(error.with_sqlstate(SqlState::UndefinedTable))
}

/// Returns the query of a lookup in this state of the catalog, or in the one snapshot of its
/// stream.
fn query_of(
    planned: &PlannedTable,
    state: &CatalogState,
    one_snapshot: Option<&OneSnapshot>,
) -> QueryContext {
    let current = state.snapshot();
    let (snapshot, counted_writes, as_of_us) = match one_snapshot {
        None => (current, None, Utc::now().timestamp_micros()),
        Some(one) => {
            let counted = (one.snapshot != current).then_some(current);
            (one.snapshot.clone(), counted, one.as_of_us)
        }
    };
    QueryContext {
        snapshot,
        counted_writes,
        as_of_us,
        lineage: state.lineage(),
        tables: vec![Arc::clone(&planned.table)],
        span: RunSpan::current(),
        ..QueryContext::clone(planned.query())
    }
}
