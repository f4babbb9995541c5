//! The rows of a [`source`] are fitted to the table ([`fit`]), split by shard (`route`) and
//! streamed to the workers, with one DoPut for each worker ([`put`]). On the workers the rows are
//! durable, but no query sees them until the catalog commits the write. Then either all rows become
//! visible at once, or none ever does.

/// Refuses rows that violate the checks of a table.
mod checks;
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
/// Finds the line of a text file that an error is about.
mod lines;
/// Recognises loops of symbolic links.
mod links;
/// Lists the running loads, for system.loads.
pub mod progress;
/// Streams rows to one worker.
pub mod put;
/// Checks where COPY may read: `gateway.load.allowed_roots`.
mod roots;
/// Decides which row goes to which worker.
mod route;
/// Provides the rows that are loaded.
pub mod source;

use std::pin::pin;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use tokio::task::JoinSet;
use volary_flight_proto::control::{AbortWrite, control};
use volary_flight_proto::ids::{QueryId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::Runtimes;

pub use progress::LoadRegistry;
pub use source::RowSource;
use volary_catalog::{Catalog, OpenWrite, Table, WriteSummary};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::sql::copy::CopyFrom;
use crate::statements::Statements;

/// The parts of the gateway that a load needs.
#[derive(Debug, Clone)]
pub struct GatewayParts {
    /// Number of the user who writes. Workers share their processors among users.
    pub owner: u32,
    /// Opens and commits the write.
    pub catalog: Catalog,
    /// Reaches the workers.
    pub cluster: Arc<Cluster>,
    /// The runtimes on which rows are split.
    pub runtimes: Runtimes,
    /// The list of running loads.
    pub loads: LoadRegistry,
    /// The statements that the loads belong to.
    pub statements: Arc<Statements>,
    /// The settings: deadlines and allowed roots.
    pub config: Arc<Config>,
    /// The session with the functions that the checks of tables call.
    pub base_state: Arc<SessionState>,
}

/// Runs COPY table FROM location, and returns the number of rows. `table` is the table that `copy`
/// names.
///
/// # Errors
/// The errors of the location and its files, which name the location or the file. Also the errors
/// of [`append`].
pub(crate) async fn copy_from(
    parts: GatewayParts,
    state: &SessionState,
    task: Arc<TaskContext>,
    query_id: QueryId,
    table: &Arc<Table>,
    copy: &CopyFrom,
) -> Result<u64> {
    let source = files::open(&parts.config.load, state, task, table, copy).await?;
    append(parts, query_id, table, source).await
}

/// Adds the rows of `source` to a table, and returns the number of rows.
///
/// # Errors
/// `UNAVAILABLE` if one of the table's workers is lost; then nothing is written. Also the errors of
/// [`write_rows`].
pub async fn append(
    parts: GatewayParts,
    query_id: QueryId,
    table: &Arc<Table>,
    source: RowSource,
) -> Result<u64> {
    // A write that cannot succeed is refused before it begins. Otherwise each retry of a client
    // would leave an aborted write in the catalog until the lost worker is back.
    parts.cluster.refuse_lost(table.workers())?;
    let write = parts.catalog.begin_write(table).await?;
    write_rows(parts, query_id, table, write, source).await
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
    let checks = Arc::new(checks::Checks::new(&parts.base_state, table)?);
    let write = write.take_over();
    let mut abort = AbortOnDrop {
        parts: Some(parts.clone()),
        table: Arc::clone(table),
        write,
    };
    let progress = parts.loads.start(query_id, table.name());
    let idle = parts.config.load.idle_timeout;
    let workers = put::open(&parts.cluster, idle, parts.owner, query_id, table, write);
    let (senders, puts): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
    let mut routing = JoinSet::new();
    // Dropping `_plan_owner` stops the joins of the source's plan. It is held here, and not in the
    // tasks that read the partitions.
    let (partitions, _plan_owner) = source.into_partitions();
    // The partitions of a write begin at different shards, and so do consecutive writes. Otherwise
    // all small writes would go to the same shard.
    for (rows, partition) in partitions.into_iter().zip(write.0..) {
        let first_shard = u32::try_from(partition % u64::from(table.shards())).unwrap_or(0);
        let router = route::RowRouter::new(Arc::clone(table), senders.clone(), first_shard);
        let task = route::route_rows(router, rows, Arc::clone(&checks), progress.clone());
        routing.spawn_on(task, parts.runtimes.cpu());
    }
    // The streams to the workers end when the last sender is dropped.
    drop(senders);
    let routed = async {
        while let Some(ended) = routing.join_next().await {
            ended.map_err(|source| {
                Error::with_source(ErrorCode::Internal, "splitting rows panicked", source)
            })??;
        }
        Ok::<_, Error>(())
    };
    let written = async {
        let mut puts: FuturesUnordered<_> = puts.into_iter().collect();
        let mut results = Vec::with_capacity(puts.len());
        while let Some(result) = puts.next().await {
            results.push(result?);
        }
        Ok::<_, Error>(results)
    };
    // A failure of either future ends the other one. Otherwise the rows for a worker that takes
    // none would wait forever.
    let results = match select(pin!(routed), pin!(written)).await {
        Either::Right((results, routed)) => {
            let results = results?;
            routed.await?;
            results
        }
        Either::Left((Ok(()), written)) => written.await?,
        // If a worker fails, its sender fails, too, but only the worker's own error has the cause.
        Either::Left((Err(error), written)) if error.code() == ErrorCode::Cancelled => {
            written.await?;
            return Err(error);
        }
        Either::Left((Err(error), _)) => return Err(error),
    };
    let summary = WriteSummary::new(table, &results)?;
    let rows = summary.rows();
    parts.statements.begin_commit(query_id)?;
    parts.catalog.commit_write(write, summary).await?;
    abort.parts = None;
    parts.loads.note_commit(rows);
    Ok(rows)
}

/// Aborts the write when it is dropped, unless the write was committed.
struct AbortOnDrop {
    parts: Option<GatewayParts>,
    table: Arc<Table>,
    write: WriteId,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            parts.loads.note_abort();
            let io = parts.runtimes.io().clone();
            io.spawn(abort(parts, Arc::clone(&self.table), self.write));
        }
    }
}

/// Aborts the write in the catalog, and tells the workers to delete its rows. A worker that cannot
/// be reached receives this command with the next question for its report.
async fn abort(parts: GatewayParts, table: Arc<Table>, write: WriteId) {
    if !parts.catalog.abort_write_with_retries(write).await {
        // The statement was cancelled while it committed, and the commit came first. So the rows
        // stay.
        return;
    }
    let commands = table.workers().iter().map(|worker| {
        let command = AbortWrite { write_id: write.0 };
        let command = control::Command::AbortWrite(command);
        parts.cluster.control(*worker, command)
    });
    for answer in futures::future::join_all(commands).await {
        if let Err(error) = answer {
            tracing::debug!(%write, %error, "a worker did not receive the command to delete the rows of an aborted write; it receives it with the next question for its report");
        }
    }
}
