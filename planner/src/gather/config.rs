use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_gather::GatherLimits;
use volary_gather::connections::ConnectionOptions;
use volary_node::message_limit::MessageLimit;
use volary_node::size::MemorySize;

/// Defines the setting for the number of relays.
mod relay_setting;

pub use relay_setting::RelaySetting;

/// How the gateway reads rows from the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gather {
    /// Maximum time to connect to a worker.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// Maximum time that a worker may send nothing, neither rows nor a keep-alive. After this time
    /// the gateway gives the worker up. Workers send four keep-alives within this time. At least
    /// 1s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub idle_timeout: Duration,
    /// How long the gateway retries a stream that failed before its first row.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub retry_for: Duration,
    /// Target size of the batches that workers send. Larger batches do not fit into the processor's
    /// caches.
    pub batch: MemorySize,
    /// HTTP/2 window of a stream: how much a worker may send ahead. Gathers from many workers use a
    /// smaller window, which depends on the memory of their query.
    pub stream_window: MemorySize,
    /// Maximum size of a message from a worker.
    pub max_message: MemorySize,
    /// A join sends the keys of its smaller side as a list to the scans of its other side, if there
    /// are at most about this many different keys. For a join on several columns, a key is a
    /// combination of their values. With 0, a join never sends a list.
    pub runtime_filter_keys: usize,
    /// Number of workers that merge the rows of other workers for the gateway, if the rows can be
    /// merged. `auto` uses relays if they are estimated to be faster, `off` lets the gateway merge
    /// all rows by itself, and a number is always used. A session sets it with `SET relays`. Relays
    /// connect to other workers at the addresses that these give to the gateway. Set `off` if
    /// workers cannot reach each other.
    pub relays: RelaySetting,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(10),
            retry_for: Duration::from_secs(5),
            batch: MemorySize::Bytes(128 << 10),
            stream_window: MemorySize::Bytes(2 << 20),
            max_message: MemorySize::Bytes(256 << 20),
            runtime_filter_keys: 16_384,
            relays: RelaySetting::Auto,
        }
    }
}

impl Gather {
    /// Returns the options of connections to workers.
    pub fn connections(&self) -> ConnectionOptions {
        ConnectionOptions {
            connect_timeout: self.connect_timeout,
            stream_window_bytes: self.stream_window.bytes(),
            max_message_bytes: self.max_message.bytes(),
        }
    }

    /// Returns the deadlines and sizes of a gather.
    pub fn limits(&self) -> GatherLimits {
        GatherLimits {
            idle_timeout: self.idle_timeout,
            retry_timeout: self.retry_for,
            batch_bytes: self.batch.bytes(),
            stream_window_bytes: self.stream_window.bytes(),
            message_limit: MessageLimit {
                bytes: self.max_message.bytes(),
                setting: "gateway.gather.max_message",
            },
            memory_setting: "query_memory (gateway.query.memory)",
        }
    }
}
