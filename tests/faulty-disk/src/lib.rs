//! A disk for tests of durability. It fails a sync when it is told to, has no room when it is told to, and forgets at a
//! crash what was not synced.
//!
//! It stands over a directory of the real file system, which plays the page cache: what a node reads is what is there.
//! Beside it, [`FaultyDisk`] remembers what a power loss would leave: of a file the content of its last sync, of a
//! directory the names of its last sync. [`FaultyDisk::crash`] writes that to another directory, from which a test goes
//! on.
//!
//! A sync that fails leaves the file as Linux leaves it: its dirty pages count as clean. A later sync succeeds without
//! them, and a crash loses them, unless they were written again in the meantime.

mod image;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use volary_node::disk::{Disk, LocalDisk};

use image::Image;

/// A disk that fails and forgets. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct FaultyDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    root: PathBuf,
    image: Image,
    /// Syncs that are still to succeed before one fails; none if no sync is to fail.
    syncs_until_failure: Option<u64>,
    /// Bytes that whole files may still take; none if there is room for all.
    room_bytes: Option<u64>,
}

impl FaultyDisk {
    /// Stands over `root`, whose content is durable.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn over(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let mut image = Image::default();
        image.take_all(&root)?;
        Ok(Self(Arc::new(Mutex::new(State {
            root,
            image,
            syncs_until_failure: None,
            room_bytes: None,
        }))))
    }

    /// Fails one sync, after this many that succeed.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.0.lock().syncs_until_failure = Some(syncs);
    }

    /// Has room for files of this many bytes from now on; `None`: for all.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.0.lock().room_bytes = bytes;
    }

    /// Writes what a power loss would leave to `into`, an empty directory.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn crash(&self, into: &Path) -> io::Result<()> {
        let state = self.0.lock();
        state.image.restore(&state.root, into)
    }
}

impl State {
    /// Whether this sync succeeds.
    fn may_sync(&mut self) -> io::Result<()> {
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
        match state.may_sync() {
            Ok(()) => state.image.sync_file(file),
            Err(error) => {
                state.image.fail_file(file)?;
                Err(error)
            }
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.may_sync()?;
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
