use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use volary_flight_proto::{Error, ErrorCode, Result};

/// Places for the streams of one kind that clients keep open.
#[derive(Debug)]
pub(crate) struct StreamPlaces {
    places: Arc<Semaphore>,
    max_streams: usize,
    /// What is open and what to do about it, for the error that follows the number of streams.
    refusal: &'static str,
}

impl StreamPlaces {
    /// Creates places for at most `max_streams` streams. If all are taken, the error is
    /// `max_streams` followed by `refusal`.
    pub(crate) fn new(max_streams: usize, refusal: &'static str) -> Self {
        let max_streams = max_streams.min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(max_streams)),
            max_streams,
            refusal,
        }
    }

    /// Returns the number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.max_streams
            .saturating_sub(self.places.available_permits())
    }

    /// Returns a place for a stream.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many streams are open.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let Self {
                max_streams,
                refusal,
                ..
            } = self;
            Error::new(
                ErrorCode::ResourceExhausted,
                format!("{max_streams} {refusal}"),
            )
        })
    }
}
