//! A redb database in one file, for a node's own records. Compared with redb alone, it does not
//! trust the file after a failed write or sync, it checks the file when it opens it, it notices
//! that redb has taken back a commit, and it keeps space for commits that must be made on a full
//! disk.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    BackendError, Database, ReadTransaction, ReadableDatabase, StorageBackend, TableDefinition,
    TableError, WriteTransaction,
};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::disk::SharedDisk;
use crate::kill_point;
use crate::private_files;

/// Keeps space for a full disk.
mod ballast;
/// Remembers the last durable commit.
mod revision_mark;

use ballast::Ballast;
use revision_mark::RevisionMark;

/// The table that counts commits, in one row.
const REVISION: TableDefinition<&str, u64> = TableDefinition::new("revision");
const REVISION_KEY: &str = "revision";
/// Size of redb's cache. The records are read only once, at the start, so the cache helps only
/// writes.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// What a store file is for.
#[derive(Debug)]
pub struct StoreKind {
    /// What messages call the file, with an article: "the catalog".
    pub name: &'static str,
    /// What to do about a damaged file.
    pub repair: &'static str,
    /// Copies the tables of one store to another one, which is empty.
    pub copy: fn(&ReadTransaction, &WriteTransaction) -> Result<(), redb::Error>,
}

/// A transactional store in one file. Each commit is durable when it returns.
pub struct StoreFile {
    kind: StoreKind,
    path: PathBuf,
    disk: SharedDisk,
    state: Mutex<FileState>,
    mark: Mutex<RevisionMark>,
    ballast: Mutex<Ballast>,
}

impl fmt::Debug for StoreFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

enum FileState {
    /// The file can be used. The database is `None` before the first use and after a read error.
    Sound(Option<OpenDatabase>),
    /// A sync of the file, or a write, has failed. What the file shows from now on may exist only
    /// in the page cache: Linux marks pages as written even if their sync failed, and later syncs
    /// succeed without writing them. The file must not be used before its content has been written
    /// to another file.
    Suspect,
}

struct OpenDatabase {
    database: Database,
    /// Says whether a write or a sync of the file has failed for another reason than a full disk.
    has_failed: Arc<AtomicBool>,
}

impl FileState {
    /// Closes the database after a read error. It is opened again when it is next needed.
    fn close(&mut self) {
        if let Self::Sound(database) = self {
            *database = None;
        }
    }

    /// Closes the database after a failed commit.
    fn close_after_commit(&mut self) {
        let has_failed = match self {
            Self::Sound(Some(open)) => open.has_failed.load(Ordering::Acquire),
            // The file was not even opened, so nothing was written to it.
            Self::Sound(None) => false,
            Self::Suspect => true,
        };
        *self = if has_failed {
            Self::Suspect
        } else {
            Self::Sound(None)
        };
    }
}

/// What the check of a sound file has found.
struct Checked {
    /// Says whether the process that last used the file has closed it.
    was_closed: bool,
}

/// The reason why a transaction has no result.
#[derive(Debug, thiserror::Error)]
pub enum CommitFailure {
    /// Nothing was changed.
    #[error(transparent)]
    NotMade(Error),
    /// It is unknown whether the change was made. The error says so, too.
    #[error(transparent)]
    Unknown(Error),
}

impl From<CommitFailure> for Error {
    fn from(failure: CommitFailure) -> Self {
        match failure {
            CommitFailure::NotMade(error) | CommitFailure::Unknown(error) => error,
        }
    }
}

