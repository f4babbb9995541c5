//! The cost of a gather minus the cost measured here is the gather's own cost.

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::ReadOutcome;
use super::parts::{OpenRecorder, StubPart, read_in_parts};
use super::stubs::{Stub, StubCluster};
use super::worker::{decode_rows, end_frame};

/// What is done with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowHandling {
    /// The rows are not decoded.
    Skipped,
    /// The rows are decoded.
    Decoded,
}

/// Reads as [`super::read`] describes.
pub(super) async fn read(
    cluster: &StubCluster,
    partitions: usize,
    rows: RowHandling,
) -> Result<ReadOutcome> {
    read_in_parts(cluster, partitions, move |part| read_part(part, rows)).await
}

async fn read_part(part: StubPart, rows: RowHandling) -> Result<u64> {
    let StubPart {
        cluster,
        stubs,
        opened,
    } = part;
    let mut workers: FuturesUnordered<_> = stubs
        .into_iter()
        .map(|stub| read_stub(cluster.clone(), stub, opened.clone(), rows))
        .collect();
    let mut all = 0;
    while let Some(rows) = workers.next().await {
        all += rows?;
    }
    Ok(all)
}

/// Reads one stub. Returns the number of rows that the stub reports at the end.
async fn read_stub(
    cluster: StubCluster,
    mut stub: Stub,
    opened: OpenRecorder,
    rows: RowHandling,
) -> Result<u64> {
    let response = stub.client.do_get(cluster.bare_ticket()).await?;
    opened.record();
    let mut messages = response.into_inner();
    let schema = cluster.schema();
    let mut end = None;
    while let Some(message) = messages.message().await? {
        if rows == RowHandling::Decoded {
            decode_rows(&message, &schema)?;
        }
        end = end_frame(&message)?;
    }
    Ok(end.context("a stream without an end")?.rows)
}
