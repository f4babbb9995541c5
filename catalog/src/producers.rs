//! A client that sends a batch again, because it does not know whether the batch was committed,
//! names the batch by its producer and its sequence. The record of a producer changes in the
//! transaction that makes the rows visible. So a batch is applied once, whatever is lost: the
//! client, the gateway or the answer.

use std::sync::Arc;
use std::time::Duration;

use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, Result};

use super::draft::Draft;
use super::producer_record::{DecidedBatch, ProducerName, ProducerRecord, TableProducers};
use super::state::CatalogState;
use super::table::Table;
use super::{Catalog, now_ms};

/// Number of batches of which a producer's record keeps the content.
const REMEMBERED: usize = 16;
/// Maximum number of producers that one change forgets, so that other changes do not wait long.
const MAX_FORGOTTEN_AT_ONCE: usize = 1_000;

/// Batches of a producer that a write commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerBatches {
    /// The name of the producer.
    pub producer: ProducerName,
    /// The batches, whose numbers follow on from each other.
    pub batches: Vec<DecidedBatch>,
    /// Says whether the producer is the id of a single statement.
    pub is_statement: bool,
}

/// How long producers are remembered after their last commit.
#[derive(Debug, Clone, Copy)]
pub struct ProducerWindows {
    /// The time for producers of streams.
    pub streams: Duration,
    /// The time for ids of single statements.
    pub statements: Duration,
}

impl ProducerWindows {
    fn has_expired(&self, producer: &ProducerRecord, now_ms: i64) -> bool {
        let window = match producer.is_statement {
            true => self.statements,
            false => self.streams,
        };
        let window_ms = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        now_ms.saturating_sub(producer.at_ms) > window_ms
    }
}

impl CatalogState {
    /// Returns what a producer has written to a table, if that is remembered.
    pub fn producer(&self, table: TableId, name: &ProducerName) -> Option<&Arc<ProducerRecord>> {
        self.producers.get(&table)?.get(name)
    }

    /// Returns the producers of a table, ordered by name.
    pub fn producers_of(&self, table: TableId) -> impl Iterator<Item = &Arc<ProducerRecord>> {
        let producers = self.producers.get(&table);
        producers.into_iter().flat_map(TableProducers::values)
    }

    /// Returns the number of a table's producers.
    pub fn count_producers(&self, table: TableId) -> usize {
        self.producers.get(&table).map_or(0, TableProducers::size)
    }
}

impl Catalog {
    /// Forgets some of the producers whose window has passed, and returns their number. Call it
    /// again until it returns 0.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn forget_producers(&self, windows: ProducerWindows) -> Result<usize> {
        let now_ms = now_ms();
        let state = self.state();
        let all = state.producers.values().flat_map(TableProducers::values);
        let expired = all.filter(|producer| windows.has_expired(producer, now_ms));
        let expired: Vec<_> = expired.take(MAX_FORGOTTEN_AT_ONCE).cloned().collect();
        if expired.is_empty() {
            return Ok(0);
        }
        self.change_with_ballast(move |draft| {
            let mut forgotten = 0;
            for producer in &expired {
                // It may have committed in the meantime, or its table may be gone.
                let current = draft.state().producer(producer.table, &producer.producer);
                if current.is_some_and(|current| windows.has_expired(current, now_ms)) {
                    draft.remove_producer(producer.table, &producer.producer);
                    forgotten += 1;
                }
            }
            Ok(forgotten)
        })
        .await
    }
}

/// Notes that a write commits these batches.
///
/// # Errors
/// `INVALID_ARGUMENT` if an earlier batch of the producer is missing, `UNAVAILABLE` if one of the
/// batches was decided before. In both cases nothing may be committed.
pub(super) fn put_batches(
    draft: &mut Draft,
    table: &Table,
    write: WriteId,
    added: &ProducerBatches,
) -> Result<()> {
    let ProducerBatches {
        producer, batches, ..
    } = added;
    let known = draft.state().producer(table.id(), producer).cloned();
    let mut last_sequence = known.as_ref().map_or(0, |known| known.last_sequence);
    for batch in batches {
        let expected = last_sequence.saturating_add(1);
        if batch.sequence < expected {
            return Err(Error::unavailable(format!(
                "producer {producer} of table \"{}\" has written batch {} already, from another connection; nothing was written; connect again, and go on after batch {last_sequence}",
                table.name(),
                batch.sequence
            )));
        }
        if batch.sequence > expected {
            return Err(sequence_gap(producer, table, batch.sequence, expected));
        }
        last_sequence = batch.sequence;
    }
    let mut recent = known
        .as_ref()
        .map_or_else(Vec::new, |known| known.recent.clone());
    recent.extend_from_slice(batches);
    let forgotten = recent.len().saturating_sub(REMEMBERED);
    recent.drain(..forgotten);
    draft.put_producer(ProducerRecord {
        table: table.id(),
        producer: producer.clone(),
        last_sequence,
        write,
        recent,
        at_ms: now_ms(),
        is_statement: added.is_statement && known.is_none_or(|known| known.is_statement),
    })
}

/// Returns the error for a batch before which another one is missing.
pub fn sequence_gap(producer: &ProducerName, table: &Table, found: u64, expected: u64) -> Error {
    Error::invalid(format!(
        "producer {producer} of table \"{}\" sent batch {found}, but batch {expected} must come next; nothing of batch {found} was written; send batch {expected} first",
        table.name()
    ))
}
