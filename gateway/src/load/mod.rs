//! The rows of a [`source`] are fitted to the table ([`fit`]), split by shard (`route`) and
//! streamed to the workers, with one DoPut for each worker ([`put`]). On the workers the rows are
//! durable, but no query sees them until the catalog commits the write. Then either all rows become
//! visible at once, or none ever does.

/// Merges writes to the same table that wait at the same time.
mod batcher;
/// Limits the memory of rows that wait.
pub(crate) mod budget;
/// Refuses rows that violate the checks of a table.
pub(crate) mod checks;
/// Hashes what clients send, to recognise batches that are sent again.
pub(crate) mod content;
/// Computes the values of columns that rows leave out.
pub(crate) mod defaults;
/// Plans the SQL expressions that tables declare.
pub(crate) mod expressions;
/// Converts the errors of file readers into errors that say what is wrong with the file.
mod file_errors;
/// Opens the files of a COPY, and finds out their formats.
pub mod files;
/// Fits rows to the columns of a table.
pub mod fit;
/// Commits small writes to the same table together.
pub(crate) mod group;
/// Limits the streams of batches.
pub(crate) mod ingest_streams;
/// Lets each producer write through one stream or statement at a time.
pub(crate) mod leases;
/// Finds the line of a text file that an error is about.
mod lines;
/// Recognises loops of symbolic links.
mod links;
/// Defines the columns of the rows that are sent to workers.
mod message;
/// Holds the parts of the gateway that a load needs.
mod parts;
/// Lists the running loads, for system.loads.
pub mod progress;
/// Streams rows to workers.
pub(crate) mod put;
/// Checks where COPY may read: `gateway.load.allowed_roots`.
mod roots;
/// Decides which row goes to which worker.
mod route;
/// Reads the first rows of a write, to find out whether it is small.
pub(crate) mod small;
/// Provides the rows that are loaded.
pub mod source;
/// Applies a statement to which the client has given an id once, however often it is sent.
pub(crate) mod statement_batch;
/// Lets the batches of a stream commit in their order.
pub(crate) mod stream_order;
/// Writes fitted rows, and commits or aborts the write.
mod write;

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use futures::StreamExt;
use volary_catalog::{OpenWrite, Table};
use volary_exec::batches::used_bytes;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};

pub(crate) use parts::GatewayParts;
pub(crate) use progress::LoadRegistry;
pub use source::RowSource;

use crate::sql::copy::CopyFrom;
use checks::Checks;
use group::{FittedRows, FittedWrite, Groups, Origin};
use progress::LoadProgress;
use route::fit_and_check;
use small::ReadRows;
use source::RowStream;
use statement_batch::{ClaimedBatch, ClaimedStatement, StatementBatch};
use write::SourceRows;

/// A statement that adds rows to a table.
pub(crate) struct Append {
    /// The parts of the gateway that the write needs.
    pub(crate) parts: GatewayParts,
    /// The small writes of all statements.
    pub(crate) groups: Arc<Groups>,
    /// The id of the statement.
    pub(crate) query_id: QueryId,
    /// The table.
    pub(crate) table: Arc<Table>,
    /// The id that the client has given to the statement. If a statement with this id was committed
    /// before, nothing is written.
    pub(crate) batch: Option<StatementBatch>,
}

impl Append {
    /// Runs COPY table FROM location, and returns the number of rows.
    ///
    /// # Errors
    /// The errors of the location and its files, which name the location or the file. Also the
    /// errors of [`Self::run`].
    pub(crate) async fn copy_from(
        self,
        state: &SessionState,
        task: Arc<TaskContext>,
        copy: &CopyFrom,
    ) -> Result<u64> {
        let config = &self.parts.config.load;
        let source = files::open(config, state, task, &self.table, copy).await?;
        self.run(source).await
    }

