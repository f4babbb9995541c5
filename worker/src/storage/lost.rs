//! The paths of lost rows are relative to the data directory:
//!
//! ```text
//! lost/<incarnation>/tables/<table id>/<shard>/manifest.json              names the segments
//! lost/<incarnation>/tables/<table id>/<shard>/<write id>-<uuid>.parquet
//! ```
//!
//! No query reads the directory `lost`, and the worker never deletes it. Any Parquet tool can read
//! the segments in it, and an operator removes it.

use std::fs;
use std::path::{Path, PathBuf};

use volary_flight_proto::{Error, Result};
use volary_node::durable;

use super::directory::{TABLES, TableDirectory};
use super::manifest::Manifest;
use super::shard::{Orphan, Segments};

/// The directory of the rows that one incarnation of the catalog does not have.
#[derive(Debug)]
pub(super) struct LostDirectory {
    path: PathBuf,
}

impl LostDirectory {
    /// Builds the path of the directory. `data_dir` is the worker's data directory.
    pub(super) fn new(data_dir: &Path, incarnation: u32) -> Self {
        Self {
            path: data_dir.join("lost").join(format!("{incarnation:08x}")),
        }
    }

    /// Creates durable hard links to files of a shard in this directory. The caller removes the
    /// original names.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub(super) fn link_files(
        &self,
        from: &TableDirectory,
        shard: u32,
        segments: &Segments,
        orphans: &[Orphan],
    ) -> Result<()> {
        let named = segments.iter().map(|segment| segment.path());
        let files: Vec<_> = named
            .chain(orphans.iter().map(|orphan| orphan.path.as_path()))
            .collect();
        if files.is_empty() {
            return Ok(());
        }
        let table = from.table();
        let directory = self
            .path
            .join(TABLES)
            .join(table.0.to_string())
            .join(shard.to_string());
        durable::create_directory(from.disk(), &directory)?;
        for file in files {
            let name = file.file_name().unwrap_or_default();
            let link = directory.join(name);
            match fs::hard_link(file, &link) {
                // The file was set aside before a crash, or is gone already.
                Err(source)
                    if matches!(
                        source.kind(),
                        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotFound
                    ) => {}
                linked => linked.map_err(|source| {
                    Error::io(format!("cannot set {} aside", file.display()), source)
                })?,
            }
        }
        // Segments that were set aside before a crash stay in the manifest.
        let before = Manifest::read(&directory, table, shard)?;
        let mut entries = before.map(|before| before.segments).unwrap_or_default();
        for segment in segments {
            let entry = segment.entry();
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        Manifest::new(table, shard, entries).write(from.disk(), &directory)
    }
}
