//! The embedded metadata store: one file in the gateway's data directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::durable;

use super::store::{Change, CommitError, Entries, Entry, Expected, MetadataStore};

/// The file's name in the data directory.
const FILE: &str = "catalog.redb";
/// Of each key, its version and its value.
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// One row: how many commits there were.
const REVISION: TableDefinition<&str, u64> = TableDefinition::new("revision");
const REVISION_KEY: &str = "revision";
/// A catalog is read once, at the start: a cache helps writes only.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// A [`MetadataStore`] in one file.
#[derive(Debug)]
pub struct RedbStore {
    file: Arc<StoreFile>,
}

#[derive(Debug)]
struct StoreFile {
    path: PathBuf,
    // None after an error of the file system: redb wants the file to be opened again then, which also tells whether the
    // transaction that failed got through.
    database: Mutex<Option<Database>>,
}

impl RedbStore {
    /// Opens the file in `directory`, and makes it if there is none.
    ///
    /// # Errors
    /// `DATA_LOSS` if it is damaged, `INVALID_ARGUMENT` if its format is another release's, `ALREADY_EXISTS` if another
    /// process has it open, `RESOURCE_EXHAUSTED` if the disk is full.
    pub async fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let file = Arc::new(StoreFile {
            path,
            database: Mutex::new(None),
        });
        let store = Self { file };
        store
            .blocking(|file| {
                create_if_missing(&file.path).map_err(|error| file.error("create", error))?;
                file.with_database("open", |_| Ok(()))
            })
            .await?;
        Ok(store)
    }

    async fn blocking<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&StoreFile) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let file = Arc::clone(&self.file);
        let task = tokio::task::spawn_blocking(move || work(&file)).await;
        task.unwrap_or_else(|source| {
            // redb checks what it reads, but a page that is damaged in a way it does not expect makes it panic.
            Err(E::from(Error::with_source(
                ErrorCode::DataLoss,
                format!(
                    "{} cannot be used: it is damaged; {RESTORE}",
                    self.file.path.display()
                ),
                source,
            )))
        })
    }
}

#[async_trait]
impl MetadataStore for RedbStore {
    async fn load(&self) -> Result<Entries> {
        self.blocking(|file| file.with_database("read", load)).await
    }

    async fn commit(
        &self,
        expected: Vec<Expected>,
        changes: Vec<Change>,
    ) -> Result<u64, CommitError> {
        self.blocking(move |file| file.commit(&expected, &changes))
            .await
    }
}

const RESTORE: &str = "restore it from a backup";

/// A kill in the middle of making a file leaves one that redb refuses: it gets its name when it is whole.
fn create_if_missing(path: &Path) -> Result<(), redb::Error> {
    if path.exists() {
        return Ok(());
    }
    let unfinished = path.with_extension("unfinished");
    match fs::remove_file(&unfinished) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(source.into()),
        _ => {}
    }
    drop(Database::builder().create(&unfinished)?);
    fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(parent) => {
            durable::sync_directory(parent).map_err(|error| io::Error::other(error).into())
        }
        None => Ok(()),
    }
}

impl StoreFile {
    fn with_database<T>(
        &self,
        what: &str,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T> {
        let mut slot = self.database.lock();
        let result = self.opened(&mut slot).and_then(work);
        result.map_err(|error| {
            *slot = None;
            self.error(what, error)
        })
    }

    fn opened<'a>(&self, slot: &'a mut Option<Database>) -> Result<&'a Database, redb::Error> {
        Ok(match slot {
            Some(database) => database,
            None => {
                let database = Database::builder()
                    .set_cache_size(CACHE_BYTES)
                    .open(&self.path)?;
                slot.insert(database)
            }
        })
    }

    fn commit(&self, expected: &[Expected], changes: &[Change]) -> Result<u64, CommitError> {
        let mut slot = self.database.lock();
        let before = match self.opened(&mut slot).and_then(revision) {
            Ok(before) => before,
            Err(error) => {
                *slot = None;
                return Err(self.error("read", error).into());
            }
        };
        let result = self
            .opened(&mut slot)
            .and_then(|database| commit(database, before, expected, changes));
        match result {
            Ok(None) => Ok(before + 1),
            Ok(Some(key)) => Err(CommitError::Conflict { key }),
            Err(error) => {
                // Whether the transaction got through before the error, the file says when it is opened again.
                *slot = None;
                let after = self.opened(&mut slot).and_then(revision);
                if matches!(after, Ok(after) if after > before) {
                    return Ok(before + 1);
                }
                if after.is_err() {
                    *slot = None;
                }
                Err(self.error("write", error).into())
            }
        }
    }

    fn error(&self, what: &str, error: redb::Error) -> Error {
        let path = self.path.display();
        let (code, advice) = match error {
            redb::Error::Io(source) => {
                return Error::io(format!("cannot {what} the catalog {path}"), source);
            }
            redb::Error::Corrupted(_) => (ErrorCode::DataLoss, format!("it is damaged; {RESTORE}")),
            redb::Error::UpgradeRequired(_) => (
                ErrorCode::InvalidArgument,
                "its format is that of another release; start that one".to_owned(),
            ),
            redb::Error::DatabaseAlreadyOpen => (
                ErrorCode::AlreadyExists,
                "another process has it open; stop that one".to_owned(),
            ),
            redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. } => (
                ErrorCode::InvalidArgument,
                "it is not a catalog of this release; start the release that made it".to_owned(),
            ),
            redb::Error::PreviousIo => (
                ErrorCode::Unavailable,
                "its file system failed before; retry".to_owned(),
            ),
            _ => (ErrorCode::Internal, "the store refused".to_owned()),
        };
        Error::with_source(
            code,
            format!("cannot {what} the catalog {path}: {advice}"),
            error,
        )
    }
}

fn load(database: &Database) -> Result<Entries, redb::Error> {
    let revision = revision(database)?;
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(ENTRIES) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Entries::default()),
        table => table?,
    };
    let mut all = Entries {
        revision,
        ..Entries::default()
    };
    for row in table.iter()? {
        let (key, value) = row?;
        let (version, value) = value.value();
        let value = value.to_vec();
        all.entries
            .insert(key.value().to_owned(), Entry { version, value });
    }
    Ok(all)
}

fn revision(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_read()?;
    match transaction.open_table(REVISION) {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(0),
        table => Ok(table?
            .get(REVISION_KEY)?
            .map_or(0, |revision| revision.value())),
    }
}

/// Returns the key that is not as expected, if there is one. What is not committed is undone.
fn commit(
    database: &Database,
    before: u64,
    expected: &[Expected],
    changes: &[Change],
) -> Result<Option<String>, redb::Error> {
    // A transaction is durable (fsynced) when its commit returns, unless told otherwise.
    let transaction = database.begin_write()?;
    let after = before + 1;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for Expected { key, version } in expected {
            let found = entries.get(key.as_str())?.map(|entry| entry.value().0);
            if found != *version {
                return Ok(Some(key.clone()));
            }
        }
        for change in changes {
            match change {
                Change::Put { key, value } => {
                    entries.insert(key.as_str(), (after, value.as_slice()))?;
                }
                Change::Delete { key } => {
                    entries.remove(key.as_str())?;
                }
            }
        }
        transaction
            .open_table(REVISION)?
            .insert(REVISION_KEY, after)?;
    }
    transaction.commit()?;
    Ok(None)
}
