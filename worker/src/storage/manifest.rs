use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk::Disk;
use volary_node::durable;

use super::checksums::SegmentChecksums;

/// The format of manifests. A worker refuses a newer format. Manifests of format 1 have no checksum
/// of their own, and no checksums of segments.
const FORMAT: u32 = durable::FIRST_CHECKSUM_FORMAT;
pub(super) const FILE: &str = "manifest.json";

/// The manifest of a shard, with its segments.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The table that the manifest belongs to. The table and the shard tell people where the file
    /// belongs, and reveal a file that was copied to another place.
    table_id: TableId,
    shard: u32,
    /// The segments, ordered by write.
    pub(super) segments: Vec<Entry>,
}

/// A segment, as the manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Name of the segment's file, in the directory of the manifest.
    pub(super) file: String,
    pub(super) write_id: WriteId,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Checksums of the file; `None` if the release that wrote it took none.
    #[serde(flatten)]
    pub(super) checksums: Option<SegmentChecksums>,
}

impl Manifest {
    pub(super) fn new(table_id: TableId, shard: u32, segments: Vec<Entry>) -> Self {
        Self {
            format: FORMAT,
            table_id,
            shard,
            segments,
        }
    }

    /// Reads the manifest in a shard's directory. Returns `None` if there is no manifest.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the manifest is damaged, and `INVALID_ARGUMENT` if its format is
    /// newer.
    pub(super) fn read(directory: &Path, table_id: TableId, shard: u32) -> Result<Option<Self>> {
        let path = path(directory);
        let Some(manifest) = durable::read_json::<Self>(&path, FORMAT)? else {
            return Ok(None);
        };
        if (manifest.table_id, manifest.shard) != (table_id, shard) {
            return Err(Error::new(
                ErrorCode::DataLoss,
                format!(
                    "{} is the manifest of shard {} of table {}; restore the right one from a backup",
                    path.display(),
                    manifest.shard,
                    manifest.table_id
                ),
            ));
        }
        if let Some(entry) = manifest
            .segments
            .iter()
            .find(|entry| !is_plain(&entry.file))
        {
            return Err(Error::new(
                ErrorCode::DataLoss,
                format!(
                    "{} names \"{}\", which is not the name of a file in its directory; restore the manifest from a backup",
                    path.display(),
                    entry.file
                ),
            ));
        }
        Ok(Some(manifest))
    }

    /// Replaces the manifest in a shard's directory, durably.
    ///
    /// # Errors
    /// Returns the errors of the file system. The manifest may have been replaced nevertheless: see
    /// [`Self::is_on_disk`].
    pub(super) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        durable::replace_file(disk, &path(directory), &durable::to_json(self)?)
    }

    /// Returns whether the manifest in a shard's directory is this one. If it is, the files that it
    /// names must be kept.
    pub(super) fn is_on_disk(&self, directory: &Path) -> bool {
        match (fs::read(path(directory)), durable::to_json(self)) {
            (Ok(found), Ok(ours)) => found == ours,
            (Err(source), _) if source.kind() == std::io::ErrorKind::NotFound => false,
            // In doubt, the files are kept. Garbage is better than a manifest that names files that
            // do not exist.
            _ => true,
        }
    }
}

/// Returns the path of the manifest in a shard's directory.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

fn is_plain(file: &str) -> bool {
    Path::new(file).file_name().is_some_and(|name| name == file)
}

#[cfg(test)]
mod tests {
    use volary_node::disk::LocalDisk;

    use super::*;

    fn entry(checksums: Option<SegmentChecksums>) -> Entry {
        Entry {
            file: "a.parquet".to_owned(),
            write_id: WriteId(7),
            rows: 3,
            bytes: 4096,
            checksums,
        }
    }

    #[test]
    fn a_manifest_has_its_text() {
        let checksums = SegmentChecksums {
            blake3: "af".to_owned(),
            tail_bytes: 512,
            tail_crc32: 99,
        };
        let manifest = Manifest::new(TableId(5), 2, vec![entry(Some(checksums)), entry(None)]);
        let text = r#"{
  "format": 2,
  "table_id": 5,
  "shard": 2,
  "segments": [
    {
      "file": "a.parquet",
      "write_id": 7,
      "rows": 3,
      "bytes": 4096,
      "blake3": "af",
      "tail_bytes": 512,
      "tail_crc32": 99
    },
    {
      "file": "a.parquet",
      "write_id": 7,
      "rows": 3,
      "bytes": 4096
    }
  ],
  "checksum": "99600ba90e2b7df72524e4aba15969c878b47a7becd57c86afd1aed426f3d56c"
}"#;
        let directory = tempfile::tempdir().unwrap();
        fs::write(path(directory.path()), text).unwrap();
        let read = Manifest::read(directory.path(), TableId(5), 2).unwrap();
        assert_eq!(read, Some(manifest));
        read.unwrap().write(&LocalDisk, directory.path()).unwrap();
        assert_eq!(fs::read_to_string(path(directory.path())).unwrap(), text);
    }

    #[test]
    fn a_manifest_of_the_first_format_is_read() {
        let text = r#"{
  "format": 1,
  "table_id": 5,
  "shard": 2,
  "segments": [
    {
      "file": "a.parquet",
      "write_id": 7,
      "rows": 3,
      "bytes": 4096
    }
  ]
}"#;
        let directory = tempfile::tempdir().unwrap();
        fs::write(path(directory.path()), text).unwrap();
        let read = Manifest::read(directory.path(), TableId(5), 2).unwrap();
        assert_eq!(read.unwrap().segments, [entry(None)]);
    }
}
