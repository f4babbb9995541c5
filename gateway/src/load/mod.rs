//! Rows on their way to the shards: COPY, INSERT, CREATE TABLE AS.
//!
//! The rows of a [`source`] are fitted to the table ([`fit`]), split by shard ([`route`]) and streamed to the workers, one
//! DoPut each ([`put`]). They are durable there and unseen until the catalog commits the write: all of them at once, or never.

/// Errors of a file's rows, as the owner of the file reads them.
mod file_errors;
/// COPY: which files, in which format.
pub mod files;
/// Rows as the table's columns want them.
pub mod fit;
/// Which line of a text file an error is about.
mod lines;
/// Loads that run, for system.loads.
pub mod progress;
/// The stream of rows to one worker.
pub mod put;
/// Where COPY may read.
mod roots;
/// Which row goes to which worker.
pub mod route;
/// Where rows come from.
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

pub use progress::Loads;
pub use source::Source;
use volary_catalog::{Catalog, OpenWrite, Table, WriteSummary};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::sql::copy::CopyFrom;
use crate::statements::Statements;

/// What a load needs of the gateway.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Opens and commits the write.
    pub catalog: Catalog,
    /// Reaches the workers.
    pub cluster: Arc<Cluster>,
    /// Where rows are split.
    pub runtimes: Runtimes,
    /// Loads that run.
    pub loads: Loads,
    /// The statements that they belong to.
    pub statements: Arc<Statements>,
    /// Deadlines, allowed roots.
    pub config: Arc<Config>,
}

/// COPY table FROM location: the number of rows. `table` is the one that `copy` names.
///
/// # Errors
/// Those of the location and its files, which they name, and those of [`run`].
pub async fn copy_from(
    parts: Parts,
    state: &SessionState,
    task: Arc<TaskContext>,
    query_id: QueryId,
    table: &Arc<Table>,
    copy: &CopyFrom,
) -> Result<u64> {
    let source = files::open(&parts.config.load, state, task, table, copy).await?;
    append(parts, query_id, table, source).await
}

/// Adds the rows of `source` to a table: the number of rows.
///
/// # Errors
/// `UNAVAILABLE`, before anything is written, if one of the table's workers is lost; those of [`run`].
pub async fn append(
    parts: Parts,
    query_id: QueryId,
    table: &Arc<Table>,
    source: Source,
) -> Result<u64> {
    // A write that cannot succeed would stay in the catalog until that worker is back, and clients try again and again.
    parts.cluster.refuse_lost(table.workers())?;
    let write = parts.catalog.begin_write(table).await?;
    run(parts, query_id, table, write, source).await
}

/// Writes the rows of `source` to the table's workers and commits: the number of rows. Whatever goes wrong, and also when the
/// future is dropped, the write is aborted and no row of it is ever seen.
///
/// # Errors
/// Those of the rows and of the workers, which they name.
pub async fn run(
    parts: Parts,
    query_id: QueryId,
    table: &Arc<Table>,
    write: OpenWrite,
    source: Source,
) -> Result<u64> {
    let write = write.take_over();
    let mut abort = AbortOnDrop {
        parts: Some(parts.clone()),
        table: Arc::clone(table),
        write,
    };
    let progress = parts.loads.start(query_id, table.name());
    let idle = parts.config.load.idle_timeout;
    let workers = put::open(&parts.cluster, idle, query_id, table, write);
    let (senders, puts): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
    let mut routing = JoinSet::new();
    // Held here, outside of the tasks that read.
    let (partitions, _stops) = source.into_partitions();
    // Small writes, and partitions, begin at different shards.
    for (rows, partition) in partitions.into_iter().zip(write.0..) {
        let first_shard = u32::try_from(partition % u64::from(table.shards())).unwrap_or(0);
        let router = route::Router::new(Arc::clone(table), senders.clone(), first_shard);
        let task = route::route(router, rows, Arc::clone(table), progress.clone());
        routing.spawn_on(task, parts.runtimes.cpu());
    }
    // The workers' streams end when the last sender is gone.
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
    // What fails first ends the other: rows for a worker that takes none would wait for ever.
    let results = match select(pin!(routed), pin!(written)).await {
        Either::Right((results, routed)) => {
            let results = results?;
            routed.await?;
            results
        }
        Either::Left((Ok(()), written)) => written.await?,
        // A worker that fails makes the senders fail too; the worker's own error says why.
        Either::Left((Err(error), written)) if error.code() == ErrorCode::Cancelled => {
            written.await?;
            return Err(error);
        }
        Either::Left((Err(error), _)) => return Err(error),
    };
    let summary = WriteSummary::new(table, &results)?;
    let rows = summary.rows();
    parts.statements.commits(query_id)?;
    parts.catalog.commit_write(write, summary).await?;
    abort.parts = None;
    Ok(rows)
}

/// Aborts the write unless it was committed.
struct AbortOnDrop {
    parts: Option<Parts>,
    table: Arc<Table>,
    write: WriteId,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            let io = parts.runtimes.io().clone();
            io.spawn(abort(parts, Arc::clone(&self.table), self.write));
        }
    }
}

/// Aborts the write in the catalog, which is what makes it void, and tells the workers to delete its rows. A worker that is not
/// reached learns of it with its next report.
async fn abort(parts: Parts, table: Arc<Table>, write: WriteId) {
    if !parts.catalog.abort_write_at_last(write).await {
        // The statement was cancelled while it committed, and the commit was first: the rows are there to stay.
        return;
    }
    let telling = table.workers().iter().map(|worker| {
        let command = AbortWrite { write_id: write.0 };
        let command = control::Command::AbortWrite(command);
        parts.cluster.control(*worker, command)
    });
    for told in futures::future::join_all(telling).await {
        if let Err(error) = told {
            tracing::debug!(%write, %error, "a worker deletes the rows of a failed write later");
        }
    }
}
