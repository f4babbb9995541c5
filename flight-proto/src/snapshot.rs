use crate::ids::WriteId;

/// The writes that a query sees: all writes up to `high`, except the `excluded` ones. A query has
/// one snapshot for all workers.
///
/// Two kinds of writes are excluded: writes that were still open when the snapshot was taken, and
/// failed writes whose rows some worker may not have deleted yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshot {
    /// The highest write that may be seen.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// Writes up to `high` that must not be seen, in ascending order.
    #[prost(uint64, repeated, tag = "2")]
    pub excluded: Vec<u64>,
}

impl Snapshot {
    /// Returns whether the query sees rows of this write.
    pub fn sees(&self, write: WriteId) -> bool {
        write.0 <= self.high && self.excluded.binary_search(&write.0).is_err()
    }
}
