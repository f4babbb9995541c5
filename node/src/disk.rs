//! The calls that make files durable, so that a test can put a disk that fails or forgets in their place.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::private;

/// What the storage of a node needs of a file system beyond `std::fs`.
///
/// Whoever is told that a call failed must not conclude anything from what it reads afterwards: after a failed `fsync`,
/// the page cache may show what will never be on the disk.
pub trait Disk: Debug + Send + Sync {
    /// Makes the content of an open file durable. `path` is where it is.
    ///
    /// # Errors
    /// Those of the file system. Parts of the content may be durable, and a later success says nothing about the rest.
    fn sync_file(&self, file: &File, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of the file system.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes a file with this content, durably, or replaces the content of one. Nobody but its owner reads a new file. Its
    /// name is not durable yet.
    ///
    /// # Errors
    /// Those of the file system, a full disk among them.
    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Removes a file, which gives its room back. After a crash it may be there again.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// A disk that several parts of a node use.
pub type SharedDisk = Arc<dyn Disk>;

/// The file systems of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn sync_file(&self, file: &File, _: &Path) -> io::Result<()> {
        // Its times need not be durable.
        file.sync_data()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = private::file_options()
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
