use std::pin::pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream;
use tokio::task::JoinSet;
use tracing::Span;
use volary_catalog::{OpenWrite, ProducerBatches, Table, WriteSummary};
use volary_flight_proto::control::{AbortWrite, control};
use volary_flight_proto::ids::{QueryId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::kill_point;

use super::parts::GatewayParts;
use super::put::{self, PutContext};
use super::route::{self, RowRouter};
use super::source::RowStream;

/// Rows that are to be written.
pub(super) enum SourceRows {
    /// Rows that are at hand.
    Few(Vec<RecordBatch>),
    /// Partitions of rows, which may have to be computed.
    Partitions(Vec<RowStream>),
}

/// Sends rows to the table's workers, commits the write, and returns the number of rows. The rows
/// must have passed [`route::fit_and_check`]. When all rows are durable,
/// `may_commit` is called with their number. The write is committed, with the batches that
/// `may_commit` returns, when that completes. If anything fails, or if the future is dropped before
/// the commit, the write is aborted, and no query ever sees a row of it.
///
/// # Errors
/// The errors of the rows and of `may_commit`, and those of the workers, which name the worker.
pub(super) async fn write_fitted<F>(
    parts: &GatewayParts,
    query_id: QueryId,
    table: &Arc<Table>,
    write: OpenWrite,
    rows: SourceRows,
    may_commit: impl FnOnce(u64) -> F,
) -> Result<u64>
where
    F: Future<Output = Result<Vec<ProducerBatches>>>,
{
    let write = write.take_over();
    let mut uncommitted = UncommittedWrite {
        parts: Some(parts.clone()),
        table: Arc::clone(table),
        write,
    };
    let (puts, opened) = put::open(PutContext {
        cluster: Arc::clone(&parts.cluster),
        idle: parts.config.load.idle_timeout,
        owner: parts.owner,
        query_id,
        table: Arc::clone(table),
        write,
        span: Span::current(),
    });
    let mut routing = JoinSet::new();
    // The partitions of a write begin at different shards, and so do consecutive writes. Otherwise
    // all small writes would go to the same shard.
    let new_router = |partition: u64| {
        let first_shard = u32::try_from(partition % u64::from(table.shards())).unwrap_or(0);
        RowRouter::new(Arc::clone(table), puts.clone(), first_shard)
    };
    let mut few = None;
    match rows {
        // A task of its own would take longer than routing these rows.
        SourceRows::Few(rows) => {
            let rows = stream::iter(rows.into_iter().map(Ok)).boxed();
            few = Some(route::route_rows(new_router(write.0), rows));
        }
        SourceRows::Partitions(partitions) => {
            for (rows, partition) in partitions.into_iter().zip(write.0..) {
                let routed = route::route_rows(new_router(partition), rows);
                routing.spawn_on(routed, parts.runtimes.cpu());
            }
        }
    }
    // The streams to the workers end when the last clone is dropped.
    drop(puts);
    let routed = async {
        if let Some(few) = few {
            few.await?;
        }
        while let Some(ended) = routing.join_next().await {
            ended.map_err(|source| {
                Error::with_source(ErrorCode::Internal, "splitting rows panicked", source)
            })??;
        }
        Ok::<_, Error>(())
    };
    // A failure of either future ends the other one. Otherwise the rows for a worker that takes
    // none would wait forever.
    let results = match select(pin!(routed), pin!(opened.finish())).await {
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
    let batches = may_commit(rows).await?;
    kill_point("load.before_commit");
    let committing = parts.catalog.commit_batches(write, table, summary, batches);
    committing.await?;
    kill_point("load.after_commit");
    uncommitted.parts = None;
    parts.loads.note_commit(rows);
    Ok(rows)
}

/// A write that is aborted when this is dropped, unless it was committed.
struct UncommittedWrite {
    parts: Option<GatewayParts>,
    table: Arc<Table>,
    write: WriteId,
}

impl Drop for UncommittedWrite {
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
    kill_point("abort.before_catalog");
    let aborting = parts
        .catalog
        .abort_write_with_retries(write, Some(table.id()));
    if !aborting.await {
        // The statement was cancelled while it committed, and the commit came first. So the rows
        // stay.
        return;
    }
    kill_point("abort.after_catalog");
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
