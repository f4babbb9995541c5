use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::OwnedSemaphorePermit;
use volary_flight_proto::Result;

use crate::config;
use crate::stream_places::StreamPlaces;

/// What all streams of lookups of a gateway share.
#[derive(Debug)]
pub(crate) struct LookupStreams {
    places: StreamPlaces,
    batches: AtomicU64,
    keys: AtomicU64,
}

impl LookupStreams {
    pub(crate) fn new(config: &config::Lookup) -> Self {
        Self {
            places: StreamPlaces::new(
                config.max_streams,
                "streams of lookups are open, and no more are taken; close those that are not used, let several threads share one, or raise gateway.lookup.max_streams",
            ),
            batches: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        }
    }

    /// Returns the number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.places.open()
    }

    /// Returns the number of batches that were looked up.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Returns the number of keys that were looked up.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Counts a batch of keys that was looked up.
    pub(crate) fn note_batch(&self, keys: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.keys.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Returns a place for a stream.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many streams are open.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit> {
        self.places.enter()
    }
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::ErrorCode;

    use super::*;

    #[test]
    fn streams_beyond_the_limit_are_refused_and_batches_are_counted() {
        let config = config::Lookup {
            max_streams: 1,
            ..config::Lookup::default()
        };
        let streams = LookupStreams::new(&config);
        let place = streams.enter().unwrap();
        assert_eq!(streams.open(), 1);
        let error = streams.enter().unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(
            error.message().contains("gateway.lookup.max_streams"),
            "{error}"
        );
        drop(place);
        assert_eq!(streams.open(), 0);
        streams.note_batch(3);
        streams.note_batch(4);
        assert_eq!((streams.batches(), streams.keys()), (2, 7));
    }
}
