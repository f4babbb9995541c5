use std::sync::Mutex;

use async_trait::async_trait;
use volary_catalog::{
    CommitError, EntryChange, ExpectedVersion, MetadataStore, StoreContent, StoreEntry,
};
use volary_flight_proto::{Error, Result};

/// A catalog store in memory. Once it is frozen, it refuses all changes, so that no input affects
/// another one.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: StoreContent,
    is_frozen: bool,
}

impl Store {
    pub(crate) fn freeze(&self) {
        self.0.lock().expect("nobody panics with it").is_frozen = true;
    }
}

#[async_trait]
impl MetadataStore for Store {
    async fn load(&self) -> Result<StoreContent> {
        Ok(self
            .0
            .lock()
            .expect("nobody panics with it")
            .entries
            .clone())
    }

    async fn commit(
        &self,
        _: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        let mut inner = self.0.lock().expect("nobody panics with it");
        if inner.is_frozen {
            return Err(Error::unavailable("the catalog is frozen").into());
        }
        let entries = &mut inner.entries;
        entries.revision += 1;
        let version = entries.revision;
        for change in changes {
            match change {
                EntryChange::Put { key, value } => {
                    _ = entries.entries.insert(key, StoreEntry { version, value });
                }
                EntryChange::Delete { key } => _ = entries.entries.remove(&key),
            }
        }
        Ok(version)
    }
}
