//! A stream of batches into one table is a statement that goes on until its client ends it. Each of
//! its batches is a write of its own.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use volary_catalog::access::Privilege;
use volary_catalog::{
    BatchContent, DecidedBatch, Declarations, ProducerBatches, ProducerName, RelationName, Table,
    sequence_gap,
};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::Runtimes;

use super::context::StatementContext;
use super::{Engine, Session, batch_id};
use crate::load::budget::BudgetShare;
use crate::load::checks::Checks;
use crate::load::content::ContentHasher;
use crate::load::defaults::Defaults;
use crate::load::fit::ColumnMapping;
use crate::load::group::{FittedRows, FittedWrite, LeasedBatches, Origin, SubmittedWrite};
use crate::load::ingest_streams::IngestStreams;
use crate::load::leases::{Claim, ProducerLease};
use crate::load::progress::LoadProgress;
use crate::load::small::MAX_SMALL_BYTES;
use crate::load::statement_batch::check_room;
use crate::load::stream_order::StreamOrder;
use crate::sql::names::WrittenName;

/// An open stream of batches into a table.
pub(crate) struct IngestStream {
    engine: Arc<Engine>,
    session: Session,
    context: StatementContext,
    name: RelationName,
    table: Arc<Table>,
    /// The columns of the client's batches.
    schema: SchemaRef,
    fitting: Fitting,
    producer: Option<StreamProducer>,
    large_places: Arc<Semaphore>,
    order: Arc<StreamOrder>,
    /// Number of batches that were handed over to be committed.
    submitted: u64,
    progress: LoadProgress,
    _place: OwnedSemaphorePermit,
}

struct StreamProducer {
    name: ProducerName,
    lease: Arc<ProducerLease>,
}

/// What a batch is fitted and checked with, and the declarations that it was planned from.
struct Fitting {
    mapping: ColumnMapping,
    checks: Checks,
    declarations: Declarations,
}

/// The right to write a batch that is too large to be committed together with others.
pub(crate) struct LargePlace(
    #[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit,
);

/// The outcome of an earlier batch with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EarlierBatch {
    /// The batch was committed with this number of rows. The number is not known of a batch that
    /// was sent long ago.
    Committed(Option<u64>),
    /// The rows of the batch were refused.
    Refused,
}

impl Engine {
    /// Returns what all streams share.
    pub(crate) fn streams(&self) -> &IngestStreams {
        &self.streams
    }

    /// Opens a stream of batches with the columns of `schema` into a table. Another stream of the
    /// same producer ends. `query_id`: see [`Self::execute`].
    ///
    /// # Errors
    /// `NOT_FOUND` if the table does not exist, `PERMISSION_DENIED` without the right to insert,
    /// `INVALID_ARGUMENT` for columns that the table does not have, `RESOURCE_EXHAUSTED` if too
    /// many streams are open or the table has too many producers.
    pub(crate) async fn open_ingest_stream(
        self: &Arc<Self>,
        session: &Session,
        table: &WrittenName,
        schema: SchemaRef,
        producer: Option<ProducerName>,
        query_id: QueryId,
    ) -> Result<IngestStream> {
        let (engine, own, table) = (Arc::clone(self), session.clone(), table.clone());
        let opening = async move {
            engine
                .open_stream(own, &table, schema, producer, query_id)
                .await
        };
        self.on_cpu(session, opening).await
    }

    async fn open_stream(
        self: &Arc<Self>,
        session: Session,
        table: &WrittenName,
        schema: SchemaRef,
        producer: Option<ProducerName>,
        query_id: QueryId,
    ) -> Result<IngestStream> {
        batch_id::refuse(&session)?;
        let place = self.streams.enter()?;
        let context = StatementContext::new(self, &session, query_id, None, false)?;
        context.check_may_write()?;
        let name = context.user_relation(table)?;
        let known = context.catalog.table(&name).cloned();
        let table = known.ok_or_else(|| context.catalog.no_such_table(&name, &context.rights))?;
        context.check_may_insert(&table)?;
        let fitting = Fitting::new(self, &context, &table, &schema)?;
        let producer = match producer {
            None => None,
            Some(producer) => Some(self.claim_producer(&table, producer).await?),
        };
        self.statements
            .progress(query_id)
            .set_running(&context.task().runtime_env());
        Ok(IngestStream {
            engine: Arc::clone(self),
            session,
            progress: self.loads.start(query_id, table.name()),
            large_places: self.streams.large_places(table.id()),
            order: Arc::new(StreamOrder::new()),
            submitted: 0,
            context,
            name,
            table,
            schema,
            fitting,
            producer,
            _place: place,
        })
    }

