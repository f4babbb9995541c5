use serde::{Deserialize, Serialize};

/// Which history of writes a gateway's catalog belongs to.
///
/// Each start of a gateway is an *incarnation* of the catalog, and numbers its writes on from where the one before it
/// ended. A catalog that is restored from a backup goes on from an older point: its next incarnation gives out numbers
/// that workers may have rows of already. So every call of a worker says which incarnation it comes from, and what the
/// incarnation follows on from. A worker that has not heard of the incarnation adopts it only if none of its own rows is
/// of a write that came after the ancestor ended.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lineage {
    /// The incarnation: a random number, never 0.
    #[prost(fixed32, tag = "1")]
    pub incarnation: u32,
    /// An earlier incarnation of the same catalog; 0 for the time before there were incarnations.
    #[prost(fixed32, tag = "2")]
    pub ancestor: u32,
    /// The first write that the incarnation after the ancestor gave out. A worker that knows the ancestor, and no later
    /// incarnation, has no rows of this write or of later ones.
    #[prost(uint64, tag = "3")]
    pub from_write: u64,
}

/// An incarnation that a worker has adopted. Workers keep it in their data directory, as JSON.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Serialize, Deserialize)]
pub struct Incarnation {
    /// Its number.
    #[prost(fixed32, tag = "1")]
    pub id: u32,
    /// Its first write.
    #[prost(uint64, tag = "2")]
    pub first_write: u64,
}
