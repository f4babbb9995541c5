//! Only the transport: all at once, each stream polled by its partition. What the gather needs more than this is its own.

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Outcome;
use super::parts::{Opened, Part, in_parts};
use super::stubs::{Stub, StubCluster};
use super::worker::{end_of, rows_of};

/// What becomes of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// They are not looked at.
    Skipped,
    /// They are decoded.
    Decoded,
}

/// See [`super::read`].
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

/// How many rows there were, as the stub says.
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
