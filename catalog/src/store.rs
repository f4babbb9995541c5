use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use volary_flight_proto::{Error, Result};

/// A store of keys and values that are changed in optimistic transactions. The embedded store is
/// one file. A store that several gateways share (etcd) would have the same interface.
#[async_trait]
pub trait MetadataStore: Debug + Send + Sync {
    /// Returns everything that is stored, as of one moment.
    ///
    /// # Errors
    /// `DATA_LOSS` if the content is damaged, `INVALID_ARGUMENT` if a newer release wrote it,
    /// `UNAVAILABLE` if the store cannot be reached.
    async fn load(&self) -> Result<StoreContent>;

    /// Makes all `changes` durably, if each of the `expected` keys still has its version. Returns
    /// the new revision, which becomes the version of all keys that were put. May block.
    ///
    /// # Errors
    /// [`CommitError`]. Nothing was changed, unless the message of [`CommitError::Failed`] says
    /// that this is unknown.
    async fn commit(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError>;

    /// Makes `changes` like [`Self::commit`]. If the disk is full, the store uses space that it
    /// keeps for that, if it keeps any.
    ///
    /// # Errors
    /// The errors of [`Self::commit`].
    async fn commit_with_ballast(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        self.commit(expected, changes).await
    }
}

/// Everything that a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreContent {
    /// A number that grows with every commit. It is 0 for a store that was never written.
    pub revision: u64,
    /// The entries by key.
    pub entries: BTreeMap<String, StoreEntry>,
}

/// The value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEntry {
    /// The revision that put the value.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// A key that a transaction has read, and whose version it relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedVersion {
    /// The key.
    pub key: String,
    /// The version that the key must have. `None` if the key must not exist.
    pub version: Option<u64>,
}

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryChange {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: String,
        /// The new value.
        value: Vec<u8>,
    },
    /// Removes a key. It is not an error if the key does not exist.
    Delete {
        /// The key.
        key: String,
    },
}

/// The reason why a transaction was not made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Somebody else changed a key in the meantime. Load the content and decide again.
    #[error("{key} was changed by somebody else")]
    Conflict {
        /// The key.
        key: String,
    },
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] Error),
}
