use serde::{Deserialize, Serialize};

/// The history of writes that a gateway's catalog belongs to.
///
/// Each start of a gateway is an *incarnation* of the catalog. It goes on numbering writes where
/// the previous incarnation ended. A catalog that is restored from a backup goes on from an older
/// point: its next incarnation gives out the same numbers again, and workers may already have rows
/// with these numbers. Therefore every call to a worker says which incarnation it comes from, and
/// which earlier incarnation this one follows (its ancestor). A worker that does not know the
/// incarnation adopts it only if it knows the ancestor, has no rows of writes after the ancestor's
/// last one, and has not heard of more committed writes than the incarnation began with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lineage {
    /// Number of the incarnation: random, and never 0.
    #[prost(fixed32, tag = "1")]
    pub incarnation: u32,
    /// Number of an earlier incarnation of the same catalog. It is 0 for the time before there were
    /// incarnations.
    #[prost(fixed32, tag = "2")]
    pub ancestor: u32,
    /// The first write that the incarnation after the ancestor gave out. A worker that knows the
    /// ancestor, and no later incarnation, has no rows of this write or of later ones.
    #[prost(uint64, tag = "3")]
    pub from_write: u64,
    /// Number of writes that had been committed when the incarnation after the ancestor began. A
    /// catalog that was restored from a copy of a running gateway begins with fewer than workers
    /// have heard of. `None` for an incarnation that an earlier release began.
    #[prost(uint64, optional, tag = "4")]
    pub base_commits: Option<u64>,
}

impl Lineage {
    /// Returns whether the catalog has all commits that a worker has heard of: whether it is not an
    /// older copy of the catalog that the worker has heard from.
    pub fn has_all_commits(&self, heard_commits: u64) -> bool {
        self.base_commits.is_none_or(|base| heard_commits <= base)
    }
}

/// An incarnation that a worker has adopted. Workers store their incarnations in the data
/// directory, as JSON.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Serialize, Deserialize)]
pub struct Incarnation {
    /// Number of the incarnation.
    #[prost(fixed32, tag = "1")]
    pub id: u32,
    /// First write of the incarnation, or of an earlier one that the worker missed: the
    /// [`Lineage::from_write`] that the worker adopted.
    #[prost(uint64, tag = "2")]
    pub first_write: u64,
}
