use crate::ids::WriteId;

/// Which writes a query sees: all up to `high`, but not the `excluded` ones. One query has one snapshot for all workers.
///
/// Excluded are writes that were still open when the snapshot was taken, and failed ones whose rows some worker may
/// not have deleted yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshot {
    /// The highest write that may be seen.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// Writes up to `high` that must not be seen, ascending.
    #[prost(uint64, repeated, tag = "2")]
    pub excluded: Vec<u64>,
}

impl Snapshot {
    /// Whether rows of this write are seen.
    pub fn sees(&self, write: WriteId) -> bool {
        write.0 <= self.high && self.excluded.binary_search(&write.0).is_err()
    }
}
