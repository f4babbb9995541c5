//! One shard of a table, as the worker finds and keeps it.

use std::path::PathBuf;
use std::sync::Arc;

use volary_flight_proto::fragment::Expected;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;

use super::segment::Segment;

/// Segments by write.
pub(super) type Segments = Vec<Arc<Segment>>;

/// What the worker has of a shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// What the manifest names.
    pub(super) segments: Segments,
    /// Files of segments that no manifest names. They were found when the worker started: what a crash left, or what a
    /// manifest named that is lost.
    pub(super) orphans: Vec<Orphan>,
    /// Why nothing of the shard can be used.
    pub(super) fault: Option<Fault>,
}

/// Why nothing of a shard can be used.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The manifest cannot be read: the error's text.
    Damaged(String),
    /// There are files of segments and no manifest.
    NoManifest,
    /// What is here was found to be other rows than those that the catalog has counted.
    OtherRows(String),
}

/// A file of a segment that no manifest names.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    pub(super) path: PathBuf,
    pub(super) write: WriteId,
}

/// The committed rows of a shard, as the catalog has counted them.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// What it has counted.
    pub expected: Expected,
    /// Of these writes.
    pub by: &'a Snapshot,
}

impl Counted<'_> {
    /// The rows among these segments that the catalog counts, if they are not those that it has counted.
    pub(super) fn differs(&self, segments: &[Arc<Segment>]) -> Option<u64> {
        let seen = segments
            .iter()
            .filter(|segment| self.by.sees(segment.write()));
        let rows: u64 = seen.clone().map(|segment| segment.rows()).sum();
        let is_equal = match self.expected {
            Expected::Rows(expected) => rows == expected,
            Expected::Tally(expected) => {
                let writes = seen.map(|segment| (segment.write(), segment.rows()));
                writes.collect::<Tally>() == expected
            }
        };
        (!is_equal).then_some(rows)
    }
}
