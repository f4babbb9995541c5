use bytes::Bytes;
use prost::Message;

use crate::stage_times::StageTimes;

/// The `app_metadata` of a message that a worker sends beside rows, or instead of rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    /// Content of the frame.
    #[prost(oneof = "frame::Kind", tags = "1, 2, 3, 4")]
    pub kind: Option<frame::Kind>,
}

/// Defines the kinds of [`Frame`].
#[allow(
    clippy::module_inception,
    reason = "prost looks for the choices of a message in a module of its name"
)]
pub mod frame {
    /// Content of a frame.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// The worker is alive and has nothing to send yet.
        #[prost(message, tag = "1")]
        KeepAlive(super::KeepAlive),
        /// All rows were sent. A stream that ends without this frame is not complete.
        #[prost(message, tag = "2")]
        End(super::EndOfStream),
        /// The worker does not know the fragment that the ticket names. It has sent nothing else,
        /// and nothing follows.
        #[prost(message, tag = "3")]
        SendFragment(super::SendFragment),
        /// The hash buckets of the message's rows. This frame is sent if the fragment asks for rows
        /// by bucket.
        #[prost(message, tag = "4")]
        RowsByBucket(super::RowsByBucket),
    }
}

/// Says that the worker is alive.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeepAlive {}

/// Asks for the ticket once more, with the fragment itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SendFragment {}

/// The hash buckets that the rows of a message belong to: see
/// [`HashBuckets`](crate::fragment::HashBuckets). Buckets come in ascending order, both in a
/// message and in a stream. The rows of one bucket may be in several messages.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RowsByBucket {
    /// Number of rounds that the stream's rows are divided into. It is that of the fragment, or 1
    /// if there are few rows.
    #[prost(uint32, tag = "1")]
    pub rounds: u32,
    /// Size of all rows of the stream, in bytes.
    #[prost(uint64, tag = "2")]
    pub total_bytes: u64,
    /// Numbers of the buckets: `round * partitions + partition`.
    #[prost(uint32, repeated, tag = "3")]
    pub buckets: Vec<u32>,
    /// Number of rows that each of the buckets has in this message.
    #[prost(uint32, repeated, tag = "4")]
    pub rows: Vec<u32>,
}

/// The last message of a worker's stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndOfStream {
    /// Number of rows that were sent. The reader of the stream compares it with what arrived.
    #[prost(uint64, tag = "1")]
    pub rows: u64,
    /// Number of batches that were sent.
    #[prost(uint64, tag = "2")]
    pub batches: u64,
    /// Time from the ticket's arrival to the first row, in microseconds.
    #[prost(uint64, tag = "3")]
    pub first_row_us: u64,
    /// Time from the ticket's arrival to the last row, in microseconds.
    #[prost(uint64, tag = "4")]
    pub total_us: u64,
    /// CPU time of the fragment's operators, in microseconds.
    #[prost(uint64, tag = "5")]
    pub compute_us: u64,
    /// Number of rows that the scans produced.
    #[prost(uint64, tag = "6")]
    pub scanned_rows: u64,
    /// Number of bytes that the scans read from storage.
    #[prost(uint64, tag = "7")]
    pub scanned_bytes: u64,
    /// Number of segments that were open: those that the snapshot sees, before pruning.
    #[prost(uint64, tag = "8")]
    pub segments: u64,
    /// The fragment's plan with its metrics. Empty if the fragment does not ask for it.
    #[prost(string, tag = "9")]
    pub plan_metrics: String,
    /// Time that the ticket waited for a place to run, in microseconds.
    #[prost(uint64, tag = "10")]
    pub queued_us: u64,
    /// The slowest worker among those whose rows a relay merged, and why it was slow, as text for
    /// EXPLAIN ANALYZE.
    #[prost(string, tag = "11")]
    pub slowest_member: String,
    /// Size of the tickets that a relay sent to these workers, in bytes.
    #[prost(uint64, tag = "12")]
    pub sent_bytes: u64,
    /// How long the stages took. `None` if the worker does not measure them.
    #[prost(message, optional, tag = "13")]
    pub stages: Option<StageTimes>,
    /// Time in which the stream had a message and its reader asked for none, in microseconds.
    #[prost(uint64, tag = "14")]
    pub reader_us: u64,
}

impl Frame {
    /// Creates a keep-alive frame.
    pub fn keep_alive() -> Self {
        Self {
            kind: Some(frame::Kind::KeepAlive(KeepAlive {})),
        }
    }

    /// Creates the frame that ends a stream.
    pub fn end(end: EndOfStream) -> Self {
        Self {
            kind: Some(frame::Kind::End(end)),
        }
    }

    /// Creates the frame that asks for the fragment itself.
    pub fn send_fragment() -> Self {
        Self {
            kind: Some(frame::Kind::SendFragment(SendFragment {})),
        }
    }

    /// Creates the frame that goes with rows by bucket.
    pub fn rows_by_bucket(rows: RowsByBucket) -> Self {
        Self {
            kind: Some(frame::Kind::RowsByBucket(rows)),
        }
    }

    /// Encodes the frame for `app_metadata`.
    pub fn to_bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }
}
