//! A disk for tests of durability. On request, it fails a sync or runs out of space. At a crash, it
//! loses everything that was not synced.
//!
//! It works on a directory of the real file system, which plays the role of the page cache: nodes
//! read from it. In addition, [`FaultyDisk`] records what a power loss would leave, which is the
//! content of each file at its last sync and the names in each directory at its last sync.
//! [`FaultyDisk::crash`] writes this state to another directory, which a test can continue with.
//!
//! A failed sync has the same effect as on Linux: the dirty pages of the file count as clean. A
//! later sync succeeds without them, and a crash loses them unless they were written again in the
//! meantime.

/// Models what remains on a disk after a power loss.
mod image;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use volary_node::disk::{Disk, LocalDisk};

use image::Image;

/// A disk that fails or loses data on request. Clones share one disk.
#[derive(Debug, Clone)]
pub struct FaultyDisk(Arc<Mutex<DiskState>>);

#[derive(Debug)]
struct DiskState {
    root: PathBuf,
    image: Image,
    /// Number of syncs that succeed before one fails. `None` if no sync fails.
    syncs_until_failure: Option<u64>,
    /// Number of bytes that [`Disk::write_file`] may still write. `None` if the space is unlimited.
    room_bytes: Option<u64>,
}

impl FaultyDisk {
    /// Creates a disk on the directory `root`, whose present content counts as durable.
    ///
    /// # Errors
    /// Returns the errors of reading the directory.
    pub fn over(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let mut image = Image::default();
        image.record_all(&root)?;
        Ok(Self(Arc::new(Mutex::new(DiskState {
            root,
            image,
            syncs_until_failure: None,
            room_bytes: None,
        }))))
    }

    /// Makes one sync fail, after this number of syncs that succeed.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.0.lock().syncs_until_failure = Some(syncs);
    }

    /// Sets the free space in bytes, or `None` for unlimited space. Only files that are written as
    /// a whole use it up.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.0.lock().room_bytes = bytes;
    }

    /// Writes what a power loss would leave to `into`, an empty directory.
    ///
    /// # Errors
    /// Returns the errors of writing to it.
    pub fn crash(&self, into: &Path) -> io::Result<()> {
        let state = self.0.lock();
        state.image.restore(&state.root, into)
    }
}

impl DiskState {
    /// Returns an error if this sync has to fail.
    fn begin_sync(&mut self) -> io::Result<()> {
        match self.syncs_until_failure {
            Some(0) => {
                self.syncs_until_failure = None;
                Err(io::Error::other("the disk failed a sync"))
            }
            Some(left) => {
                self.syncs_until_failure = Some(left - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Disk for FaultyDisk {
    fn sync_file(&self, file: &File, _: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        match state.begin_sync() {
            Ok(()) => state.image.sync_file(file),
            Err(error) => {
                state.image.record_failed_sync(file)?;
                Err(error)
            }
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.begin_sync()?;
        state.image.sync_directory(path)
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        {
            let mut state = self.0.lock();
            if let Some(room) = &mut state.room_bytes {
                let rest = room.checked_sub(content.len() as u64);
                *room = rest.ok_or(io::ErrorKind::StorageFull)?;
            }
        }
        LocalDisk.write_file(path, content)?;
        self.sync_file(&File::open(path)?, path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let bytes = path.metadata().map_or(0, |metadata| metadata.len());
        LocalDisk.remove_file(path)?;
        if let Some(room) = &mut self.0.lock().room_bytes {
            *room = room.saturating_add(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
