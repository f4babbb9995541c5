//! Earlier releases had a directory for each shard, with a manifest that named the shard's
//! segments. The first start of this release copies the manifests into the store.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::durable;

use super::checksums::SegmentChecksums;
use super::directory::TABLES;
use super::record::SegmentRecord;
use super::segment::parse_file;
use super::startup::numbered_directories;

/// The last format of manifests. Manifests of format 1 have no checksum of their own, and no
/// checksums of segments.
const LAST_FORMAT: u32 = durable::FIRST_CHECKSUM_FORMAT;
const FILE: &str = "manifest.json";

/// The manifest of a shard.
#[derive(Debug, Deserialize)]
struct Manifest {
    /// The table that the manifest belongs to. The table and the shard reveal a file that was
    /// copied to another place.
    table_id: TableId,
    shard: u32,
    segments: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    /// Name of the segment's file, in the directory of the manifest.
    file: String,
    write_id: WriteId,
    rows: u64,
    bytes: u64,
    #[serde(flatten)]
    checksums: Option<Checksums>,
}

#[derive(Debug, Deserialize)]
struct Checksums {
    blake3: String,
    tail_bytes: u64,
    tail_crc32: u32,
}

/// Reads the records of all segments from the manifests in a data directory. A shard without a
/// manifest has no records.
///
/// # Errors
/// Returns `DATA_LOSS`, with the manifest, if one is damaged or belongs to another shard, and the
/// errors of the file system.
pub(super) fn read_all(data_dir: &Path) -> Result<Vec<(TableId, SegmentRecord)>> {
    let mut records = Vec::new();
    for (table, shard, path) in paths(data_dir)? {
        let Some(manifest) = durable::read_json::<Manifest>(&path, LAST_FORMAT)? else {
            continue;
        };
        let damaged = |what: String| {
            let advice = "restore the right one from a backup";
            Error::new(
                ErrorCode::DataLoss,
                format!("{} {what}; {advice}", path.display()),
            )
        };
        if (manifest.table_id, manifest.shard) != (table, shard) {
            return Err(damaged(format!(
                "is the manifest of shard {} of table {}",
                manifest.shard, manifest.table_id
            )));
        }
        for entry in manifest.segments {
            let file = format!("{shard}/{}", entry.file);
            if parse_file(&file) != Some((shard, entry.write_id)) {
                return Err(damaged(format!(
                    "names \"{}\", which is not the file of a segment of write {}",
                    entry.file, entry.write_id
                )));
            }
            let checksums = entry.checksums.map(|known| -> Result<SegmentChecksums> {
                let blake3 = blake3::Hash::from_hex(&known.blake3).map_err(|error| {
                    damaged(format!("has an invalid hash of {}: {error}", entry.file))
                })?;
                Ok(SegmentChecksums {
                    blake3,
                    tail_bytes: known.tail_bytes,
                    tail_crc32: known.tail_crc32,
                })
            });
            let record = SegmentRecord {
                file,
                shard,
                write: entry.write_id,
                rows: entry.rows,
                bytes: entry.bytes,
                checksums: checksums.transpose()?,
                writes: Vec::new(),
                hidden: WriteSet::default(),
                settled: None,
            };
            records.push((table, record));
        }
    }
    if !records.is_empty() {
        tracing::info!(
            segments = records.len(),
            "the manifests were copied into the store"
        );
    }
    Ok(records)
}

/// Returns the paths that manifests of a data directory can have, with their tables and shards.
fn paths(data_dir: &Path) -> Result<Vec<(TableId, u32, PathBuf)>> {
    let root = data_dir.join(TABLES);
    let mut paths = Vec::new();
    for table in numbered_directories::<u64>(&root)? {
        let directory = root.join(table.to_string());
        for shard in numbered_directories::<u32>(&directory)? {
            let path = directory.join(shard.to_string()).join(FILE);
            paths.push((TableId(table), shard, path));
        }
    }
    Ok(paths)
}
