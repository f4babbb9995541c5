use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Size of a page, in bytes. The bytes of a page become dirty, durable and lost together.
pub(crate) const PAGE: usize = 4096;

/// The files and directories by inode number, as of their last sync.
#[derive(Debug, Default)]
pub(crate) struct Image {
    files: HashMap<u64, FileContent>,
    directories: HashMap<u64, BTreeMap<OsString, DirectoryEntry>>,
    /// The pages that were allocated, or written at a position of a file, by inode.
    written: HashMap<u64, BTreeSet<u64>>,
    /// Open files that keep the inodes of removed files, so that inode numbers are not reused.
    open_files: HashMap<u64, File>,
}

#[derive(Debug, Default)]
struct FileContent {
    durable: Vec<u8>,
    /// The content of pages that count as clean although a sync of them failed.
    lost: BTreeMap<usize, Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct DirectoryEntry {
    inode: u64,
    is_directory: bool,
}

impl Image {
    /// Records a directory and everything below it as durable.
    pub(crate) fn record_all(&mut self, directory: &Path) -> io::Result<()> {
        self.sync_directory(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.record_all(&path)?;
            } else {
                let file = File::open(&path)?;
                self.sync_file(&file)?;
                let pages = self.new_pages(&file, 0, file.metadata()?.len())?;
                self.note_pages(&file, pages)?;
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

    /// Returns the pages that take space when bytes are written at a position of a file: those that
    /// have no space yet.
    pub(crate) fn new_pages(
        &mut self,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> io::Result<Vec<u64>> {
        let inode = file.metadata()?.ino();
        let pages = self.written.entry(inode).or_default();
        let end = offset + bytes;
        let touched = offset / PAGE as u64..end.div_ceil(PAGE as u64);
        Ok(touched.filter(|page| !pages.contains(page)).collect())
    }

    /// Notes that pages of a file have space.
    pub(crate) fn note_pages(&mut self, file: &File, pages: Vec<u64>) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        self.written.entry(inode).or_default().extend(pages);
        Ok(())
    }

    /// Forgets which pages of a file have space, because the file was removed or emptied. Returns
    /// their number, or `None` if none was noted.
    pub(crate) fn forget_pages(&mut self, file: &Metadata) -> Option<u64> {
        let pages = self.written.remove(&file.ino())?.len() as u64;
        (pages > 0).then_some(pages)
    }

    /// Records that a sync of the file has failed. Its dirty pages then count as clean.
    pub(crate) fn record_failed_sync(&mut self, file: &File) -> io::Result<()> {
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
            let child = DirectoryEntry {
                inode: metadata.ino(),
                is_directory: metadata.is_dir(),
            };
            self.keep_open(child.inode, &entry.path())?;
            children.insert(entry.file_name(), child);
        }
        let inode = path.metadata()?.ino();
        self.keep_open(inode, path)?;
        self.directories.insert(inode, children);
        Ok(())
    }

    /// Writes a directory as it was at its last sync.
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
                // If only the name of a file is durable, the file is empty.
                fs::write(&path, content.map_or(&[][..], |content| &content.durable))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, file: &File) -> io::Result<(u64, Vec<u8>)> {
        let metadata = file.metadata()?;
        let inode = metadata.ino();
        // A file that is open only for writing is opened again for reading.
        let readable = File::open(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(file)
        ))?;
        let length = usize::try_from(metadata.len()).map_err(io::Error::other)?;
        let mut content = vec![0; length];
        readable.read_exact_at(&mut content, 0)?;
        self.open_files.entry(inode).or_insert(readable);
        Ok((inode, content))
    }

    fn keep_open(&mut self, inode: u64, path: &Path) -> io::Result<()> {
        if let Entry::Vacant(unheld) = self.open_files.entry(inode) {
            unheld.insert(File::open(path)?);
        }
        Ok(())
    }
}
