//! What a metadata store must do for the catalog: keep keys with values, and change several of them at once or not at all.

use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use volary_flight_proto::{Error, Result};

/// Keys with values, changed in optimistic transactions. The embedded store is one file; a store that several gateways
/// share (etcd) has the same shape.
#[async_trait]
pub trait MetadataStore: Debug + Send + Sync {
    /// All that is stored, as of one moment.
    ///
    /// # Errors
    /// `DATA_LOSS` if it is damaged, `INVALID_ARGUMENT` if a newer release wrote it, `UNAVAILABLE` if it cannot be reached.
    async fn load(&self) -> Result<Entries>;

    /// Makes all `changes`, durably, if every one of the `expected` keys still has its version. Returns the new revision,
    /// which is the version of all keys that were put.
    ///
    /// # Errors
    /// [`CommitError`]; in either case nothing was changed, as far as can be known.
    async fn commit(
        &self,
        expected: Vec<Expected>,
        changes: Vec<Change>,
    ) -> Result<u64, CommitError>;
}

/// All that a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Grows with every commit; 0 for a store that was never written.
    pub revision: u64,
    /// By key.
    pub entries: BTreeMap<String, Entry>,
}

/// The value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The revision that put it.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// What a transaction has read, and relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The key.
    pub key: String,
    /// Its version; none if the key must not exist.
    pub version: Option<u64>,
}

/// What a transaction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets a key's value.
    Put {
        /// The key.
        key: String,
        /// Its value from now on.
        value: Vec<u8>,
    },
    /// Removes a key; one that does not exist is no error.
    Delete {
        /// The key.
        key: String,
    },
}

/// Why a transaction did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Somebody else changed a key in the meantime: load and decide again.
    #[error("{key} was changed by somebody else")]
    Conflict {
        /// The key.
        key: String,
    },
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] Error),
}
