//! Defines the settings of gathers: the section `gateway.gather`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_gather::Limits;
use volary_gather::connections::ConnectionOptions;
use volary_node::message_limit::MessageLimit;
use volary_node::size::MemorySize;

mod relays;

pub use relays::Relays;

/// How the gateway reads rows from the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gather {
    /// Maximum time to connect to a worker.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// A worker that sends nothing for this time, not even a sign of life, is given up. Workers
    /// send signs of life four times as often. At least 1s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub idle_timeout: Duration,
    /// How long a stream that failed before its first row is tried again.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub retry_for: Duration,
    /// Size that workers aim at for a batch. Larger batches do not stay in the processor's caches
    /// on their way.
    pub batch: MemorySize,
    /// HTTP/2 window of a stream: how much a worker may send ahead. Gathers from many workers use
    /// less, depending on the memory of their query.
    pub stream_window: MemorySize,
    /// Maximum size of a message from a worker.
    pub max_message: MemorySize,
    /// A join sends the list of keys of its small side to the scans of its other side if it has at
    /// most about this many different keys (for a join on several columns: combinations of them).
    /// 0: it never sends a list.
    pub runtime_filter_keys: usize,
    /// How many workers merge the rows of the others for the gateway, where rows can be merged:
    /// `auto` estimates whether that is faster, `off` lets the gateway merge by itself, and a
    /// number is used in any case. A session sets it with `SET relays`. Workers must be able to
    /// reach each other at the addresses that they give to the gateway; if they cannot, it must be
    /// `off`.
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
    /// Returns the options of connections to workers.
    pub fn connections(&self) -> ConnectionOptions {
        ConnectionOptions {
            connect_timeout: self.connect_timeout,
            stream_window_bytes: self.stream_window.bytes(),
            max_message_bytes: self.max_message.bytes(),
        }
    }

    /// Returns the deadlines and sizes of a gather.
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
