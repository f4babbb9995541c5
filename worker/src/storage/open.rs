//! What a worker finds when it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, Result};
use volary_node::durable;

use super::departed::Departed;
use super::directory::{DROPPED_FILE, TableDirectory};
use super::manifest::Manifest;
use super::segment::Segment;
use super::table::{Segments, Table};

/// Reads the tables below `root` and removes what no manifest names.
pub(super) fn read_tables(
    root: &Path,
    departed: &Arc<Departed>,
) -> Result<BTreeMap<TableId, Arc<Table>>> {
    let mut tables = BTreeMap::new();
    for id in numbered_directories(root)? {
        let id = TableId(id);
        let directory = TableDirectory::new(root, id);
        if directory.path().join(DROPPED_FILE).exists() {
            departed.drop_table(id);
            let path = directory.path();
            fs::remove_dir_all(path)
                .map_err(|source| Error::io(format!("cannot delete {}", path.display()), source))?;
            continue;
        }
        let directory = Arc::new(directory);
        let mut shards = BTreeMap::new();
        for shard in numbered_directories(directory.path())? {
            let segments = read_shard(&directory, shard)?;
            if !segments.is_empty() {
                shards.insert(shard, segments);
            }
        }
        let table = Table::with_directory(directory, shards, Arc::clone(departed));
        tables.insert(id, Arc::new(table));
    }
    Ok(tables)
}

fn read_shard(directory: &Arc<TableDirectory>, shard: u32) -> Result<Segments> {
    let path = directory.shard_path(shard);
    let manifest = Manifest::read(&path, directory.table(), shard)?;
    let entries = manifest
        .map(|manifest| manifest.segments)
        .unwrap_or_default();
    let named: BTreeSet<OsString> = entries
        .iter()
        .map(|entry| entry.file.clone().into())
        .collect();
    let manifest_file = super::manifest::path(&path);
    let garbage: Vec<_> = entries_of(&path)?
        .into_iter()
        .filter(|entry| !named.contains(entry))
        .map(|entry| path.join(entry))
        .filter(|file| *file != manifest_file)
        .collect();
    if !garbage.is_empty() {
        // The manifest may have been replaced just before a crash: an older one must not come back when the files are gone.
        durable::sync_directory(&path)?;
    }
    for file in garbage {
        tracing::info!(file = %file.display(), "removing a file that no manifest names");
        fs::remove_file(&file)
            .map_err(|source| Error::io(format!("cannot delete {}", file.display()), source))?;
    }
    Ok(entries
        .into_iter()
        .map(|entry| Arc::new(Segment::open(directory, shard, entry)))
        .collect())
}

/// The directories whose name is a number. Others are not ours, and stay.
fn numbered_directories<T: FromStr + ToString + Ord>(path: &Path) -> Result<BTreeSet<T>> {
    let mut numbers = BTreeSet::new();
    for name in entries_of(path)? {
        let number = name.to_str().and_then(|name| name.parse::<T>().ok());
        match number.filter(|number| name == *number.to_string() && path.join(&name).is_dir()) {
            Some(number) => {
                numbers.insert(number);
            }
            None => tracing::warn!(
                path = %path.join(&name).display(),
                "this is nothing of Volary's and is left alone; the directory belongs to the worker"
            ),
        }
    }
    Ok(numbers)
}

fn entries_of(path: &Path) -> Result<Vec<OsString>> {
    let failed = |source| Error::io(format!("cannot list {}", path.display()), source);
    let entries = fs::read_dir(path).map_err(failed)?;
    entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<std::io::Result<_>>()
        .map_err(failed)
}