    async fn claim_producer(&self, table: &Table, name: ProducerName) -> Result<StreamProducer> {
        let in_table = |error: Error| error.at(format!("table \"{}\"", table.name()));
        let timeout = self.config.load.idle_timeout;
        let leasing = self
            .leases
            .acquire(table.id(), &name, Claim::TakeOver, timeout);
        let lease = Arc::new(leasing.await.map_err(in_table)?);
        let state = self.catalog.state();
        if state.producer(table.id(), &name).is_none() {
            let count = state.count_producers(table.id());
            check_room(count, self.config.ingest.max_producers).map_err(in_table)?;
        }
        Ok(StreamProducer { name, lease })
    }
}

impl Fitting {
    fn new(
        engine: &Engine,
        context: &StatementContext,
        table: &Arc<Table>,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let fields = schema.fields().iter();
        let names: Vec<_> = fields.map(|field| field.name().clone()).collect();
        let mut state = context.state.clone();
        // Each batch is a write of its own, at a time of its own.
        state.mark_start_execution();
        let mapping = ColumnMapping::from_names(
            &table.name().to_string(),
            table.schema(),
            &names,
            &[],
            context.time_zone(),
            Defaults::new(&state, table)?,
        )?;
        Ok(Self {
            mapping,
            checks: Checks::new(&engine.base_state, table)?,
            declarations: table.declarations().clone(),
        })
    }

    /// Returns whether the next batch may have other defaults or checks.
    fn is_outdated(&self, table: &Table) -> bool {
        let declarations = table.declarations();
        let computes = !declarations.defaults.is_empty() || !declarations.constraints.is_empty();
        computes || *declarations != self.declarations
    }
}

impl IngestStream {
    /// Returns the runtimes on which the stream's batches are fitted.
    pub(crate) fn runtimes(&self) -> &Runtimes {
        &self.engine.runtimes
    }

    /// Returns the last batch of the producer that was decided, or 0 if there is none.
    pub(crate) fn last_sequence(&self) -> u64 {
        let state = self.engine.catalog.state();
        let producer = self.producer.as_ref();
        let known = producer.and_then(|producer| state.producer(self.table.id(), &producer.name));
        known.map_or(0, |known| known.last_sequence())
    }

    /// Returns the name of the producer.
    pub(crate) fn producer(&self) -> Option<&ProducerName> {
        self.producer.as_ref().map(|producer| &producer.name)
    }

    /// Completes when another stream of the producer is opened, with the error for the client.
    pub(crate) fn wait_for_takeover(&self) -> impl Future<Output = Error> + Send + use<> {
        let producer = self.producer.as_ref();
        let producer = producer.map(|producer| {
            let taken_over = producer.lease.taken_over().clone();
            (producer.name.clone(), taken_over)
        });
        async move {
            let Some((name, taken_over)) = producer else {
                return std::future::pending().await;
            };
            taken_over.cancelled().await;
            Error::new(
                ErrorCode::AlreadyExists,
                format!(
                    "another stream of producer {name} was opened; a producer has one stream at a time; give each client a producer of its own"
                ),
            )
        }
    }

    /// Refuses a batch if the table is gone, or if the user may no longer write to it.
    ///
    /// # Errors
    /// `NOT_FOUND`, `PERMISSION_DENIED` or `UNAUTHENTICATED`.
    pub(crate) fn check(&mut self) -> Result<()> {
        let state = self.engine.catalog.state();
        let rights = state.access().current_rights(self.session.rights())?;
        let Some(table) = state.table_by_id(self.table.id()) else {
            return Err(Error::not_found(format!(
                "table \"{}\" was dropped while a stream wrote to it; nothing of this batch and of later ones was written; create the table again, and open another stream",
                self.name
            )));
        };
        state.check_privilege(Privilege::Insert, &self.name, &rights)?;
        self.table = Arc::clone(table);
        Ok(())
    }

