//! What a user may take at once.

use serde::{Deserialize, Serialize};

/// The limits of a user, below those of the gateway's settings; `None` is as the settings say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLimits {
    /// Statements that run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queries: Option<u64>,
    /// Memory that each query may hold on the gateway, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_memory: Option<u64>,
}

impl UserLimits {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What becomes of a user's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitChanges {
    /// That of statements that run at a time.
    pub max_queries: LimitChange,
    /// That of a query's memory, in bytes.
    pub query_memory: LimitChange,
}

impl LimitChanges {
    /// Whether all stay as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn apply(self, limits: UserLimits) -> UserLimits {
        UserLimits {
            max_queries: self.max_queries.apply(limits.max_queries),
            query_memory: self.query_memory.apply(limits.query_memory),
        }
    }
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LimitChange {
    /// It stays as it is.
    #[default]
    None,
    /// There is none any more but that of the settings.
    Default,
    /// It becomes this one.
    To(u64),
}

impl LimitChange {
    fn apply(self, limit: Option<u64>) -> Option<u64> {
        match self {
            Self::None => limit,
            Self::Default => None,
            Self::To(limit) => Some(limit),
        }
    }
}
