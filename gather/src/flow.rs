//! A worker sends as much ahead as the HTTP/2 window of its stream takes, whether anybody reads it
//! or not. With the default window, the streams of 2,160 workers buffer 4.2 GiB on a gateway.
//! Therefore the window and the size of messages follow from the number of streams and the memory
//! of the query. The memory that the streams may take is reserved in the pool before any worker is
//! asked.

use std::sync::Arc;

use bytesize::ByteSize;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::connections::Window;
use crate::limits::GatherLimits;

/// Rows in transit may take a query's memory divided by this number. The operators above the gather
/// need the rest.
const SHARE_OF_MEMORY: usize = 2;
/// Maximum size of a batch, as a multiple of the window. A worker sends as much as its window
/// takes, and more only when the stream is read. So a message takes at most this many reads.
const WINDOWS_PER_BATCH: usize = 8;
/// Minimum size of a batch that workers aim at. In smaller messages, the overhead outweighs the
/// rows.
const MIN_BATCH_BYTES: usize = 8 << 10;

/// The bytes that the streams of one gather may have in transit.
#[derive(Debug)]
pub struct FlowControl {
    /// How much a worker may send ahead in a stream.
    pub window: Window,
    /// Number of streams of the gather.
    pub streams: usize,
    /// Target size of a batch that a worker sends, in bytes.
    pub batch_bytes: usize,
    bytes_per_stream: usize,
    reserved: Mutex<MemoryReservation>,
}

impl FlowControl {
    /// Reserves memory for `streams` streams. Chooses the widest window, but none wider than
    /// `widest`, for which both the query and the pool have enough memory. The query may use
    /// `memory` bytes, which its `gathers` gathers divide among themselves. All reserved memory
    /// stays here until streams take their shares.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if not even the narrowest window fits.
    pub fn reserve(
        widest: Window,
        streams: usize,
        gathers: usize,
        memory: usize,
        limits: &GatherLimits,
        pool: &Arc<dyn MemoryPool>,
    ) -> Result<Self> {
        let streams = streams.max(1);
        let reserved = MemoryConsumer::new("rows in transit").register(pool);
        let allowed_bytes = memory / SHARE_OF_MEMORY / gathers.max(1);
        let per_stream = allowed_bytes / streams;
        let batch = limits.batch_bytes;
        let mut needed_bytes = 0;
        let windows = Window::WIDEST_FIRST.into_iter();
        for window in windows.filter(|window| *window <= widest) {
            let window_bytes = window.bytes(limits.stream_window_bytes);
            // Sizes are powers of two, so that similar queries ask for the same size.
            let room = per_stream.saturating_sub(window_bytes);
            let fitting_batch = (1 << room.max(1).ilog2())
                .min(batch)
                .min(window_bytes * WINDOWS_PER_BATCH);
            let min_batch = match window {
                Window::Narrow => MIN_BATCH_BYTES.min(batch),
                Window::Middle | Window::Wide => batch,
            };
            for batch_bytes in [fitting_batch.max(min_batch), min_batch] {
                let bytes_per_stream = window_bytes.saturating_add(batch_bytes);
                needed_bytes = bytes_per_stream.saturating_mul(streams);
                if bytes_per_stream <= per_stream && reserved.try_grow(needed_bytes).is_ok() {
                    return Ok(Self {
                        window,
                        streams,
                        batch_bytes,
                        bytes_per_stream,
                        reserved: Mutex::new(reserved),
                    });
                }
            }
        }
        Err(Error::new(
            ErrorCode::ResourceExhausted,
            format!(
                "receiving rows from {streams} workers needs {} of memory, but only {} of the limit of {} may be used for that, and less while other queries use memory; raise {}, ask fewer workers, or retry when fewer queries run",
                ByteSize(needed_bytes as u64),
                ByteSize(allowed_bytes as u64),
                ByteSize(memory as u64),
                limits.memory_setting,
            ),
        ))
    }