    /// Fits the rows of a batch to the table, and checks them.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(crate) fn fit(&mut self, rows: &[RecordBatch]) -> Result<FittedRows> {
        let table = &self.table;
        if self.fitting.is_outdated(table) {
            self.fitting = Fitting::new(&self.engine, &self.context, table, &self.schema)?;
        }
        let name = table.name().to_string();
        let fitted = rows.iter().map(|rows| {
            let fitted = self.fitting.mapping.fit(table.schema(), rows);
            fitted.map_err(|misfit| misfit.in_table(&name))
        });
        FittedRows::fit(&self.fitting.checks, &fitted.collect::<Result<Vec<_>>>()?)
    }

    /// Returns a hash of the rows, by which the batch is recognised if it is sent again. Returns
    /// `None` if the stream has no producer, whose batches are not recognised.
    ///
    /// # Errors
    /// The errors of hashing.
    pub(crate) fn content(&self, rows: &[RecordBatch]) -> Result<Option<BatchContent>> {
        if self.producer.is_none() {
            return Ok(None);
        }
        let mut hasher = ContentHasher::new();
        hasher.add_columns(&self.schema)?;
        for rows in rows {
            hasher.add_rows(rows)?;
        }
        Ok(Some(hasher.content()))
    }

    /// Returns the outcome of an earlier batch with this number. All batches that were handed over
    /// must be decided.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the earlier batch had other rows. `INVALID_ARGUMENT` if the stream has
    /// no producer, so that its batches are not remembered.
    pub(crate) fn earlier(
        &self,
        sequence: u64,
        content: Option<BatchContent>,
    ) -> Result<EarlierBatch> {
        let (Some(producer), Some(content)) = (&self.producer, content) else {
            return Err(Error::invalid(format!(
                "batch {sequence} was sent already; count the batches of a stream upwards from 1"
            )));
        };
        let state = self.engine.catalog.state();
        let known = state.producer(self.table.id(), &producer.name);
        let batch = known.and_then(|known| known.batch(sequence));
        match batch {
            Some(batch) if batch.content != content => Err(Error::new(
                ErrorCode::AlreadyExists,
                format!(
                    "batch {sequence} of producer {} of table \"{}\" was sent before with other rows; nothing was written; give new rows the next number, and other clients another producer",
                    producer.name, self.name
                ),
            )),
            Some(batch) if batch.is_refused => Ok(EarlierBatch::Refused),
            Some(batch) => {
                self.engine.streams.note_duplicate();
                Ok(EarlierBatch::Committed(Some(batch.rows)))
            }
            None => {
                self.engine.streams.note_duplicate();
                Ok(EarlierBatch::Committed(None))
            }
        }
    }

    /// Returns the error for a batch before which another one is missing.
    pub(crate) fn gap(&self, found: u64, expected: u64) -> Error {
        match &self.producer {
            Some(producer) => sequence_gap(&producer.name, &self.table, found, expected),
            None => Error::invalid(format!(
                "the stream into table \"{}\" sent batch {found}, but batch {expected} must come next; nothing of batch {found} was written; send batch {expected} first",
                self.name
            )),
        }
    }

    /// Returns whether rows are too many to be committed together with those of others.
    pub(crate) fn is_large(rows: &FittedRows) -> bool {
        rows.bytes() > MAX_SMALL_BYTES
    }

    /// Waits until a large batch may be written.
    pub(crate) fn large_place(&self) -> BoxFuture<'static, Option<LargePlace>> {
        let place = Arc::clone(&self.large_places).acquire_owned();
        place.map(|place| place.ok().map(LargePlace)).boxed()
    }

    /// Takes memory for rows that were read.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the gateway stops.
    pub(crate) fn memory(&self, bytes: usize) -> BoxFuture<'static, Result<BudgetShare>> {
        let engine = Arc::clone(&self.engine);
        async move { engine.streams.memory().take(bytes).await }.boxed()
    }

    /// Hands a batch over to be committed. `decided` are the batch, and refused ones before it that
    /// were not noted yet. All batches before it must have been handed over. A small batch must not
    /// be handed over before the large ones before it have committed.
    pub(crate) fn submit(
        &mut self,
        rows: FittedRows,
        decided: Vec<DecidedBatch>,
        memory: Vec<BudgetShare>,
    ) -> SubmittedWrite {
        let is_large = Self::is_large(&rows);
        self.progress
            .add(usize::try_from(rows.rows()).unwrap_or(usize::MAX));
        let batches = self.producer.as_ref().map(|producer| LeasedBatches {
            batches: ProducerBatches {
                producer: producer.name.clone(),
                batches: decided,
                is_statement: false,
            },
            lease: Arc::clone(&producer.lease),
        });
        let parts = self.engine.gateway_parts(self.context.owner());
        let write = FittedWrite {
            query_id: self.context.query_id,
            owner: parts.owner,
            table: Arc::clone(&self.table),
            rows,
            batches,
            origin: Origin::Stream(Arc::clone(&self.order)),
            memory,
        };
        let earlier = self.submitted;
        self.submitted += 1;
        if is_large {
            self.engine.groups.submit_alone(&parts, write, earlier)
        } else {
            self.engine.groups.submit(&parts, write)
        }
    }

    /// Lets no batch commit that has not begun to.
    pub(crate) fn cancel(&self) {
        self.order.fail();
    }

    /// Notes that a batch was committed, which ROLLBACK cannot undo.
    pub(crate) fn note_commit(&self) {
        self.session.transaction.note_write();
    }

    /// Notes that the stream has ended by itself, and how many rows it has written.
    pub(crate) fn set_done(&self, rows: u64) {
        let statements = &self.engine.statements;
        statements.set_done(self.context.query_id, rows);
    }
}

impl Drop for IngestStream {
    fn drop(&mut self) {
        self.order.fail();
    }
}
