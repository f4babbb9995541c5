use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use volary_flight_proto::{Error, ErrorCode, Result};

/// Time that a thread waits for work before it ends. A thread that is started anew may use another
/// arena of the allocator, so the threads stay.
const KEEP_ALIVE: Duration = Duration::from_secs(24 * 3600);

/// A few threads that do nothing but hash passwords.
///
/// A hash takes 19 MiB. The allocator keeps what a thread has freed for this thread and those that
/// share its arena. So on threads that take turns, the memory of many hashes would be kept.
#[derive(Debug)]
pub(super) struct HashThreads {
    handle: Handle,
    // This is an `Option` only because a runtime is shut down by value. Of the runtime, only the
    // threads for blocking work are used.
    runtime: Option<Runtime>,
}

impl HashThreads {
    /// Starts no threads yet. There will be at most `threads`.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the system refuses what a runtime needs.
    pub(super) fn new(threads: usize) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .thread_name("volary-hash")
            .max_blocking_threads(threads)
            .thread_keep_alive(KEEP_ALIVE)
            .build()
            .map_err(|source| {
                Error::with_source(
                    ErrorCode::ResourceExhausted,
                    "cannot prepare the threads that hash passwords",
                    source,
                )
            })?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Does `work` on one of the threads.
    ///
    /// # Errors
    /// `INTERNAL` if the work panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.handle.spawn_blocking(work).await.map_err(|source| {
            Error::with_source(
                ErrorCode::Internal,
                "a password could not be checked",
                source,
            )
        })
    }
}

impl Drop for HashThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn work_stays_on_the_same_few_threads() {
        let threads = HashThreads::new(2).unwrap();
        let mut used = HashSet::new();
        for _ in 0..8 {
            for id in join_all((0..8).map(|_| threads.run(|| thread::current().id()))).await {
                used.insert(id.unwrap());
            }
        }
        assert!(used.len() <= 2, "{used:?}");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_ends_nothing() {
        let threads = HashThreads::new(1).unwrap();
        let error = threads.run(|| panic!("a test")).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal);
        assert_eq!(threads.run(|| 7).await.unwrap(), 7);
    }
}
