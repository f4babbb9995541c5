use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;

/// A store that counts commits, lets its caller decide when they are made, and fails them on
/// demand.
#[derive(Debug)]
pub(super) struct ControlledStore {
    store: RedbStore,
    permits: Semaphore,
    begun: AtomicUsize,
    /// Number of the next commits that fail, and their error.
    failures: Mutex<(usize, fn() -> Error)>,
    has_ballast: AtomicBool,
}

impl ControlledStore {
    /// Opens a store that makes all commits.
    pub(super) async fn open(directory: &Directory) -> Arc<Self> {
        let store = RedbStore::open(&directory.0, Arc::new(LocalDisk));
        Arc::new(Self {
            store: store.await.unwrap(),
            permits: Semaphore::new(Semaphore::MAX_PERMITS),
            begun: AtomicUsize::new(0),
            failures: Mutex::new((0, full_disk)),
            has_ballast: AtomicBool::new(false),
        })
    }

    /// Returns the number of commits that were begun, without those that used ballast.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of the next commits that fail.
    pub(super) fn failures_left(&self) -> usize {
        self.failures.lock().0
    }

    /// Holds all commits until they are allowed.
    pub(super) fn hold(&self) {
        self.permits.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Allows the next commits.
    pub(super) fn allow(&self, commits: usize) {
        self.permits.add_permits(commits);
    }

    /// Fails the next commits with this error.
    pub(super) fn fail_next(&self, commits: usize, error: fn() -> Error) {
        *self.failures.lock() = (commits, error);
    }

    /// From now on, commits that may use ballast are made at once, and do not fail.
    pub(super) fn use_ballast(&self) {
        self.has_ballast.store(true, Ordering::Relaxed);
    }
}

/// Returns the error of a store whose disk is full.
pub(super) fn full_disk() -> Error {
    Error::new(ErrorCode::ResourceExhausted, "the disk is full")
}

/// Returns the error of a store that cannot be reached.
pub(super) fn store_is_away() -> Error {
    let cause = std::io::Error::other("a fault of the test");
    Error::io("the store is away", cause)
}

/// Polls until the condition holds.
pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl MetadataStore for ControlledStore {
    async fn load(&self) -> Result<StoreContent> {
        self.store.load().await
    }

    async fn commit(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.permits.acquire().await.unwrap().forget();
        let failure = {
            let (left, error) = &mut *self.failures.lock();
            left.checked_sub(1).map(|fewer| {
                *left = fewer;
                error()
            })
        };
        if let Some(error) = failure {
            return Err(error.into());
        }
        self.store.commit(expected, changes).await
    }

    async fn commit_with_ballast(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        if self.has_ballast.load(Ordering::Relaxed) {
            return self.store.commit_with_ballast(expected, changes).await;
        }
        self.commit(expected, changes).await
    }
}
