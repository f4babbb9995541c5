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

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use volary_node::disk::{Disk, LocalDisk};

use image::{Image, PAGE};

/// A disk that fails or loses data on request. Clones share one disk.
#[derive(Debug, Clone)]
pub struct FaultyDisk(Arc<Mutex<DiskState>>);

#[derive(Debug)]
struct DiskState {
    root: PathBuf,
    image: Image,
    /// Number of syncs so far, including those that failed.
    syncs: u64,
    /// The syncs that fail, by number.
    failing_syncs: Range<u64>,
    /// Number of bytes that [`Disk::write_file`], [`Disk::write_at`] and [`Disk::allocate`] may
    /// still use, in whole pages. `None` if the space is unlimited.
    room_bytes: Option<u64>,
}

impl FaultyDisk {
    /// Creates a disk on the directory `root`, whose present content counts as durable. Its files
    /// have space for all of their pages.
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
            syncs: 0,
            failing_syncs: 0..0,
            room_bytes: None,
        }))))
    }

    /// Makes one sync fail, after this number of syncs that succeed.
    pub fn fail_sync_after(&self, syncs: u64) {
        let mut state = self.0.lock();
        let failing = state.syncs + syncs;
        state.failing_syncs = failing..failing + 1;
    }

    /// Makes all syncs fail, after this number of syncs that succeed.
    pub fn fail_syncs_from(&self, syncs: u64) {
        let mut state = self.0.lock();
        state.failing_syncs = state.syncs + syncs..u64::MAX;
    }

    /// Makes all syncs succeed from now on.
    pub fn heal(&self) {
        self.0.lock().failing_syncs = 0..0;
    }

    /// Returns the number of syncs so far, including those that failed.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Sets the free space in bytes, or `None` for unlimited space. Only what is written through
    /// this disk uses it up, in whole pages.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.0.lock().room_bytes = bytes;
    }

    fn use_room(&self, bytes: u64) -> io::Result<()> {
        if let Some(room) = &mut self.0.lock().room_bytes {
            let rest = room.checked_sub(bytes);
            *room = rest.ok_or(io::ErrorKind::StorageFull)?;
        }
        Ok(())
    }

    /// Gives back the space of a file that was as `former` says, and is removed or empty now.
    fn give_room(&self, former: &Metadata) {
        let mut state = self.0.lock();
        let noted = state.image.forget_pages(former);
        // The pages of a file that was written in another way are not noted.
        let pages = noted.unwrap_or(former.len().div_ceil(PAGE as u64));
        if let Some(room) = &mut state.room_bytes {
            *room = room.saturating_add(pages * PAGE as u64);
        }
    }

    /// Takes space for those of a file's pages that have none yet.
    fn use_pages(&self, file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        let new_pages = self.0.lock().image.new_pages(file, offset, bytes)?;
        self.use_room((new_pages.len() * PAGE) as u64)?;
        self.0.lock().image.note_pages(file, new_pages)
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
        let number = self.syncs;
        self.syncs += 1;
        if self.failing_syncs.contains(&number) {
            return Err(io::Error::other("the disk failed a sync"));
        }
        Ok(())
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
        self.use_room(content.len().next_multiple_of(PAGE) as u64)?;
        LocalDisk.write_file(path, content)?;
        self.sync_file(&File::open(path)?, path)
    }

    fn write_at(&self, file: &File, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.use_pages(file, offset, bytes.len() as u64)?;
        LocalDisk.write_at(file, path, offset, bytes)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let former = path.metadata();
        LocalDisk.remove_file(path)?;
        self.give_room(&former?);
        Ok(())
    }

    fn allocate(&self, file: &File, path: &Path, bytes: u64) -> io::Result<()> {
        self.use_pages(file, 0, bytes)?;
        LocalDisk.allocate(file, path, bytes)
    }

    fn empty_file(&self, file: &File, path: &Path) -> io::Result<()> {
        let former = file.metadata()?;
        LocalDisk.empty_file(file, path)?;
        self.give_room(&former);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