impl StoreFile {
    /// Opens the file at `path` on this disk. If it does not exist, it is created with what
    /// `initial` writes. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is damaged, `INVALID_ARGUMENT` if it has the format of
    /// another release, `ALREADY_EXISTS` if another process has it open, `RESOURCE_EXHAUSTED` if
    /// the disk is full.
    pub fn open(
        path: PathBuf,
        disk: SharedDisk,
        kind: StoreKind,
        initial: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<Self> {
        let store = Self {
            kind,
            mark: Mutex::new(RevisionMark::of(&path, Arc::clone(&disk))),
            ballast: Mutex::new(Ballast::of(&path, Arc::clone(&disk))),
            path,
            disk,
            state: Mutex::new(FileState::Sound(None)),
        };
        store.without_panic(|| {
            if !store.path.exists() {
                let created = store.replace_with(initial);
                created.map_err(|error| store.error("create", error))?;
            }
            // An older release left the file readable for other users of the machine.
            private_files::restrict_file(&store.path)
                .map_err(|error| store.error("restrict access to", error.into()))?;
            if !store.check()?.was_closed {
                // The last sync of the process that used the file before may have failed.
                *store.state.lock() = FileState::Suspect;
            }
            Ok(())
        })?;
        store.mark.lock().write(store.read(revision)?);
        Ok(store)
    }

    /// Lets the file at `path` be opened although it lacks commits that were durable: they are
    /// given up. No process may have the file open.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn accept_lost_commits(path: &Path) -> Result<()> {
        RevisionMark::remove(path).map_err(|source| {
            let path = path.display();
            Error::io(
                format!("cannot remove the mark of the last commit of {path}"),
                source,
            )
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what `work` reads from the store, as of the last commit. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is damaged, and the errors of the file system.
    pub fn read<T>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T> {
        self.without_panic(|| {
            let mut state = self.state.lock();
            let result = self
                .ensure_open(&mut state)
                .and_then(|database| work(&database.begin_read()?));
            result.map_err(|error| {
                state.close();
                self.error("read", error)
            })
        })
    }

    /// Commits what `work` changes, durably. `work` gets the revision of this commit. If it breaks,
    /// nothing is changed. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system, and `DATA_LOSS` if the file is damaged.
    pub fn commit<B, T>(
        &self,
        work: impl FnOnce(&WriteTransaction, u64) -> Result<ControlFlow<B, T>, redb::Error>,
    ) -> Result<ControlFlow<B, T>, CommitFailure> {
        let committed = self.without_panic(|| Ok(self.commit_unguarded(work)));
        let committed = committed.map_err(CommitFailure::Unknown).flatten()?;
        self.ballast.lock().fill();
        Ok(committed)
    }

    /// Commits like [`Self::commit`], but may use the ballast if the disk is full. This is for
    /// changes that free space, and for small ones without which the node does not serve. The rows
    /// of users must not use up the ballast.
    ///
    /// # Errors
    /// Returns the errors of [`Self::commit`].
    pub fn commit_with_ballast<B, T>(
        &self,
        work: impl Fn(&WriteTransaction, u64) -> Result<ControlFlow<B, T>, redb::Error>,
    ) -> Result<ControlFlow<B, T>, CommitFailure> {
        let is_full = |failure: &CommitFailure| matches!(failure, CommitFailure::NotMade(error) if error.code() == ErrorCode::ResourceExhausted);
        self.despite_full_disk(is_full, || self.commit(&work))
    }

    /// Writes another small file without which the node does not serve. Like
    /// [`Self::commit_with_ballast`], this may use the ballast.
    ///
    /// # Errors
    /// Returns the errors of `write`.
    pub fn write_with_ballast<T>(&self, write: impl Fn() -> Result<T>) -> Result<T> {
        self.despite_full_disk(|error| error.code() == ErrorCode::ResourceExhausted, write)
    }

    /// Does this work. If the disk is full, gives up the ballast, does the work once more, and
    /// takes back what is left of the space.
    fn despite_full_disk<T, E>(
        &self,
        is_full: impl Fn(&E) -> bool,
        work: impl Fn() -> Result<T, E>,
    ) -> Result<T, E> {
        match work() {
            Err(error) if is_full(&error) && self.ballast.lock().give_up() => {
                let done = work();
                self.ballast.lock().fill();
                done
            }
            done => done,
        }
    }

    fn commit_unguarded<B, T>(
        &self,
        work: impl FnOnce(&WriteTransaction, u64) -> Result<ControlFlow<B, T>, redb::Error>,
    ) -> Result<ControlFlow<B, T>, CommitFailure> {
        let mut state = self.state.lock();
        let before = match self.ensure_open(&mut state).and_then(revision_of) {
            Ok(before) => before,
            Err(error) => {
                state.close();
                return Err(CommitFailure::NotMade(self.error("read", error)));
            }
        };
        let mut decided = None;
        let committed = self.ensure_open(&mut state).and_then(|database| {
            // By default, redb makes a transaction durable (fsync) before its commit returns.
            let transaction = database.begin_write()?;
            let work_result = work(&transaction, before + 1)?;
            let is_break = work_result.is_break();
            decided = Some(work_result);
            if is_break {
                transaction.abort()?;
            } else {
                put_revision(&transaction, before + 1)?;
                transaction.commit()?;
            }
            Ok(())
        });
        let error = match (committed, decided.take()) {
            (Ok(()), Some(work_result)) => {
                if work_result.is_continue() {
                    self.mark.lock().write(before + 1);
                }
                return Ok(work_result);
            }
            (Ok(()), None) => {
                let error = Error::internal("a transaction ended without a result");
                return Err(CommitFailure::NotMade(error));
            }
            (Err(error), work_result) => {
                decided = work_result;
                error
            }
        };
        state.close_after_commit();
        // The file that is opened now, or written anew, shows whether the change was made before
        // the error. Its content is durable.
        match (
            self.ensure_open(&mut state).and_then(revision_of),
            decided.take(),
        ) {
            (Ok(after), Some(work_result)) if after > before => {
                self.mark.lock().write(after);
                Ok(work_result)
            }
            (Ok(_), _) => Err(CommitFailure::NotMade(self.error("write", error))),
            (Err(_), _) => {
                let error = self.error("write", error);
                Err(CommitFailure::Unknown(Error::with_source(
                    error.code(),
                    format!(
                        "{}; it is unknown whether the change was made: check before you repeat it",
                        error.message()
                    ),
                    error,
                )))
            }
        }
    }

    /// Turns a panic of redb into an error. redb checks what it reads, but panics if damage gives a
    /// page an unexpected kind.
    fn without_panic<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::DataLoss,
                format!(
                    "{} {} cannot be used: it is damaged; {}",
                    self.kind.name,
                    self.path.display(),
                    self.kind.repair
                ),
            ))
        })
    }

    /// Durably replaces the file with a new file that has what `fill` writes. The file gets its
    /// name only when it is complete, because redb refuses a file whose creation was interrupted by
    /// a kill.
    fn replace_with(
        &self,
        fill: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let unfinished = self.path.with_extension("unfinished");
        match self.disk.remove_file(&unfinished) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(source.into()),
            _ => {}
        }
        if let Err(error) = self.write_new(&unfinished, fill) {
            // On a full disk, the file would take space that others need.
            drop(self.disk.remove_file(&unfinished));
            return Err(error);
        }
        kill_point("store_file.before_rename");
        fs::rename(&unfinished, &self.path)?;
        kill_point("store_file.after_rename");
        let directory = self.path.parent().unwrap_or(&self.path);
        self.disk.sync_directory(directory).map_err(Into::into)
    }

    /// Durably writes a new file that has what `fill` writes. Its name is not durable yet.
    fn write_new(
        &self,
        path: &Path,
        fill: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let mut options = private_files::file_options();
        options.read(true).write(true).create_new(true);
        let OpenDatabase { database, .. } = self.open_database(path, &options)?;
        let transaction = database.begin_write()?;
        fill(&transaction)?;
        transaction.commit()?;
        drop(database);
        // redb writes to the file when it closes it, and does not sync that write.
        let synced = self.disk.sync_file(&File::open(path)?, path);
        synced.map_err(Into::into)
    }

    /// Checks the file against its own checksums, which redb does not do by itself. The check runs
    /// on a copy in memory, because redb repairs damage by a rollback, which may undo acknowledged
    /// changes.
    fn check(&self) -> Result<Checked> {
        let (name, path) = (self.kind.name, self.path.display());
        let content = fs::read(&self.path)
            .map_err(|source| Error::io(format!("cannot read {name} {path}"), source))?;
        let damaged = || {
            let what = format!("{name} {path} is damaged; {}", self.kind.repair);
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
        copied.map_err(|source| Error::io(format!("cannot copy {name}"), source))?;
        drop(content);
        let was_closed = Arc::new(AtomicBool::new(true));
        let noted = Arc::clone(&was_closed);
        let mut builder = Database::builder();
        builder.set_repair_callback(move |_| noted.store(false, Ordering::Release));
        let opened = builder.create_with_backend(copy);
        let mut copy = opened.map_err(|error| self.error("open", error.into()))?;
        match copy.check_integrity() {
            Ok(true) => {}
            Ok(false) => return Err(damaged()),
            Err(error) => return Err(self.error("check", error.into())),
        }
        let was_closed = was_closed.load(Ordering::Acquire);
        if !was_closed {
            let revision = revision_of(&copy).map_err(|error| self.error("read", error))?;
            self.refuse_lost_commits(revision)?;
        }
        Ok(Checked { was_closed })
    }

    /// Refuses a file that lacks commits that were durable. A file that was closed is not refused:
    /// redb takes nothing back from it, so it is an older copy, and its owner finds out what that
    /// means.
    fn refuse_lost_commits(&self, revision: u64) -> Result<()> {
        let mark = self.mark.lock();
        let (name, path) = (self.kind.name, self.path.display());
        let marked = mark.read().map_err(|source| {
            Error::io(format!("cannot read {}", mark.path().display()), source)
        })?;
        match marked {
            Some(marked) if marked > revision => Err(Error::new(
                ErrorCode::DataLoss,
                format!(
                    "{name} {path} is damaged: it ends with commit {revision}, and commit {marked} was durable ({}); {}",
                    mark.path().display(),
                    self.kind.repair
                ),
            )),
            _ => Ok(()),
        }
    }

    fn ensure_open<'a>(&self, state: &'a mut FileState) -> Result<&'a Database, redb::Error> {
        if let FileState::Suspect = state {
            let OpenDatabase { database, .. } = self.open_existing()?;
            let content = database.begin_read()?;
            let copy = |transaction: &WriteTransaction| {
                (self.kind.copy)(&content, transaction)?;
                put_revision(transaction, revision(&content)?)
            };
            // Without the copy, nothing could be read either.
            self.despite_full_disk(
                |error| matches!(error, redb::Error::Io(source) if is_full(source)),
                || self.replace_with(copy),
            )?;
            *state = FileState::Sound(None);
        }
        let FileState::Sound(database) = state else {
            return Err(redb::Error::PreviousIo);
        };
        Ok(match database {
            Some(open) => &open.database,
            None => &database.insert(self.open_existing()?).database,
        })
    }

    fn open_existing(&self) -> Result<OpenDatabase, redb::Error> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        self.open_database(&self.path, &options)
    }

    fn open_database(
        &self,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<OpenDatabase, redb::Error> {
        let file = self.watch_file(path, options)?;
        let has_failed = Arc::clone(&file.has_failed);
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(file)?;
        Ok(OpenDatabase {
            database,
            has_failed,
        })
    }

    fn watch_file(&self, path: &Path, options: &OpenOptions) -> Result<WatchedFile, redb::Error> {
        let file = options.open(path)?;
        Ok(WatchedFile {
            backend: FileBackend::new(file.try_clone()?)?,
            file,
            path: path.to_owned(),
            disk: Arc::clone(&self.disk),
            has_failed: Arc::new(AtomicBool::new(false)),
        })
    }

    fn error(&self, what: &str, error: redb::Error) -> Error {
        let StoreKind { name, repair, .. } = self.kind;
        let path = self.path.display();
        let (code, advice) = match error {
            redb::Error::Io(source) => {
                return Error::io(format!("cannot {what} {name} {path}"), source);
            }
            redb::Error::Corrupted(_) => (ErrorCode::DataLoss, format!("it is damaged; {repair}")),
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
                "this release did not write it; start the release that wrote it".to_owned(),
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
            format!("cannot {what} {name} {path}: {advice}"),
            error,
        )
    }
}

