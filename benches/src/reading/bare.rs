//! Measures only the transport: opens all streams at once, and polls each stream in its partition.
//! What the gather needs beyond this is the gather's own cost.

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Outcome;
use super::parts::{Opened, Part, in_parts};
use super::stubs::{Stub, StubCluster};
use super::worker::{end_of, rows_of};

/// What is done with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The rows are not decoded.
    Skipped,
    /// The rows are decoded.
    Decoded,
}

/// Reads as [`super::read`] describes.
pub(super) async fn read(cluster: &StubCluster, partitions: usize, rows: Rows) -> Result<Outcome> {
    in_parts(cluster, partitions, move |part| read_part(part, rows)).await
}

async fn read_part(part: Part, rows: Rows) -> Result<u64> {
    let Part {
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
    opened: Opened,
    rows: Rows,
) -> Result<u64> {
    let response = stub.client.do_get(cluster.bare_ticket()).await?;
    opened.note();
    let mut messages = response.into_inner();
    let schema = cluster.schema();
    let mut end = None;
    while let Some(message) = messages.message().await? {
        if rows == Rows::Decoded {
            rows_of(&message, &schema)?;
        }
        end = end_of(&message)?;
    }
    Ok(end.context("a stream without an end")?.rows)
}