    /// Adds the rows of `source` to the table, and returns the number of rows. Few rows are
    /// committed together with those of other statements.
    ///
    /// # Errors
    /// `UNAVAILABLE` if one of the table's workers is lost; then nothing is written.
    /// `RESOURCE_EXHAUSTED` if too many small writes wait. Also the errors of the rows, and those
    /// of the workers, which name the worker.
    pub(crate) async fn run(mut self, source: RowSource) -> Result<u64> {
        let (claimed, source) = match self.batch.take() {
            None => (None, source),
            Some(batch) => match batch.claim(&self.parts, &self.table, source).await? {
                ClaimedStatement::Applied(rows) => return Ok(rows),
                ClaimedStatement::New(claimed, source) => (Some(claimed), source),
            },
        };
        let Self {
            parts,
            groups,
            query_id,
            table,
            ..
        } = self;
        // A write that cannot succeed is refused before it begins. Otherwise each retry of a client
        // would leave an aborted write in the catalog until the lost worker is back.
        parts.cluster.refuse_lost(table.workers())?;
        let checks = Arc::new(Checks::new(&parts.base_state, &table)?);
        let progress = parts.loads.start(query_id, table.name());
        let source = match small::read_first(source, parts.runtimes.cpu()).await? {
            ReadRows::Many(source) => source,
            ReadRows::Few(rows) => {
                if rows.iter().map(used_bytes).sum::<usize>() > SHORT_WORK_BYTES {
                    continue_on_cpu().await;
                }
                let rows = FittedRows::fit(&checks, &rows)?;
                let count = rows.rows();
                if count == 0 && claimed.is_none() {
                    parts.statements.begin_commit(query_id)?;
                    return Ok(0);
                }
                progress.add(usize::try_from(count).unwrap_or(usize::MAX));
                let write = FittedWrite {
                    query_id,
                    owner: parts.owner,
                    memory: vec![groups.queue().try_take(rows.bytes())?],
                    rows,
                    table,
                    batches: claimed.map(|claimed| claimed.leased(count)),
                    origin: Origin::Statement,
                };
                groups.commit_statement(&parts, write).await?;
                return Ok(count);
            }
        };
        continue_on_cpu().await;
        let write = parts.catalog.begin_write(&table).await?;
        let large = LargeWrite {
            query_id,
            table: &table,
            checks,
            claimed,
            progress,
        };
        large.run(&parts, write, source).await
    }
}

/// Writes the rows of `source` to the table's workers, commits the write, and returns the number of
/// rows. If anything fails, or if the future is dropped before the commit, the write is aborted,
/// and no query ever sees a row of it.
///
/// # Errors
/// The errors of the rows, and those of the workers, which name the worker.
pub(crate) async fn write_rows(
    parts: GatewayParts,
    query_id: QueryId,
    table: &Arc<Table>,
    write: OpenWrite,
    source: RowSource,
) -> Result<u64> {
    let large = LargeWrite {
        query_id,
        table,
        checks: Arc::new(Checks::new(&parts.base_state, table)?),
        claimed: None,
        progress: parts.loads.start(query_id, table.name()),
    };
    large.run(&parts, write, source).await
}

/// A write of any number of rows, which has a commit of its own.
struct LargeWrite<'a> {
    query_id: QueryId,
    table: &'a Arc<Table>,
    checks: Arc<Checks>,
    claimed: Option<ClaimedBatch>,
    progress: LoadProgress,
}

impl LargeWrite<'_> {
    async fn run(self, parts: &GatewayParts, write: OpenWrite, source: RowSource) -> Result<u64> {
        let Self {
            query_id,
            table,
            checks,
            claimed,
            progress,
        } = self;
        // Dropping `_plan_owner` stops the joins of the source's plan. It is held here, and not in
        // the tasks that read the partitions.
        let (partitions, _plan_owner) = source.into_partitions();
        let partitions = partitions.into_iter().map(|rows| -> RowStream {
            let (checks, progress) = (Arc::clone(&checks), progress.clone());
            rows.map(move |batch| {
                let batch = fit_and_check(&checks, &batch?)?;
                progress.add(batch.num_rows());
                Ok(batch)
            })
            .boxed()
        });
        let may_commit = |rows| {
            let begun = parts.statements.begin_commit(query_id);
            let batches = claimed.iter().map(|claimed| claimed.decided(rows));
            std::future::ready(begun.map(|()| batches.collect()))
        };
        let rows = SourceRows::Partitions(partitions.collect());
        write::write_fitted(parts, query_id, table, write, rows, may_commit).await
    }
}
