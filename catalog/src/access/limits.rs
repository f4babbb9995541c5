use serde::{Deserialize, Serialize};

/// The limits of a user. They can only lower the limits of the gateway's settings. `None` means
/// that only the setting applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLimits {
    /// Maximum number of statements that run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queries: Option<u64>,
    /// Maximum memory that each query may hold on the gateway, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_memory: Option<u64>,
}

impl UserLimits {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The changes that a statement makes to a user's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitChanges {
    /// The change to the maximum number of statements that run at the same time.
    pub max_queries: LimitChange,
    /// The change to the maximum memory of a query, in bytes.
    pub query_memory: LimitChange,
}

impl LimitChanges {
    /// Returns whether all limits stay unchanged.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn apply(self, limits: UserLimits) -> UserLimits {
        UserLimits {
            max_queries: self.max_queries.apply(limits.max_queries),
            query_memory: self.query_memory.apply(limits.query_memory),
        }
    }
}

/// The change to one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitChange {
    /// The limit stays unchanged.
    #[default]
    Keep,
    /// The user's own limit is removed, so that only the gateway's setting applies.
    Reset,
    /// The limit is set to this value.
    Set(u64),
}

impl LimitChange {
    fn apply(self, limit: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => limit,
            Self::Reset => None,
            Self::Set(limit) => Some(limit),
        }
    }
}
