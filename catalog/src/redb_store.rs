use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk::SharedDisk;
use volary_node::kill_point;
use volary_node::store_file::{CommitFailure, StoreFile, StoreKind, revision};

use super::store::{
    CommitError, EntryChange, ExpectedVersion, MetadataStore, StoreContent, StoreEntry,
};

/// Name of the file in the data directory.
const FILE_NAME: &str = "catalog.redb";
/// The table that maps each key to its version and its value.
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");

const KIND: StoreKind = StoreKind {
    name: "the catalog",
    repair: "restore the newest backup of it (docs/repair.md)",
    copy: copy_entries,
};

/// A [`MetadataStore`] that keeps everything in one file.
#[derive(Debug)]
pub struct RedbStore {
    file: Arc<StoreFile>,
}

impl RedbStore {
    /// Opens the file in `directory` on this disk, and creates it if it does not exist.
    ///
    /// # Errors
    /// `DATA_LOSS` if the file is damaged, `INVALID_ARGUMENT` if it has the format of another
    /// release, `ALREADY_EXISTS` if another process has it open, `RESOURCE_EXHAUSTED` if the disk
    /// is full.
    pub async fn open(directory: &Path, disk: SharedDisk) -> Result<Self> {
        let path = Self::path_in(directory);
        let open = move || {
            StoreFile::open(path, disk, KIND, |transaction| {
                transaction.open_table(ENTRIES)?;
                Ok(())
            })
        };
        let file = run_blocking(open).await?;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Gives up the last commit of the file in `directory` if damage has undone it, so that the
    /// file can be opened. No gateway may run on the directory.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn accept_lost_commits(directory: &Path) -> Result<()> {
        StoreFile::accept_lost_commits(&Self::path_in(directory))
    }

    /// Returns the path of the file in the gateway's data directory.
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join(FILE_NAME)
    }
}

#[async_trait]
impl MetadataStore for RedbStore {
    async fn load(&self) -> Result<StoreContent> {
        let file = Arc::clone(&self.file);
        run_blocking(move || file.read(load)).await
    }

    async fn commit(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        run_commit(&expected, &changes, |work| self.file.commit(work))
    }

    async fn commit_with_ballast(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        run_commit(&expected, &changes, |work| {
            self.file.commit_with_ballast(work)
        })
    }
}

/// What became of a transaction: the new version, or the first key whose version does not match.
type Committed = ControlFlow<String, u64>;

/// The work of a transaction.
type Work<'a> = &'a dyn Fn(&WriteTransaction, u64) -> Result<Committed, redb::Error>;

fn run_commit(
    expected: &[ExpectedVersion],
    changes: &[EntryChange],
    run: impl FnOnce(Work<'_>) -> Result<Committed, CommitFailure>,
) -> Result<u64, CommitError> {
    kill_point("catalog.before_commit");
    let committed = run(&|transaction, version| commit(transaction, version, expected, changes));
    let committed = committed.map_err(Error::from)?;
    kill_point("catalog.after_commit");
    match committed {
        ControlFlow::Continue(version) => Ok(version),
        ControlFlow::Break(key) => Err(CommitError::Conflict { key }),
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| {
        Error::with_source(
            ErrorCode::Internal,
            "a task that uses the catalog panicked",
            source,
        )
    })?
}

fn load(transaction: &ReadTransaction) -> Result<StoreContent, redb::Error> {
    let mut all = StoreContent {
        revision: revision(transaction)?,
        ..StoreContent::default()
    };
    let table = match transaction.open_table(ENTRIES) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(all),
        table => table?,
    };
    for row in table.iter()? {
        let (key, value) = row?;
        let (version, value) = value.value();
        let value = value.to_vec();
        all.entries
            .insert(key.value().to_owned(), StoreEntry { version, value });
    }
    Ok(all)
}

fn copy_entries(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), redb::Error> {
    let content = load(from)?;
    let mut entries = to.open_table(ENTRIES)?;
    for (key, StoreEntry { version, value }) in &content.entries {
        entries.insert(key.as_str(), (*version, value.as_slice()))?;
    }
    Ok(())
}

/// Makes the changes if all expected versions match. Otherwise changes nothing, and returns the
/// first key whose version does not match.
fn commit(
    transaction: &WriteTransaction,
    version: u64,
    expected: &[ExpectedVersion],
    changes: &[EntryChange],
) -> Result<Committed, redb::Error> {
    let mut entries = transaction.open_table(ENTRIES)?;
    for ExpectedVersion { key, version } in expected {
        let found = entries.get(key.as_str())?.map(|entry| entry.value().0);
        if found != *version {
            return Ok(ControlFlow::Break(key.clone()));
        }
    }
    for change in changes {
        match change {
            EntryChange::Put { key, value } => {
                entries.insert(key.as_str(), (version, value.as_slice()))?;
            }
            EntryChange::Delete { key } => {
                entries.remove(key.as_str())?;
            }
        }
    }
    Ok(ControlFlow::Continue(version))
}