    /// Returns the size, in bytes, up to which a worker sends all its rows by bucket at once. They
    /// fit into the memory that is reserved for its stream. A worker with more rows announces their
    /// size in its first message, and is read further only when all workers have sent a first
    /// message.
    pub fn small_bytes(&self, limits: &GatherLimits) -> usize {
        let window = self.window.bytes(limits.stream_window_bytes);
        self.batch_bytes.max(window / 2)
    }

    /// Returns the share of one stream. The stream holds it as long as it is open.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the gather is run once more and there is no memory for that.
    pub(crate) fn take_share(&self) -> Result<MemoryReservation> {
        let reserved = self.reserved.lock();
        if reserved.size() < self.bytes_per_stream {
            reserved.try_grow(self.bytes_per_stream)?;
        }
        Ok(reserved.split(self.bytes_per_stream))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use std::time::Duration;

    use volary_node::message_limit::MessageLimit;

    use super::*;

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    const LIMITS: GatherLimits = GatherLimits {
        idle_timeout: Duration::ZERO,
        retry_timeout: Duration::ZERO,
        batch_bytes: 128 * KIB,
        stream_window_bytes: 2 * MIB,
        message_limit: MessageLimit {
            bytes: MIB,
            setting: "",
        },
        memory_setting: "query_memory",
    };

    fn flow(streams: usize, memory: usize, free: usize) -> Result<FlowControl> {
        let pool = Arc::new(GreedyMemoryPool::new(free)) as _;
        FlowControl::reserve(Window::Wide, streams, 1, memory, &LIMITS, &pool)
    }

    #[test]
    fn few_streams_are_wide_and_many_are_narrow() {
        let few = flow(4, 256 * MIB, 256 * MIB).unwrap();
        assert_eq!((few.window, few.batch_bytes), (Window::Wide, 128 * KIB));
        let more = flow(256, 256 * MIB, 256 * MIB).unwrap();
        let (window, batch_bytes) = (Window::Middle, 128 * KIB);
        assert_eq!((more.window, more.batch_bytes), (window, batch_bytes));
        let many = flow(2_160, 256 * MIB, 256 * MIB).unwrap();
        let (window, batch_bytes) = (Window::Narrow, 32 * KIB);
        assert_eq!((many.window, many.batch_bytes), (window, batch_bytes));
        for flow in [few, more, many] {
            assert!(flow.reserved.lock().size() <= 128 * MIB);
        }
    }

    #[test]
    fn no_window_is_wider_than_the_caller_allows() {
        let pool = Arc::new(GreedyMemoryPool::new(256 * MIB)) as _;
        for widest in [Window::Middle, Window::Narrow] {
            let flow = FlowControl::reserve(widest, 1, 1, 256 * MIB, &LIMITS, &pool).unwrap();
            assert_eq!(flow.window, widest);
        }
    }

    #[test]
    fn gathers_of_one_query_divide_its_memory() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(24 * MIB));
        let flow = || FlowControl::reserve(Window::Wide, 3, 2, 24 * MIB, &LIMITS, &pool).unwrap();
        let flows = [flow(), flow()];
        assert!(pool.reserved() <= 12 * MIB);
        drop(flows);
    }

    #[test]
    fn what_others_hold_narrows_a_gather_and_too_little_refuses_it() {
        let narrowed = flow(4, 256 * MIB, MIB).unwrap();
        assert_eq!(narrowed.window, Window::Narrow);
        let refused = flow(2_160, 256 * MIB, 2 * MIB).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
        let refused = flow(2_160, 64 * MIB, 256 * MIB).unwrap_err();
        assert!(refused.message().contains("2160 workers"), "{refused}");
        assert!(refused.message().contains("query_memory"), "{refused}");
    }

    #[test]
    fn a_stream_that_ends_gives_its_share_back() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(256 * MIB));
        let flow = FlowControl::reserve(Window::Wide, 3, 1, 256 * MIB, &LIMITS, &pool).unwrap();
        let reserved = pool.reserved();
        let shares: Vec<_> = (0..3).map(|_| flow.take_share().unwrap()).collect();
        assert_eq!(pool.reserved(), reserved);
        drop(shares);
        assert_eq!(pool.reserved(), 0);
        drop(flow.take_share().unwrap());
        drop(flow);
        assert_eq!(pool.reserved(), 0);
    }
}
