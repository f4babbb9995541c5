//! The revision of the last durable commit of a store, in a small file beside the store.
//!
//! After a kill, redb cannot tell a commit that was interrupted from one that was made and damaged
//! later: in both cases it goes back to the commit before. The mark tells them apart. It is written
//! after each commit and never synced, so it costs no commit any time. After a power loss it may be
//! old or empty, and then it proves less, but it never claims a commit that was not durable.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::SharedDisk;
use crate::private_files;

/// Bytes of the mark: the revision, little-endian, and the first bytes of the BLAKE3 hash of it.
const MARK_BYTES: usize = 16;

/// The file with the mark of a store. It is opened at the first write.
#[derive(Debug)]
pub(super) struct RevisionMark {
    path: PathBuf,
    disk: SharedDisk,
    file: Option<File>,
}

impl RevisionMark {
    /// Returns the mark of the store at `store`.
    pub(super) fn of(store: &Path, disk: SharedDisk) -> Self {
        Self {
            path: mark_path(store),
            disk,
            file: None,
        }
    }

    /// Removes the mark of the store at `store`, if there is one.
    pub(super) fn remove(store: &Path) -> io::Result<()> {
        match fs::remove_file(mark_path(store)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the revision, or `None` if there is no mark, or one that was not written completely.
    pub(super) fn read(&self) -> io::Result<Option<u64>> {
        match fs::read(&self.path) {
            Ok(content) => Ok(decode(&content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the revision of a commit that is durable. A failure is only logged: an old mark is
    /// still true.
    pub(super) fn write(&mut self, revision: u64) {
        if let Err(error) = self.try_write(revision) {
            self.file = None;
            tracing::warn!(path = %self.path.display(), %error, "cannot write the mark of a commit");
        }
    }

    fn try_write(&mut self, revision: u64) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let mut options = private_files::file_options();
                // A kill between two steps must not leave an empty mark.
                options.write(true).create(true).truncate(false);
                self.file.insert(options.open(&self.path)?)
            }
        };
        self.disk.write_at(file, &self.path, 0, &encode(revision))
    }
}

fn mark_path(store: &Path) -> PathBuf {
    store.with_extension("revision")
}

fn encode(revision: u64) -> [u8; MARK_BYTES] {
    let revision = revision.to_le_bytes();
    let mut mark = [0; MARK_BYTES];
    let (number, check) = mark.split_at_mut(revision.len());
    number.copy_from_slice(&revision);
    check.copy_from_slice(&blake3::hash(&revision).as_bytes()[..check.len()]);
    mark
}

fn decode(mark: &[u8]) -> Option<u64> {
    let revision = u64::from_le_bytes(*mark.first_chunk()?);
    (encode(revision) == mark).then_some(revision)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::LocalDisk;

    #[test]
    fn a_mark_that_is_not_whole_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = RevisionMark::of(&dir.path().join("eggs.redb"), Arc::new(LocalDisk));
        assert_eq!(mark.read().unwrap(), None);
        for revision in [1, 700, 7] {
            mark.write(revision);
            assert_eq!(mark.read().unwrap(), Some(revision));
        }
        let whole = fs::read(mark.path()).unwrap();
        for len in 0..whole.len() {
            assert_eq!(decode(&whole[..len]), None);
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None);
        }
    }
}
