use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use volary_flight_proto::Result;
use volary_flight_proto::ids::TableId;

use super::budget::ByteBudget;
use crate::config;
use crate::stream_places::StreamPlaces;

/// Maximum number of batches of a table that are written at the same time and are too large to be
/// committed together with others.
pub(crate) const MAX_LARGE_IN_FLIGHT: usize = 4;

/// What all streams of a gateway share.
#[derive(Debug)]
pub(crate) struct IngestStreams {
    places: StreamPlaces,
    /// The memory of rows that are not committed yet.
    memory: ByteBudget,
    large_places: Mutex<HashMap<TableId, Arc<Semaphore>>>,
    duplicates: AtomicU64,
    stopping: CancellationToken,
}

impl IngestStreams {
    pub(crate) fn new(config: &config::Ingest) -> Self {
        Self {
            places: StreamPlaces::new(
                config.max_streams,
                "streams are open, and no more are taken; close streams that are not used, send the batches of several through one, or raise gateway.ingest.max_streams",
            ),
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
        self.places.open()
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
        self.places.enter()
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
    use volary_flight_proto::ErrorCode;

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
