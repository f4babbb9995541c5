use anyhow::Result;
use arrow::array::RecordBatch;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::ReadOutcome;
use super::parts::{OpenRecorder, StubPart, read_in_parts};
use super::stubs::{Stub, StubCluster};
use super::worker::WorkerRows;

/// Number of batches of a worker that the channel holds. DataFusion's own streams that a task feeds
/// hold the same number.
const BATCHES_AHEAD: usize = 2;

/// Reads as [`super::read`] describes.
pub(super) async fn read(cluster: &StubCluster, partitions: usize) -> Result<ReadOutcome> {
    read_in_parts(cluster, partitions, read_part).await
}

async fn read_part(part: StubPart) -> Result<u64> {
    let mut senders = JoinSet::new();
    let mut receivers = Vec::with_capacity(part.stubs.len());
    for stub in part.stubs {
        let (sender, mut receiver) = mpsc::channel(BATCHES_AHEAD);
        senders.spawn(send(
            part.cluster.clone(),
            stub,
            part.opened.clone(),
            sender,
        ));
        receivers.push(stream::poll_fn(move |cx| receiver.poll_recv(cx)));
    }
    let mut batches = stream::select_all(receivers);
    let mut rows = 0;
    while let Some(batch) = batches.next().await {
        rows += batch.num_rows() as u64;
    }
    // A sender that fails closes its channel, so its error is read here.
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    Ok(rows)
}

async fn send(
    cluster: StubCluster,
    stub: Stub,
    opened: OpenRecorder,
    sender: mpsc::Sender<RecordBatch>,
) -> Result<()> {
    let mut worker = WorkerRows::open(&cluster, &stub).await?;
    opened.record();
    while let Some(batch) = worker.next().await? {
        if sender.send(batch).await.is_err() {
            break; // nobody reads any more
        }
    }
    Ok(())
}
