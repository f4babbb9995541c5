//! A start deletes nothing but temporary files. If a manifest is missing, damaged or too old, files
//! that are the only copy of acknowledged rows look like garbage. A file that no manifest names is
//! kept as an orphan, until the gateway says what the shard holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk::SharedDisk;
use volary_node::durable;

use super::directory::{DROPPED_FILE, TableDirectory};
use super::manifest::{self, Manifest};
use super::segment::{Segment, parse_write_id};
use super::shard::{Fault, Orphan, Shard};
use super::table::Table;
use super::tombstones::Tombstones;

/// Name of the file that `durable::replace_file` writes first, and that then takes the place of the
/// manifest.
const TEMPORARY_FILE: &str = "manifest.tmp";

/// Reads the tables below `root`.
pub(super) fn read_tables(
    root: &Path,
    disk: &SharedDisk,
    tombstones: &Arc<Tombstones>,
) -> Result<BTreeMap<TableId, Arc<Table>>> {
    let mut tables = BTreeMap::new();
    for id in numbered_directories(root, &[])? {
        let id = TableId(id);
        let directory = Arc::new(TableDirectory::new(root, id, Arc::clone(disk)));
        let mut shards = BTreeMap::new();
        for shard in numbered_directories(directory.path(), &[DROPPED_FILE])? {
            shards.insert(shard, read_shard(&directory, shard)?);
        }
        let table = Table::new(directory, shards, Arc::clone(tombstones));
        tables.insert(id, Arc::new(table));
    }
    Ok(tables)
}

fn read_shard(directory: &Arc<TableDirectory>, shard: u32) -> Result<Shard> {
    let path = directory.shard_path(shard);
    let (entries, mut fault) = match Manifest::read(&path, directory.table(), shard) {
        Ok(Some(manifest)) => (manifest.segments, None),
        Ok(None) => (Vec::new(), Some(Fault::NoManifest)),
        Err(error) if error.code() == ErrorCode::DataLoss => {
            tracing::error!(%error, "a manifest is damaged: queries that need its shard will fail");
            let damaged = Fault::Damaged(error.message().to_owned());
            (Vec::new(), Some(damaged))
        }
        // Either a newer release wrote the manifest, or the disk fails. The worker must not start
        // without the manifest.
        Err(error) => return Err(error),
    };
    let named: BTreeSet<OsString> = entries
        .iter()
        .map(|entry| entry.file.clone().into())
        .collect();
    let mut orphans = Vec::new();
    for name in entries_of(&path)? {
        if named.contains(&name) || name == manifest::FILE {
            continue;
        }
        let file = path.join(&name);
        if name == TEMPORARY_FILE {
            durable::remove_file(directory.disk(), &file)?;
        } else if let Some(write) = name.to_str().and_then(parse_write_id) {
            tracing::info!(file = %file.display(), "keeping a segment that no manifest names until the gateway says which rows its shard has");
            orphans.push(Orphan { path: file, write });
        } else {
            warn_of_foreign_file(&file);
        }
    }
    if orphans.is_empty() && matches!(fault, Some(Fault::NoManifest)) {
        fault = None; // The directory is empty: a write began and wrote nothing.
    }
    let segments = entries
        .into_iter()
        .map(|entry| Arc::new(Segment::open(directory, shard, entry)))
        .collect();
    Ok(Shard {
        segments,
        orphans,
        fault,
    })
}

/// Returns the numbers of the directories whose name is a number. Other entries stay. They are
/// logged as foreign, except those in `expected_names`.
fn numbered_directories<T: FromStr + ToString + Ord>(
    path: &Path,
    expected_names: &[&str],
) -> Result<BTreeSet<T>> {
    let mut numbers = BTreeSet::new();
    for name in entries_of(path)? {
        let number = name.to_str().and_then(|name| name.parse::<T>().ok());
        match number.filter(|number| name == *number.to_string() && path.join(&name).is_dir()) {
            Some(number) => {
                numbers.insert(number);
            }
            None if expected_names.iter().any(|other| name == *other) => {}
            None => warn_of_foreign_file(&path.join(&name)),
        }
    }
    Ok(numbers)
}

fn warn_of_foreign_file(path: &Path) {
    tracing::warn!(
        path = %path.display(),
        "ignoring a file or directory that is not Volary's; the data directory belongs to the worker alone"
    );
}

fn entries_of(path: &Path) -> Result<Vec<OsString>> {
    let failed = |source| Error::io(format!("cannot list {}", path.display()), source);
    let entries = fs::read_dir(path).map_err(failed)?;
    entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<std::io::Result<_>>()
        .map_err(failed)
}
