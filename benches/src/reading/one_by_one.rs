use anyhow::Result;

use super::ReadOutcome;
use super::parts::{StubPart, read_in_parts};
use super::stubs::StubCluster;
use super::worker::WorkerRows;

/// Reads as [`super::read`] describes.
pub(super) async fn read(cluster: &StubCluster) -> Result<ReadOutcome> {
    read_in_parts(cluster, 1, read_part).await
}

async fn read_part(part: StubPart) -> Result<u64> {
    let mut rows = 0;
    for stub in &part.stubs {
        let mut worker = WorkerRows::open(&part.cluster, stub).await?;
        part.opened.record();
        while let Some(batch) = worker.next().await? {
            rows += batch.num_rows() as u64;
        }
    }
    Ok(rows)
}
