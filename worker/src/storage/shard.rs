use std::path::PathBuf;
use std::sync::Arc;

use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;

use super::segment::Segment;

/// Segments, ordered by write.
pub(super) type Segments = Vec<Arc<Segment>>;

/// What the worker has of a shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// The segments that the manifest names.
    pub(super) segments: Segments,
    /// Files of segments that no manifest names. They were found when the worker started. Either a
    /// crash left them, or they were named by a manifest that is lost.
    pub(super) orphans: Vec<Orphan>,
    /// The reason why no rows may be added to the shard; `None` if there is no such reason.
    pub(super) fault: Option<Fault>,
}

/// The reason why no rows may be added to a shard. A shard with a damaged manifest is not read
/// either.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The manifest cannot be read. The text is that of the error.
    Damaged(String),
    /// There are files of segments, but no manifest.
    NoManifest,
    /// The rows here are not those that the catalog has counted. The text is that of the error.
    RowMismatch(String),
}

/// A file of a segment that no manifest names.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    pub(super) path: PathBuf,
    pub(super) write: WriteId,
}

/// The committed rows of a shard, as the catalog has counted them.
#[derive(Debug, Clone, Copy)]
pub struct CountedRows<'a> {
    /// The number or the tally of the rows.
    pub expected: ExpectedRows,
    /// The writes whose rows were counted.
    pub counted_writes: &'a Snapshot,
}

impl CountedRows<'_> {
    /// Compares the segments with the rows that the catalog has counted. If they differ, returns
    /// how many rows the segments have of the counted writes.
    pub(super) fn mismatched_rows(&self, segments: &[Arc<Segment>]) -> Option<u64> {
        let seen = segments
            .iter()
            .filter(|segment| self.counted_writes.sees(segment.write()));
        let rows: u64 = seen.clone().map(|segment| segment.rows()).sum();
        let is_equal = match self.expected {
            ExpectedRows::Rows(expected) => rows == expected,
            ExpectedRows::Tally(expected) => {
                let writes = seen.map(|segment| (segment.write(), segment.rows()));
                writes.collect::<Tally>() == expected
            }
        };
        (!is_equal).then_some(rows)
    }
}
