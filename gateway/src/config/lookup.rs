use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, Result};
use volary_node::size::MemorySize;

/// Limits for streams of lookups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Lookup {
    /// Maximum number of open streams. A further stream is refused with RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// Maximum number of keys in a batch. A larger batch is refused with INVALID_ARGUMENT, and the
    /// stream goes on. At most 2147483647.
    pub max_keys: usize,
    /// Size of the keys that the gateway reads from a stream before it has answered them.
    pub window: MemorySize,
    /// A stream ends with DEADLINE_EXCEEDED if the client sends no batch, or reads no answer, for
    /// this time. At least 1s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub idle_timeout: Duration,
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            max_streams: 1_000,
            max_keys: 1_000_000,
            window: MemorySize::Bytes(16 << 20),
            idle_timeout: Duration::from_secs(10 * 60),
        }
    }
}

/// Shortest time after which an idle stream is ended.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Clients are sent the positions of keys as numbers of this type.
const LARGEST_POSITION: usize = i32::MAX as usize;

impl Lookup {
    pub(super) fn validate(&self) -> Result<()> {
        for (key, value) in [
            ("gateway.lookup.max_streams", self.max_streams),
            ("gateway.lookup.max_keys", self.max_keys),
            ("gateway.lookup.window", self.window.bytes()),
        ] {
            if value == 0 {
                return Err(Error::invalid(format!("{key} must be at least 1")));
            }
        }
        if self.max_keys > LARGEST_POSITION {
            return Err(Error::invalid(format!(
                "gateway.lookup.max_keys must be at most {LARGEST_POSITION}"
            )));
        }
        if self.idle_timeout < MIN_IDLE_TIMEOUT {
            return Err(Error::invalid(format!(
                "gateway.lookup.idle_timeout must be at least {MIN_IDLE_TIMEOUT:?}"
            )));
        }
        Ok(())
    }
}
