//! Settings of gathers: the section `gateway.gather`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_gather::Limits;
use volary_gather::connections::ConnectionOptions;
use volary_node::message_limit::MessageLimit;
use volary_node::size::MemorySize;

mod relays;

pub use relays::Relays;

/// Pulling rows from the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gather {
    /// Until a connection to a worker stands.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// A worker that sends nothing for so long, not even a sign of life, is given up. Workers send one four times as often. At least 1s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub idle_timeout: Duration,
    /// How long a stream that failed before its first row is tried again.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub retry_for: Duration,
    /// Size of a batch that a worker aims at. Larger ones leave the processor's caches on their way.
    pub batch: MemorySize,
    /// HTTP/2 window of a stream: what a worker may send ahead. Gathers from many workers take less, by the memory of their query.
    pub stream_window: MemorySize,
    /// The largest message that is taken from a worker.
    pub max_message: MemorySize,
    /// A join's small side narrows the scans of its other side by a list if it has at most about so many different keys (of a join on
    /// several: combinations of them); 0: never by a list.
    pub runtime_filter_keys: usize,
    /// How many workers merge the rows of the others for the gateway, where rows can be merged: `auto` estimates whether that is faster,
    /// `off` lets the gateway merge by itself, and a number is how many there are in any case. A session sets it with `SET relays`. Workers
    /// must be able to reach each other at the addresses that gateways are told; where they are not, it must be `off`.
    pub relays: Relays,
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
            relays: Relays::Auto,
        }
    }
}

impl Gather {
    /// How connections to workers are made.
    pub fn connections(&self) -> ConnectionOptions {
        ConnectionOptions {
            connect_timeout: self.connect_timeout,
            stream_window_bytes: self.stream_window.bytes(),
            max_message_bytes: self.max_message.bytes(),
        }
    }

    /// Deadlines and sizes of a gather.
    pub fn limits(&self) -> Limits {
        Limits {
            idle_timeout: self.idle_timeout,
            retry_for: self.retry_for,
            batch_bytes: self.batch.bytes(),
            stream_window_bytes: self.stream_window.bytes(),
            message: MessageLimit {
                bytes: self.max_message.bytes(),
                setting: "gateway.gather.max_message",
            },
            memory_setting: "query_memory (gateway.query.memory)",
        }
    }
}
