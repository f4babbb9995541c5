use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_catalog::ProducerWindows;
use volary_flight_proto::{Error, Result};
use volary_node::size::MemorySize;

/// Limits for streams of batches and for small writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ingest {
    /// Memory for the rows of small statements that wait to be committed together with others, or
    /// are being committed. A statement for whose rows there is no room is refused with
    /// RESOURCE_EXHAUSTED.
    pub queue_memory: MemorySize,
    /// Memory for the rows of all streams that are not committed yet. A stream for whose next batch
    /// there is no room waits, and reads nothing meanwhile.
    pub stream_memory: MemorySize,
    /// Size of the batches that the gateway reads from a stream before it has committed them. It is
    /// also the largest size of a single batch.
    pub stream_window: MemorySize,
    /// Maximum number of open streams. A further stream is refused with RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// A stream ends with DEADLINE_EXCEEDED if the client sends no batch for this time. At least
    /// 1s, and at most `producer_window`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub stream_idle_timeout: Duration,
    /// Maximum number of producers and batch ids of a table that are remembered. A further one is
    /// refused with RESOURCE_EXHAUSTED.
    pub max_producers: usize,
    /// How long a producer is remembered after its last batch. Meanwhile a batch that is sent again
    /// is not applied again.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub producer_window: Duration,
    /// How long the batch id of a statement (`volary-batch-id`) is remembered.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub batch_id_window: Duration,
}

impl Default for Ingest {
    fn default() -> Self {
        Self {
            queue_memory: MemorySize::Bytes(64 << 20),
            stream_memory: MemorySize::Bytes(256 << 20),
            stream_window: MemorySize::Bytes(16 << 20),
            max_streams: 1_000,
            stream_idle_timeout: Duration::from_secs(10 * 60),
            max_producers: 10_000,
            producer_window: Duration::from_secs(7 * 24 * 60 * 60),
            batch_id_window: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Shortest time after which an idle stream is ended.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

impl Ingest {
    /// Returns how long producers are remembered.
    pub(crate) fn windows(&self) -> ProducerWindows {
        ProducerWindows {
            streams: self.producer_window,
            statements: self.batch_id_window,
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        for (key, value) in [
            ("gateway.ingest.queue_memory", self.queue_memory.bytes()),
            ("gateway.ingest.stream_memory", self.stream_memory.bytes()),
            ("gateway.ingest.stream_window", self.stream_window.bytes()),
            ("gateway.ingest.max_streams", self.max_streams),
            ("gateway.ingest.max_producers", self.max_producers),
        ] {
            if value == 0 {
                return Err(Error::invalid(format!("{key} must be at least 1")));
            }
        }
        if self.stream_idle_timeout < MIN_IDLE_TIMEOUT {
            return Err(Error::invalid(format!(
                "gateway.ingest.stream_idle_timeout must be at least {MIN_IDLE_TIMEOUT:?}"
            )));
        }
        // The producer of an open stream must not be forgotten.
        if self.stream_idle_timeout > self.producer_window {
            return Err(Error::invalid(
                "gateway.ingest.stream_idle_timeout must be at most gateway.ingest.producer_window",
            ));
        }
        Ok(())
    }
}
