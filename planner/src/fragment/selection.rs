//! Which shards of a table a scan reads.

use std::collections::BTreeSet;

/// The shards of a table that a scan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// No filter says anything of the shard key.
    All,
    /// Only these, ascending; none for a contradiction.
    Some(BTreeSet<u32>),
}

impl Selection {
    /// The shards that both have.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, only) | (only, Self::All) => only,
            (Self::Some(left), Self::Some(right)) => {
                Self::Some(left.intersection(&right).copied().collect())
            }
        }
    }

    /// The shards that either has.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Some(mut left), Self::Some(right)) => {
                left.extend(right);
                Self::Some(left)
            }
        }
    }

    /// No shard.
    pub fn none() -> Self {
        Self::Some(BTreeSet::new())
    }
}