/// Returns the number of commits that the store has had.
///
/// # Errors
/// Returns the errors of reading the store.
pub fn revision(transaction: &ReadTransaction) -> Result<u64, redb::Error> {
    match transaction.open_table(REVISION) {
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        table => Ok(table?
            .get(REVISION_KEY)?
            .map_or(0, |revision| revision.value())),
    }
}

fn revision_of(database: &Database) -> Result<u64, redb::Error> {
    revision(&database.begin_read()?)
}

fn put_revision(transaction: &WriteTransaction, revision: u64) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(REVISION)?;
    table.insert(REVISION_KEY, revision)?;
    Ok(())
}

/// A redb file whose writes and syncs go through a [`Disk`](crate::disk::Disk), and which remembers
/// whether one of them has made the file suspect.
#[derive(Debug)]
struct WatchedFile {
    backend: FileBackend,
    /// A second handle of the file in `backend`.
    file: File,
    path: PathBuf,
    disk: SharedDisk,
    has_failed: Arc<AtomicBool>,
}

impl WatchedFile {
    fn watch<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.has_failed.store(true, Ordering::Release);
        }
        result
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl StorageBackend for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.watch(self.backend.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        kill_point("store_file.before_sync");
        let synced = self.watch(self.disk.sync_file(&self.file, &self.path));
        kill_point("store_file.after_sync");
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = self.disk.write_at(&self.file, &self.path, offset, data);
        match written {
            // Until a transaction is complete, redb writes only to pages that nothing refers to.
            Err(error) if is_full(&error) => Err(error),
            written => self.watch(written),
        }
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
