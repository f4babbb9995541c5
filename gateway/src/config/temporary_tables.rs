use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_catalog::TemporaryLimits;
use volary_flight_proto::{Error, Result};
use volary_node::size::MemorySize;

/// Shortest time after which an unused session loses its temporary tables.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits for temporary tables. Every user may create them. They end with their session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TemporaryTables {
    /// Maximum number of temporary tables and views of all sessions. One user may have a quarter of
    /// them; as long as there are no users, each session counts as a user. Any further one is
    /// refused with RESOURCE_EXHAUSTED. With 0, nobody may create temporary tables.
    pub max_tables: usize,
    /// Maximum size on the workers' disks of the rows of all temporary tables. One user may have a
    /// quarter of it. A write that would exceed it is refused with RESOURCE_EXHAUSTED when it
    /// commits.
    pub max_size: MemorySize,
    /// Temporary tables are dropped if their session was not used for this time. Clients that lose
    /// their connection do not close their sessions. At least 1s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub idle_timeout: Duration,
}

impl Default for TemporaryTables {
    fn default() -> Self {
        Self {
            max_tables: 1_000,
            max_size: MemorySize::Bytes(100 << 30),
            idle_timeout: Duration::from_secs(8 * 60 * 60),
        }
    }
}

impl TemporaryTables {
    /// Returns the limits as the catalog enforces them.
    pub(crate) fn limits(&self) -> TemporaryLimits {
        TemporaryLimits {
            tables: self.max_tables,
            bytes: self.max_size.bytes() as u64,
        }
    }

    /// Checks what the types of the settings do not ensure.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the key and the values that it takes.
    pub(super) fn validate(&self) -> Result<()> {
        if self.idle_timeout < MIN_IDLE_TIMEOUT {
            return Err(Error::invalid(format!(
                "gateway.temporary_tables.idle_timeout must be at least {MIN_IDLE_TIMEOUT:?}"
            )));
        }
        Ok(())
    }
}
