use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    BackendError, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk::SharedDisk;
use volary_node::private_files;

use super::store::{
    CommitError, EntryChange, ExpectedVersion, MetadataStore, StoreContent, StoreEntry,
};

/// Name of the file in the data directory.
const FILE_NAME: &str = "catalog.redb";
/// The table that maps each key to its version and its value.
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// The table that counts commits, in one row.
const REVISION: TableDefinition<&str, u64> = TableDefinition::new("revision");
const REVISION_KEY: &str = "revision";
/// Size of redb's cache. The catalog is read only once, at the start, so the cache helps only
/// writes.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// A [`MetadataStore`] that keeps everything in one file.
#[derive(Debug)]
pub struct RedbStore {
    file: Arc<StoreFile>,
}

#[derive(Debug)]
struct StoreFile {
    path: PathBuf,
    disk: SharedDisk,
    state: Mutex<FileState>,
}

#[derive(Debug)]
enum FileState {
    /// The file can be used. The database is `None` before the first use and after a read error.
    Sound(Option<Database>),
    /// A write or a sync of the file has failed. What the file shows from now on may exist only in
    /// the page cache: Linux marks pages as written even if their sync failed, and later syncs
    /// succeed without writing them. The file must not be used before its content has been written
    /// to another file.
    Suspect,
}

impl FileState {
    /// Closes the database after a read error. It is opened again when it is next needed.
    fn close(&mut self) {
        if let Self::Sound(database) = self {
            *database = None;
        }
    }
}

impl RedbStore {
    /// Opens the file in `directory` on this disk, and creates it if it does not exist.
    ///
    /// # Errors
    /// `DATA_LOSS` if the file is damaged, `INVALID_ARGUMENT` if it has the format of another
    /// release, `ALREADY_EXISTS` if another process has it open, `RESOURCE_EXHAUSTED` if the disk
    /// is full.
    pub async fn open(directory: &Path, disk: SharedDisk) -> Result<Self> {
        let file = Arc::new(StoreFile {
            path: Self::path_in(directory),
            disk,
            state: Mutex::new(FileState::Sound(None)),
        });
        let store = Self { file };
        store
            .run_blocking(|file| {
                file.create_if_missing()
                    .map_err(|error| file.error("create", error))?;
                // An older release left the file readable for other users of the machine.
                private_files::restrict_file(&file.path)
                    .map_err(|error| file.error("restrict access to", error.into()))?;
                file.check()?;
                file.with_database("open", |_| Ok(()))
            })
            .await?;
        Ok(store)
    }

    /// Returns the path of the file in the gateway's data directory.
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join(FILE_NAME)
    }

    async fn run_blocking<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&StoreFile) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let file = Arc::clone(&self.file);
        let task = tokio::task::spawn_blocking(move || work(&file)).await;
        task.unwrap_or_else(|source| {
            // redb checks what it reads, but panics if damage gives a page an unexpected kind.
            Err(E::from(Error::with_source(
                ErrorCode::DataLoss,
                format!(
                    "{} cannot be used: it is damaged; {RESTORE_ADVICE}",
                    self.file.path.display()
                ),
                source,
            )))
        })
    }
}

#[async_trait]
impl MetadataStore for RedbStore {
    async fn load(&self) -> Result<StoreContent> {
        self.run_blocking(|file| file.with_database("read", load))
            .await
    }

    async fn commit(
        &self,
        expected: Vec<ExpectedVersion>,
        changes: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        self.run_blocking(move |file| file.commit(&expected, &changes))
            .await
    }
}

const RESTORE_ADVICE: &str = "restore the newest backup of it (docs/repair.md)";

/// A redb file whose syncs go through a [`Disk`](volary_node::disk::Disk).
#[derive(Debug)]
struct SyncedFile {
    backend: FileBackend,
    /// A second handle of the file in `backend`, for syncs.
    file: File,
    path: PathBuf,
    disk: SharedDisk,
}

