use std::sync::Arc;

use futures::stream::{SelectAll, StreamExt};
use volary_catalog::{
    BatchContent, DecidedBatch, ProducerBatches, ProducerName, ProducerRecord, Table,
};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::content::SharedHasher;
use super::group::LeasedBatches;
use super::leases::{Claim, ProducerLease};
use super::parts::GatewayParts;
use super::source::RowSource;

/// The number of the only batch of a statement.
const ONLY_BATCH: u64 = 1;

/// The id that a client has given to a statement, so that it may send the statement again.
#[derive(Debug, Clone)]
pub(crate) struct StatementBatch {
    /// The id.
    pub(crate) id: ProducerName,
    /// What the client has sent.
    pub(crate) content: StatementContent,
}

/// What a client has sent with a statement.
#[derive(Debug, Clone)]
pub(crate) enum StatementContent {
    /// All of it has arrived.
    Known(BatchContent),
    /// The rows arrive while they are written. The hasher is complete when all were read.
    Arriving(SharedHasher),
}

impl StatementContent {
    fn content(&self) -> BatchContent {
        match self {
            Self::Known(content) => *content,
            Self::Arriving(hasher) => hasher.lock().content(),
        }
    }
}

/// What is known of a statement with an id before it writes.
pub(super) enum ClaimedStatement {
    /// The statement was committed before, with this number of rows.
    Applied(u64),
    /// The statement is to be run, with these rows.
    New(ClaimedBatch, RowSource),
}

/// The right to commit a statement with an id.
pub(super) struct ClaimedBatch {
    batch: StatementBatch,
    lease: Arc<ProducerLease>,
}

impl StatementBatch {
    /// Finds out whether the statement was committed before. Waits until nobody else runs it.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the id belongs to another statement, `RESOURCE_EXHAUSTED` if the table
    /// has too many producers, `UNAVAILABLE` if the statement is still being run elsewhere.
    pub(super) async fn claim(
        self,
        parts: &GatewayParts,
        table: &Table,
        source: RowSource,
    ) -> Result<ClaimedStatement> {
        let in_table = |error: Error| error.at(format!("table \"{}\"", table.name()));
        let timeout = parts.config.load.idle_timeout;
        let leasing = parts
            .leases
            .acquire(table.id(), &self.id, Claim::Wait, timeout);
        let lease = Arc::new(leasing.await.map_err(in_table)?);
        let state = parts.catalog.state();
        let Some(known) = state.producer(table.id(), &self.id) else {
            let most = parts.config.ingest.max_producers;
            check_room(state.count_producers(table.id()), most).map_err(in_table)?;
            let claimed = ClaimedBatch { batch: self, lease };
            return Ok(ClaimedStatement::New(claimed, source));
        };
        if let StatementContent::Arriving(_) = &self.content {
            drain(source).await?;
        }
        let applied = self.rows_applied(known).map_err(in_table)?;
        Ok(ClaimedStatement::Applied(applied))
    }

    /// Returns the number of rows of the earlier statement with this id.
    fn rows_applied(&self, known: &ProducerRecord) -> Result<u64> {
        match known.batch(ONLY_BATCH) {
            Some(batch) if batch.content == self.content.content() => Ok(batch.rows),
            _ => Err(Error::new(
                ErrorCode::AlreadyExists,
                format!(
                    "the batch id {} belongs to another statement or to other rows, which were committed before; nothing was written; give each statement an id of its own, such as a UUID",
                    self.id
                ),
            )),
        }
    }
}

impl ClaimedBatch {
    /// Returns the batch with its number of rows. All rows must have been read.
    pub(super) fn decided(&self, rows: u64) -> ProducerBatches {
        ProducerBatches {
            producer: self.batch.id.clone(),
            batches: vec![DecidedBatch {
                sequence: ONLY_BATCH,
                rows,
                content: self.batch.content.content(),
                is_refused: false,
            }],
            is_statement: true,
        }
    }

    /// Returns the batch with its number of rows, and the right to write it.
    pub(super) fn leased(self, rows: u64) -> LeasedBatches {
        LeasedBatches {
            batches: self.decided(rows),
            lease: self.lease,
        }
    }
}

/// Refuses a new producer if a table has `count` producers already.
///
/// The count is taken before the rows are written, because all members of a group would fail with
/// the producer that is too many. So producers that begin at the same moment may exceed the limit.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`.
pub(crate) fn check_room(count: usize, most: usize) -> Result<()> {
    if count < most {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ResourceExhausted,
        format!(
            "{count} producers have written to it, and no more are remembered; use one producer for many batches, wait until older ones are forgotten (gateway.ingest.producer_window, gateway.ingest.batch_id_window), or raise gateway.ingest.max_producers"
        ),
    ))
}

/// Reads all rows, so that their hash is complete.
async fn drain(source: RowSource) -> Result<()> {
    let (partitions, _plan_owner) = source.into_partitions();
    let mut rows: SelectAll<_> = partitions.into_iter().collect();
    while let Some(batch) = rows.next().await {
        batch?;
    }
    Ok(())
}
