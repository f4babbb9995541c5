//! What a power loss would leave.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes that become dirty, durable and lost together.
const PAGE: usize = 4096;

/// Files and directories by the number of their inode, as of their last sync.
#[derive(Debug, Default)]
pub(crate) struct Image {
    files: HashMap<u64, Content>,
    directories: HashMap<u64, BTreeMap<OsString, Child>>,
    /// Keeps the inodes of files that were removed, so that their numbers are not given out again.
    held: HashMap<u64, File>,
}

#[derive(Debug, Default)]
struct Content {
    durable: Vec<u8>,
    /// Pages that count as clean since a sync of them failed, with what they hold.
    lost: BTreeMap<usize, Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct Child {
    inode: u64,
    is_directory: bool,
}

impl Image {
    /// Takes a directory as durable, with all below it.
    pub(crate) fn take_all(&mut self, directory: &Path) -> io::Result<()> {
        self.sync_directory(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.take_all(&path)?;
            } else {
                self.sync_file(&File::open(&path)?)?;
            }
        }
        Ok(())
    }

    pub(crate) fn sync_file(&mut self, file: &File) -> io::Result<()> {
        let (inode, now) = self.read(file)?;
        let content = self.files.entry(inode).or_default();
        content.durable.resize(now.len(), 0);
        for (number, page) in now.chunks(PAGE).enumerate() {
            if content.lost.get(&number).is_some_and(|lost| lost == page) {
                continue;
            }
            content.lost.remove(&number);
            let start = number * PAGE;
            content.durable[start..start + page.len()].copy_from_slice(page);
        }
        Ok(())
    }

    /// A sync of the file has failed: what was dirty counts as clean.
    pub(crate) fn fail_file(&mut self, file: &File) -> io::Result<()> {
        let (inode, now) = self.read(file)?;
        let content = self.files.entry(inode).or_default();
        for (number, page) in now.chunks(PAGE).enumerate() {
            let start = number * PAGE;
            if content.durable.get(start..start + page.len()) != Some(page) {
                content.lost.insert(number, page.to_vec());
            }
        }
        Ok(())
    }

    pub(crate) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let mut children = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let child = Child {
                inode: metadata.ino(),
                is_directory: metadata.is_dir(),
            };
            self.hold(child.inode, &entry.path())?;
            children.insert(entry.file_name(), child);
        }
        let inode = path.metadata()?.ino();
        self.hold(inode, path)?;
        self.directories.insert(inode, children);
        Ok(())
    }

    /// Writes a directory as it was last synced.
    pub(crate) fn restore(&self, root: &Path, into: &Path) -> io::Result<()> {
        self.restore_directory(root.metadata()?.ino(), into)
    }

    fn restore_directory(&self, inode: u64, into: &Path) -> io::Result<()> {
        for (name, child) in self.directories.get(&inode).into_iter().flatten() {
            let path = into.join(name);
            if child.is_directory {
                fs::create_dir(&path)?;
                self.restore_directory(child.inode, &path)?;
            } else {
                let content = self.files.get(&child.inode);
                // A file of which only the name is durable is empty.
                fs::write(&path, content.map_or(&[][..], |content| &content.durable))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, file: &File) -> io::Result<(u64, Vec<u8>)> {
        let metadata = file.metadata()?;
        let inode = metadata.ino();
        // A file that is open for writing alone is opened again for reading.
        let readable = File::open(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(file)
        ))?;
        let length = usize::try_from(metadata.len()).map_err(io::Error::other)?;
        let mut content = vec![0; length];
        readable.read_exact_at(&mut content, 0)?;
        self.held.entry(inode).or_insert(readable);
        Ok((inode, content))
    }

    fn hold(&mut self, inode: u64, path: &Path) -> io::Result<()> {
        if let Entry::Vacant(unheld) = self.held.entry(inode) {
            unheld.insert(File::open(path)?);
        }
        Ok(())
    }
}