impl SyncedFile {
    fn open(path: &Path, disk: &SharedDisk, options: &OpenOptions) -> Result<Self, redb::Error> {
        let file = options.open(path)?;
        Ok(Self {
            backend: FileBackend::new(file.try_clone()?)?,
            file,
            path: path.to_owned(),
            disk: Arc::clone(disk),
        })
    }
}

impl StorageBackend for SyncedFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync_file(&self.file, &self.path)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }
}

impl StoreFile {
    /// Creates the file if it is missing. The file gets its name only when it is complete, because
    /// redb refuses a file whose creation was interrupted by a kill.
    fn create_if_missing(&self) -> Result<(), redb::Error> {
        if self.path.exists() {
            return Ok(());
        }
        self.replace_with(&StoreContent::default())
    }

    /// Durably replaces the file with a new file that has this content.
    fn replace_with(&self, content: &StoreContent) -> Result<(), redb::Error> {
        let unfinished = self.path.with_extension("unfinished");
        match fs::remove_file(&unfinished) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(source.into()),
            _ => {}
        }
        let mut options = private_files::file_options();
        options.read(true).write(true).create_new(true);
        let new = SyncedFile::open(&unfinished, &self.disk, &options)?;
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(new)?;
        write_content(&database, content)?;
        drop(database);
        // redb writes to the file when it closes it, and does not sync that write.
        self.disk
            .sync_file(&File::open(&unfinished)?, &unfinished)?;
        fs::rename(&unfinished, &self.path)?;
        let directory = self.path.parent().unwrap_or(&self.path);
        self.disk.sync_directory(directory).map_err(Into::into)
    }

    /// Checks the file against its own checksums, which redb does not do by itself. The check runs
    /// on a copy in memory, because redb repairs damage by a rollback, which may undo acknowledged
    /// changes.
    fn check(&self) -> Result<()> {
        let content = fs::read(&self.path).map_err(|source| {
            Error::io(
                format!("cannot read the catalog {}", self.path.display()),
                source,
            )
        })?;
        let damaged = || {
            let what = format!(
                "the catalog {} is damaged; {RESTORE_ADVICE}",
                self.path.display()
            );
            Error::new(ErrorCode::DataLoss, what)
        };
        // redb would create a new database in an empty file.
        if content.is_empty() {
            return Err(damaged());
        }
        let copy = InMemoryBackend::new();
        let copied = copy
            .set_len(content.len() as u64)
            .and_then(|()| copy.write(0, &content));
        copied.map_err(|source| Error::io("cannot copy the catalog", source))?;
        drop(content);
        let opened = Database::builder().create_with_backend(copy);
        let mut copy = opened.map_err(|error| self.error("open", error.into()))?;
        match copy.check_integrity() {
            Ok(true) => Ok(()),
            Ok(false) => Err(damaged()),
            Err(error) => Err(self.error("check", error.into())),
        }
    }

    fn with_database<T>(
        &self,
        what: &str,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T> {
        let mut state = self.state.lock();
        let result = self.ensure_open(&mut state).and_then(work);
        result.map_err(|error| {
            state.close();
            self.error(what, error)
        })
    }

    fn ensure_open<'a>(&self, state: &'a mut FileState) -> Result<&'a Database, redb::Error> {
        if let FileState::Suspect = state {
            let content = load(&self.open_file()?)?;
            self.replace_with(&content)?;
            *state = FileState::Sound(None);
        }
        let FileState::Sound(database) = state else {
            return Err(redb::Error::PreviousIo);
        };
        Ok(match database {
            Some(database) => database,
            None => database.insert(self.open_file()?),
        })
    }

    fn open_file(&self) -> Result<Database, redb::Error> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = SyncedFile::open(&self.path, &self.disk, &options)?;
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(file)?;
        Ok(database)
    }

    fn commit(
        &self,
        expected: &[ExpectedVersion],
        changes: &[EntryChange],
    ) -> Result<u64, CommitError> {
        let mut state = self.state.lock();
        let before = match self.ensure_open(&mut state).and_then(revision) {
            Ok(before) => before,
            Err(error) => {
                state.close();
                return Err(self.error("read", error).into());
            }
        };
        let result = self
            .ensure_open(&mut state)
            .and_then(|database| commit(database, before, expected, changes));
        match result {
            Ok(None) => Ok(before + 1),
            Ok(Some(key)) => Err(CommitError::Conflict { key }),
            Err(error) => {
                *state = FileState::Suspect;
                // The rewritten file shows whether the change was made before the error, and its
                // content is durable.
                match self.ensure_open(&mut state).and_then(revision) {
                    Ok(after) if after > before => Ok(before + 1),
                    Ok(_) => Err(self.error("write", error).into()),
                    Err(_) => {
                        let error = self.error("write", error);
                        Err(Error::with_source(
                            error.code(),
                            format!(
                                "{}; it is unknown whether the change was made: check before you repeat it",
                                error.message()
                            ),
                            error,
                        )
                        .into())
                    }
                }
            }
        }
    }

    fn error(&self, what: &str, error: redb::Error) -> Error {
        let path = self.path.display();
        let (code, advice) = match error {
            redb::Error::Io(source) => {
                return Error::io(format!("cannot {what} the catalog {path}"), source);
            }
            redb::Error::Corrupted(_) => (
                ErrorCode::DataLoss,
                format!("it is damaged; {RESTORE_ADVICE}"),
            ),
            redb::Error::UpgradeRequired(_) => (
                ErrorCode::InvalidArgument,
                "another release wrote it in another format; start that release".to_owned(),
            ),
            redb::Error::DatabaseAlreadyOpen => (
                ErrorCode::AlreadyExists,
                "another process has it open; stop that process".to_owned(),
            ),
            redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. } => (
                ErrorCode::InvalidArgument,
                "it is not a catalog of this release; start the release that wrote it".to_owned(),
            ),
            redb::Error::PreviousIo => (
                ErrorCode::Unavailable,
                "an earlier access to it failed; retry".to_owned(),
            ),
            _ => (
                ErrorCode::Internal,
                "the store reported an unexpected error".to_owned(),
            ),
        };
        Error::with_source(
            code,
            format!("cannot {what} the catalog {path}: {advice}"),
            error,
        )
    }
}

