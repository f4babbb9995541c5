use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use crate::metrics::disk_syncs;
use crate::private_files;

/// Number of zeros that are written at a time where space cannot be allocated.
const ZEROS: usize = 64 << 10;

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

    /// Writes all these bytes at a position of an open file. They are not durable yet. `path` is
    /// the path of the file.
    ///
    /// # Errors
    /// The errors of the file system, including a full disk. After an error, some of the bytes may
    /// have been written.
    fn write_at(&self, file: &File, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file and frees its space. After a crash the file may exist again.
    ///
    /// # Errors
    /// The errors of the file system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes sure that the first bytes of an open file have space on the disk. A shorter file then
    /// has this length. `path` is the path of the file.
    ///
    /// # Errors
    /// The errors of the file system, including a full disk. After an error, the file has no more
    /// space than before.
    fn allocate(&self, file: &File, path: &Path, bytes: u64) -> io::Result<()>;

    /// Makes an open file empty and frees its space. `path` is the path of the file.
    ///
    /// # Errors
    /// The errors of the file system.
    fn empty_file(&self, file: &File, path: &Path) -> io::Result<()>;
}

/// A disk that several parts of a node share.
pub type SharedDisk = Arc<dyn Disk>;

/// The file systems of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn sync_file(&self, file: &File, path: &Path) -> io::Result<()> {
        disk_syncs::count_file(path);
        // The timestamps of the file need not be durable.
        file.sync_data()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        disk_syncs::count_directory();
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

    fn write_at(&self, file: &File, _: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn allocate(&self, file: &File, _: &Path, bytes: u64) -> io::Result<()> {
        let before = file.metadata()?.len();
        let allocate = || fallocate(file, FallocateFlags::empty(), 0, bytes);
        let allocated = match retry_on_intr(allocate) {
            // Some file systems have no such operation, for example ext3 and NFS before 4.2.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, before, bytes),
            done => done.map_err(Into::into),
        };
        if allocated.is_err() {
            // The file may have got a part of the space before the disk was full.
            file.set_len(before)?;
        }
        allocated
    }

    fn empty_file(&self, file: &File, _: &Path) -> io::Result<()> {
        file.set_len(0)
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; ZEROS];
    let mut position = from;
    while position < to {
        let length = usize::try_from(to - position).map_or(ZEROS, |rest| rest.min(ZEROS));
        file.write_all_at(&zeros[..length], position)?;
        position += length as u64;
    }
    // The file system of another machine says only now that its disk is full.
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_allocated_space_never_gets_shorter_until_it_is_emptied() {
        type Allocate = fn(&File, &Path, u64) -> io::Result<()>;
        let allocate: Allocate = |file, path, bytes| LocalDisk.allocate(file, path, bytes);
        let write: Allocate = |file, _, bytes| write_zeros(file, file.metadata()?.len(), bytes);
        let dir = tempfile::tempdir().unwrap();
        for (number, allocate) in [allocate, write].into_iter().enumerate() {
            let path = dir.path().join(number.to_string());
            let file = File::create(&path).unwrap();
            for (bytes, length) in [(300_000, 300_000), (100_000, 300_000), (400_000, 400_000)] {
                allocate(&file, &path, bytes).unwrap();
                assert_eq!(file.metadata().unwrap().len(), length);
            }
            LocalDisk.empty_file(&file, &path).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 0);
        }
    }
}
