use std::io;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Size of the file system, in bytes.
    pub size_bytes: u64,
    /// Bytes that this user may still write.
    pub available_bytes: u64,
    /// Says whether nothing can be written.
    pub is_read_only: bool,
}

impl DiskSpace {
    /// Returns the space of the file system that holds `path`. May block.
    ///
    /// # Errors
    /// The errors of the file system, for example if `path` does not exist.
    pub fn of(path: &Path) -> io::Result<Self> {
        let space = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Self {
            size_bytes: bytes(space.f_blocks),
            available_bytes: bytes(space.f_bavail),
            is_read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }
}