fn load(database: &Database) -> Result<StoreContent, redb::Error> {
    let revision = revision(database)?;
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(ENTRIES) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(StoreContent::default()),
        table => table?,
    };
    let mut all = StoreContent {
        revision,
        ..StoreContent::default()
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

/// Fills a new database with this content.
fn write_content(database: &Database, content: &StoreContent) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, StoreEntry { version, value }) in &content.entries {
            entries.insert(key.as_str(), (*version, value.as_slice()))?;
        }
        transaction
            .open_table(REVISION)?
            .insert(REVISION_KEY, content.revision)?;
    }
    transaction.commit()?;
    Ok(())
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

/// Commits the changes if all expected versions match. Otherwise changes nothing, and returns the
/// first key whose version does not match.
fn commit(
    database: &Database,
    before: u64,
    expected: &[ExpectedVersion],
    changes: &[EntryChange],
) -> Result<Option<String>, redb::Error> {
    // By default, redb makes a transaction durable (fsync) before its commit returns.
    let transaction = database.begin_write()?;
    let after = before + 1;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for ExpectedVersion { key, version } in expected {
            let found = entries.get(key.as_str())?.map(|entry| entry.value().0);
            if found != *version {
                return Ok(Some(key.clone()));
            }
        }
        for change in changes {
            match change {
                EntryChange::Put { key, value } => {
                    entries.insert(key.as_str(), (after, value.as_slice()))?;
                }
                EntryChange::Delete { key } => {
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
