use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::budget::ByteBudget;
use crate::config;

/// Maximum number of batches of a table that are written at the same time and are too large to be
/// committed together with others.
pub(crate) const MAX_LARGE_IN_FLIGHT: usize = 4;

/// What all streams of a gateway share.
#[derive(Debug)]
pub(crate) struct IngestStreams {
    places: Arc<Semaphore>,
    max_streams: usize,
    /// The memory of rows that are not committed yet.
    memory: ByteBudget,
    large_places: Mutex<HashMap<TableId, Arc<Semaphore>>>,
    duplicates: AtomicU64,
    stopping: CancellationToken,
}

impl IngestStreams {
    pub(crate) fn new(config: &config::Ingest) -> Self {
        let max_streams = config.max_streams.min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(max_streams)),
            max_streams,
            memory: ByteBudget::new(
                config.stream_memory.bytes(),
                "the rows of streams that are not committed yet",
                "gateway.ingest.stream_memory",
            ),
            large_places: Mutex::default(),
            duplicates: AtomicU64::new(0),
            stopping: CancellationToken::new(),
        }
    }

    /// Returns the memory of rows that are not committed yet.
    pub(crate) fn memory(&self) -> &ByteBudget {
        &self.memory
    }

    /// Returns the number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.max_streams
            .saturating_sub(self.places.available_permits())
    }

    /// Returns the number of batches that were not applied because they had been applied before.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// Counts a batch that was not applied again.
    pub(crate) fn note_duplicate(&self) {
        self.duplicates.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a token that is cancelled when the gateway stops. Streams end then.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Returns a place for a stream.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many streams are open.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            Error::new(
                ErrorCode::ResourceExhausted,
                format!(
                    "{} streams are open, and no more are taken; close streams that are not used, send the batches of several through one, or raise gateway.ingest.max_streams",
                    self.max_streams
                ),
            )
        })
    }

    /// Returns the places for large batches of a table.
    pub(crate) fn large_places(&self, table: TableId) -> Arc<Semaphore> {
        let mut places = self.large_places.lock();
        places.retain(|_, places| Arc::strong_count(places) > 1);
        let of_table = places
            .entry(table)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_LARGE_IN_FLIGHT)));
        Arc::clone(of_table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_beyond_the_limit_are_refused_and_large_batches_of_a_table_share_places() {
        let config = config::Ingest {
            max_streams: 2,
            ..config::Ingest::default()
        };
        let streams = IngestStreams::new(&config);
        let places = [streams.enter().unwrap(), streams.enter().unwrap()];
        assert_eq!(streams.open(), 2);
        let error = streams.enter().unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(
            error.message().contains("gateway.ingest.max_streams"),
            "{error}"
        );
        drop(places);
        assert_eq!(streams.open(), 0);

        let (first, second) = (
            streams.large_places(TableId(1)),
            streams.large_places(TableId(1)),
        );
        let _taken = first.try_acquire_many(4).unwrap();
        assert!(second.try_acquire().is_err());
        assert!(streams.large_places(TableId(2)).try_acquire().is_ok());
    }
}
