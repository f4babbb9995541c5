use std::path::PathBuf;
use std::sync::Arc;

use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;

use super::logged::LoggedRows;
use super::record::SettledRows;
use super::segment::Segment;

/// Segments, ordered by write.
pub(super) type Segments = Vec<Arc<Segment>>;

/// What the worker has of a shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// The segments that the store names.
    pub(super) segments: Segments,
    /// The rows that are in the log and in no segment yet.
    pub(super) logged: LoggedRows,
    /// The rows that have expired and were deleted. The catalog still counts them, and every query
    /// sees their writes.
    pub(super) expired: Option<SettledRows>,
    /// Files of segments that the store does not name. They were found when the worker started.
    /// Either a crash left them, or they were named by a newer state of the store that is lost.
    pub(super) orphans: Vec<Orphan>,
    /// The reason why no rows may be added to the shard; `None` if there is no such reason.
    pub(super) fault: Option<Fault>,
}

impl Shard {
    /// Returns whether the writes of some rows are not listed any more.
    pub(super) fn has_settled_rows(&self) -> bool {
        let mut segments = self.segments.iter();
        self.expired.is_some() || segments.any(|segment| segment.by_write().settled().is_some())
    }
}

/// The reason why no rows may be added to a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// There are files of segments, but the store names none of them.
    NothingNamed,
    /// The rows here are not those that the catalog has counted. The text is that of the error.
    RowMismatch(String),
}

/// A file of a segment that the store does not name.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    pub(super) path: PathBuf,
    pub(super) write: WriteId,
}

/// The committed rows of a shard, as the catalog has counted them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedRows<'a> {
    /// The number or the tally of the rows.
    pub expected: ExpectedRows,
    /// The writes whose rows were counted.
    pub counted_writes: &'a Snapshot,
}

impl CountedRows<'_> {
    /// Compares a shard with the rows that the catalog has counted. If they differ, returns how
    /// many rows the shard has of the counted writes.
    pub(super) fn mismatched_rows(&self, shard: Option<&Shard>) -> Option<u64> {
        let mut rows = 0;
        let mut tally = Tally::default();
        if let Some(shard) = shard {
            for segment in &shard.segments {
                let (segment_rows, segment_tally) = segment.by_write().counted(self.counted_writes);
                rows += segment_rows;
                tally.add_all(segment_tally);
            }
            if let Some(expired) = shard.expired {
                rows += expired.rows;
                tally.add_all(expired.tally);
            }
            let (logged_rows, logged_tally) = shard.logged.counted(self.counted_writes);
            rows += logged_rows;
            tally.add_all(logged_tally);
        }
        let is_equal = match self.expected {
            ExpectedRows::Rows(expected) => rows == expected,
            ExpectedRows::Tally(expected) => tally == expected,
        };
        (!is_equal).then_some(rows)
    }
}
