use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::private_files;

/// The file system operations that the storage of a node needs beyond `std::fs`.
///
/// After a call has failed, the caller must not conclude anything from what it reads. After a
/// failed `fsync`, the page cache may show content that will never be on the disk.
pub trait Disk: Debug + Send + Sync {
    /// Makes the content of an open file durable. `path` is the path of the file.
    ///
    /// # Errors
    /// The errors of the file system. After an error, parts of the content may be durable, and a
    /// later success says nothing about the rest.
    fn sync_file(&self, file: &File, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The errors of the file system.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Creates a file with this content, or replaces the content of an existing one, and makes the
    /// content durable. Only its owner can read a new file. The file's name is not durable yet.
    ///
    /// # Errors
    /// The errors of the file system, including a full disk.
    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Removes a file and frees its space. After a crash the file may exist again.
    ///
    /// # Errors
    /// The errors of the file system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// A disk that several parts of a node share.
pub type SharedDisk = Arc<dyn Disk>;

/// The file systems of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn sync_file(&self, file: &File, _: &Path) -> io::Result<()> {
        // The timestamps of the file need not be durable.
        file.sync_data()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = private_files::file_options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.write_all(content)?;
        self.sync_file(&file, path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}
