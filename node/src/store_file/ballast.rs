//! Space that is kept for a full disk: a file beside a store, which nobody reads.
//!
//! redb writes to free pages only, and a transaction that removes records needs some, too. So on a
//! full disk, a node could not even make the commits that free space. For such a commit, the file
//! is emptied. When there is space again, the file gets it back with one of the next commits.
//!
//! The file takes a little more space than the store. That is enough for a transaction that changes
//! all pages, and for a copy of the store, which a start after a kill makes.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::disk::SharedDisk;
use crate::private_files;

/// Space is allocated in such steps, so that the file gets nearly all that is left.
const STEP_BYTES: u64 = 64 << 10;
/// The least by which the file is larger than the store.
const SPARE_BYTES: u64 = 256 << 10;
/// Maximum size of the file. A larger store has a smaller file.
const MOST_BYTES: u64 = 64 << 20;
/// The unit in which the file system counts the blocks of a file.
const BLOCK_BYTES: u64 = 512;

/// The file with the space that a store keeps for a full disk.
#[derive(Debug)]
pub(super) struct Ballast {
    store: PathBuf,
    path: PathBuf,
    disk: SharedDisk,
    /// Size that this process has allocated, in bytes.
    allocated: u64,
    /// Says whether the last attempt to allocate space failed.
    has_failed: bool,
}

impl Ballast {
    /// Returns the ballast of the store at `store`. The file may be there from an earlier process.
    pub(super) fn of(store: &Path, disk: SharedDisk) -> Self {
        Self {
            store: store.to_owned(),
            path: store.with_extension("ballast"),
            disk,
            allocated: 0,
            has_failed: false,
        }
    }

    /// Frees the space of the file. Returns false if it had none.
    pub(super) fn give_up(&mut self) -> bool {
        let given_up = self.try_give_up();
        let path = self.path.display();
        match given_up {
            Ok(0) => false,
            Ok(bytes) => {
                // On a disk that stays full, one line is enough.
                if !self.has_failed {
                    tracing::warn!(%path, bytes, "the disk is full: the space of the ballast is used to make room");
                }
                true
            }
            Err(error) => {
                tracing::warn!(%path, %error, "the disk is full, and the space of the ballast cannot be given up");
                false
            }
        }
    }

    fn try_give_up(&mut self) -> io::Result<u64> {
        let file = match OpenOptions::new().write(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened?,
        };
        let bytes = file.metadata()?.len();
        self.allocated = 0;
        self.disk.empty_file(&file, &self.path)?;
        // Some file systems let others use the space only when they have written their journal. If
        // the sync fails, the caller finds out whether there is space.
        drop(self.disk.sync_file(&file, &self.path));
        Ok(bytes)
    }

    /// Allocates what the file lacks, as far as there is space. A failure is only logged, and only
    /// once: the node works without ballast as long as the disk is not full.
    pub(super) fn fill(&mut self) {
        let filled = self.try_fill();
        let had_failed = std::mem::replace(&mut self.has_failed, filled.is_err());
        let path = self.path.display();
        match filled {
            Ok(()) if had_failed => tracing::info!(%path, "the ballast has its space again"),
            Err(error) if !had_failed => {
                tracing::warn!(%path, %error, "the ballast cannot get all of its space: on a full disk, deletions may fail; the node tries again with each commit");
            }
            _ => {}
        }
    }

    fn try_fill(&mut self) -> io::Result<()> {
        let store_bytes = self.store.metadata()?.blocks() * BLOCK_BYTES;
        let wanted = size_for(store_bytes);
        if self.allocated >= wanted {
            return Ok(());
        }
        let mut options = private_files::file_options();
        options.write(true).create(true).truncate(false);
        let file = options.open(&self.path)?;
        while self.allocated < wanted {
            let next = self.allocated + STEP_BYTES;
            self.disk.allocate(&file, &self.path, next)?;
            self.allocated = next;
        }
        Ok(())
    }
}

/// Returns the size of the file for a store that takes this space on the disk, in bytes.
fn size_for(store_bytes: u64) -> u64 {
    let more = store_bytes + SPARE_BYTES;
    more.next_multiple_of(STEP_BYTES).min(MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::disk::LocalDisk;

    fn len_of(ballast: &Ballast) -> u64 {
        ballast.path.metadata().map_or(0, |metadata| metadata.len())
    }

    #[test]
    fn the_ballast_grows_with_the_store_and_is_allocated_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("eggs.redb");
        fs::write(&store, [1; 10]).unwrap();
        let mut ballast = Ballast::of(&store, Arc::new(LocalDisk));
        assert!(!ballast.give_up(), "nothing is there");
        ballast.fill();
        assert!(len_of(&ballast) >= SPARE_BYTES);
        let mode = ballast.path.metadata().unwrap().mode();
        assert_eq!(mode & 0o077, 0, "others can read it");
        // No file system compresses such bytes.
        let mut content = vec![0; 3 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        fs::write(&store, content).unwrap();
        ballast.fill();
        let filled = len_of(&ballast);
        assert!(filled >= 3 << 20, "{filled}");
        assert!(ballast.give_up());
        assert!(!ballast.give_up());
        assert_eq!(len_of(&ballast), 0);
        ballast.fill();
        assert_eq!(len_of(&ballast), filled);
        // The next process finds it.
        let mut ballast = Ballast::of(&store, Arc::new(LocalDisk));
        ballast.fill();
        assert_eq!(len_of(&ballast), filled);
        assert!(ballast.give_up());
    }

    #[test]
    fn a_ballast_is_larger_than_its_store_unless_that_is_huge() {
        for store in [0, 1, STEP_BYTES, STEP_BYTES + 1, 30 << 20] {
            let size = size_for(store);
            let more = size - store;
            assert!(
                (SPARE_BYTES..SPARE_BYTES + STEP_BYTES).contains(&more),
                "{store}"
            );
        }
        assert_eq!(size_for(10 << 30), MOST_BYTES);
    }

    #[test]
    fn a_store_goes_on_without_ballast_if_the_file_cannot_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("eggs.redb");
        fs::write(&store, "eggs").unwrap();
        fs::create_dir(dir.path().join("eggs.ballast")).unwrap();
        let mut ballast = Ballast::of(&store, Arc::new(LocalDisk));
        ballast.fill();
        assert!(!ballast.give_up());
    }
}
