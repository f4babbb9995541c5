//! How much runs at the same time, and how much waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use volary_flight_proto::{Error, ErrorCode, Result};

/// Lets so many run, so many more wait in the order of their arrival, and refuses the others.
#[derive(Debug)]
pub struct Admission {
    what: &'static str,
    places: Arc<Semaphore>,
    max_running: usize,
    max_waiting: usize,
    waiting: AtomicUsize,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub struct Place(#[allow(dead_code)] OwnedSemaphorePermit); // held, never read

impl Admission {
    /// `what` is what waits, in the plural, for errors: "statements".
    pub fn new(what: &'static str, max_running: usize, max_waiting: usize) -> Self {
        let max_running = max_running.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            what,
            places: Arc::new(Semaphore::new(max_running)),
            max_running,
            max_waiting,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a place. Dropping the future gives up waiting.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait already.
    pub async fn enter(&self) -> Result<Place> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(Place(place));
        }
        let _waiting = Waiting::new(self)?;
        Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map(Place)
            .map_err(|_| Error::new(ErrorCode::Cancelled, "the node is shutting down"))
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.max_running - self.places.available_permits()
    }
}

/// Counts one that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(admission: &'a Admission) -> Result<Self> {
        let before = admission.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Self(&admission.waiting);
        if before >= admission.max_waiting {
            return Err(Error::new(
                ErrorCode::ResourceExhausted,
                format!(
                    "{} {what} run and {} wait: no more are taken; retry later",
                    admission.max_running,
                    admission.max_waiting,
                    what = admission.what,
                ),
            ));
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn some_run_some_wait_and_the_others_are_refused() {
        let admission = Admission::new("queries", 1, 1);
        let first = admission.enter().await.unwrap();
        let mut second = Box::pin(admission.enter());
        assert!(second.as_mut().now_or_never().is_none());
        let refused = admission.enter().await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
        assert!(refused.message().contains("retry"), "{refused}");
        drop(first);
        second.await.unwrap();
        assert_eq!(admission.running(), 0);
    }
}
