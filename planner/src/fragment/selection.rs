use std::collections::BTreeSet;

/// The shards of a table that a scan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShardSelection {
    /// All shards, because no filter restricts the shard key.
    All,
    /// Only these shards. The set is empty if the filters contradict each other.
    Some(BTreeSet<u32>),
}

impl ShardSelection {
    /// Returns the shards that are in both selections.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, only) | (only, Self::All) => only,
            (Self::Some(left), Self::Some(right)) => {
                Self::Some(left.intersection(&right).copied().collect())
            }
        }
    }

    /// Returns the shards that are in at least one of the selections.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Some(mut left), Self::Some(right)) => {
                left.extend(right);
                Self::Some(left)
            }
        }
    }

    /// Returns a selection without shards.
    pub(crate) fn none() -> Self {
        Self::Some(BTreeSet::new())
    }
}
