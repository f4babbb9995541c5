/// How long the stages of a fragment took on its worker, in microseconds. In the answer of a relay,
/// the times of its members are added to its own.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StageTimes {
    /// Time from the ticket's arrival until the work began: the fragment waited for a place and for
    /// a thread.
    #[prost(uint64, tag = "1")]
    pub queued_us: u64,
    /// Time in which the fragment was decoded, bound to segments and optimised.
    #[prost(uint64, tag = "2")]
    pub bind_us: u64,
    /// Time in which keys were looked up in the worker's index, and their rows taken from there.
    #[prost(uint64, tag = "3")]
    pub index_us: u64,
    /// Time in which scans read and decoded segments, or waited for storage. The times of scans
    /// that run in parallel are added.
    #[prost(uint64, tag = "4")]
    pub read_us: u64,
    /// Time in which the other operators computed. The times of operators that run in parallel are
    /// added.
    #[prost(uint64, tag = "5")]
    pub compute_us: u64,
    /// Time in which rows were joined to batches, converted and encoded.
    #[prost(uint64, tag = "6")]
    pub encode_us: u64,
    /// Time in which the reader of a stream waited for it although the worker had nothing to do for
    /// the stream. Only the reader knows it, so a worker sets it for the members of a relay alone.
    #[prost(uint64, tag = "7")]
    pub wire_us: u64,
}

impl StageTimes {
    /// Adds other times to these. They come from other nodes, and may have any value.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            queued_us: self.queued_us.saturating_add(other.queued_us),
            bind_us: self.bind_us.saturating_add(other.bind_us),
            index_us: self.index_us.saturating_add(other.index_us),
            read_us: self.read_us.saturating_add(other.read_us),
            compute_us: self.compute_us.saturating_add(other.compute_us),
            encode_us: self.encode_us.saturating_add(other.encode_us),
            wire_us: self.wire_us.saturating_add(other.wire_us),
        }
    }
}
