//! A start deletes nothing but temporary files. If the store is too old, files that are the only
//! copy of acknowledged rows look like garbage. A file that the store does not name is kept as an
//! orphan, until the gateway says what its shard holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, Result};
use volary_node::durable;

use super::directory::TableDirectory;
use super::record::{SegmentRecord, SettledRows};
use super::segment::{Segment, parse_file};
use super::shard::{Fault, Orphan, Shard};

/// Names of files that earlier releases had beside segments, and that are not needed any more.
const FORMER_FILES: [&str; 3] = ["manifest.json", "manifest.tmp", "dropped"];

/// Adds the tables that have a directory below `root` and no records.
pub(super) fn with_all_directories(
    root: &Path,
    mut records: BTreeMap<TableId, Vec<SegmentRecord>>,
) -> Result<BTreeMap<TableId, Vec<SegmentRecord>>> {
    let ids = numbered_directories::<u64>(root)?;
    for name in entries_of(root)? {
        if !ids.iter().any(|id| name == *id.to_string()) {
            warn_of_foreign_file(&root.join(name));
        }
    }
    for id in ids {
        records.entry(TableId(id)).or_default();
    }
    Ok(records)
}

/// Builds the shards of a table from their records, from the rows that have expired, and from the
/// files in the table's directory.
pub(super) fn read_shards(
    directory: &Arc<TableDirectory>,
    records: Vec<SegmentRecord>,
    expired: BTreeMap<u32, SettledRows>,
) -> Result<BTreeMap<u32, Shard>> {
    let named: BTreeSet<_> = records.iter().map(|record| record.file.clone()).collect();
    let mut shards: BTreeMap<u32, Shard> = BTreeMap::new();
    for record in records {
        let shard = shards.entry(record.shard).or_default();
        shard
            .segments
            .push(Arc::new(Segment::open(directory, record)));
    }
    for shard in shards.values_mut() {
        shard.segments.sort_by_key(|segment| segment.write());
    }
    for file in files_of(directory.path())? {
        if named.contains(&file) {
            continue;
        }
        let path = directory.path().join(&file);
        if let Some((shard, write)) = parse_file(&file) {
            tracing::info!(file = %path.display(), "keeping a segment that the store does not name until the gateway says which rows its shard has");
            let orphans = &mut shards.entry(shard).or_default().orphans;
            orphans.push(Orphan { path, write });
        } else if path
            .file_name()
            .is_some_and(|name| FORMER_FILES.iter().any(|it| name == *it))
        {
            durable::remove_file(directory.disk(), &path)?;
        } else {
            warn_of_foreign_file(&path);
        }
    }
    for (shard, rows) in expired {
        shards.entry(shard).or_default().expired = Some(rows);
    }
    for shard in shards.values_mut() {
        if shard.segments.is_empty() && shard.expired.is_none() {
            shard.fault = Some(Fault::NothingNamed);
        }
    }
    Ok(shards)
}

/// Returns the files in a table's directory, and in its directories of shards, as paths that are
/// relative to it.
fn files_of(directory: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    if !directory.exists() {
        return Ok(files);
    }
    for name in entries_of(directory)? {
        let path = directory.join(&name);
        let Some(name) = name.to_str() else {
            warn_of_foreign_file(&path);
            continue;
        };
        if !path.is_dir() {
            files.push(name.to_owned());
        } else if name.parse::<u32>().is_ok() {
            for file in entries_of(&path)? {
                files.push(format!("{name}/{}", file.to_string_lossy()));
            }
        } else {
            warn_of_foreign_file(&path);
        }
    }
    Ok(files)
}

/// Returns the numbers of the directories whose name is a number. Other entries are left alone.
pub(super) fn numbered_directories<T: FromStr + ToString + Ord>(
    path: &Path,
) -> Result<BTreeSet<T>> {
    let entries = entries_of(path)?.into_iter();
    let numbers = entries.filter_map(|name| {
        let number = name.to_str()?.parse::<T>().ok()?;
        (name == *number.to_string() && path.join(&name).is_dir()).then_some(number)
    });
    Ok(numbers.collect())
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
