use bytes::Bytes;
use prost::Message;

/// The `app_metadata` of a message that a worker sends beside, or instead of, rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    /// What the frame says.
    #[prost(oneof = "frame::Kind", tags = "1, 2, 3, 4")]
    pub kind: Option<frame::Kind>,
}

/// The kinds of [`Frame`].
#[allow(
    clippy::module_inception,
    reason = "prost looks for the choices of a message in a module of its name"
)]
pub mod frame {
    /// What a frame says.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// The worker lives and has nothing to send yet.
        #[prost(message, tag = "1")]
        KeepAlive(super::KeepAlive),
        /// All rows were sent. A stream that ends without this frame is not complete.
        #[prost(message, tag = "2")]
        End(super::EndOfStream),
        /// The worker does not know the fragment that the ticket names. Nothing else was sent, and nothing follows.
        #[prost(message, tag = "3")]
        SendFragment(super::SendFragment),
        /// What the message's rows are, where the fragment asks for rows by bucket.
        #[prost(message, tag = "4")]
        RowsByBucket(super::RowsByBucket),
    }
}

/// Says that the worker lives.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeepAlive {}

/// Asks for the ticket once more, with the fragment itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SendFragment {}

/// Which hash buckets the rows of a message belong to: see [`HashBuckets`](crate::fragment::HashBuckets). Buckets come by ascending
/// number, in a stream too; the rows of one may be in several messages.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RowsByBucket {
    /// Rounds that the stream's rows are divided into: those of the fragment, or one, where there are few rows.
    #[prost(uint32, tag = "1")]
    pub rounds: u32,
    /// Bytes of all rows of the stream.
    #[prost(uint64, tag = "2")]
    pub total_bytes: u64,
    /// The buckets: `round * partitions + partition`.
    #[prost(uint32, repeated, tag = "3")]
    pub buckets: Vec<u32>,
    /// How many rows each of them has here.
    #[prost(uint32, repeated, tag = "4")]
    pub rows: Vec<u32>,
}

/// The last message of a worker's stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndOfStream {
    /// Rows that were sent: the gateway compares.
    #[prost(uint64, tag = "1")]
    pub rows: u64,
    /// Batches that were sent.
    #[prost(uint64, tag = "2")]
    pub batches: u64,
    /// From the ticket's arrival to the first row, in microseconds.
    #[prost(uint64, tag = "3")]
    pub first_row_us: u64,
    /// From the ticket's arrival to the last row, in microseconds.
    #[prost(uint64, tag = "4")]
    pub total_us: u64,
    /// CPU time of the fragment's operators, in microseconds.
    #[prost(uint64, tag = "5")]
    pub compute_us: u64,
    /// Rows that the scans produced.
    #[prost(uint64, tag = "6")]
    pub scanned_rows: u64,
    /// Bytes that the scans read from storage.
    #[prost(uint64, tag = "7")]
    pub scanned_bytes: u64,
    /// Segments that were open, after the snapshot and before pruning.
    #[prost(uint64, tag = "8")]
    pub segments: u64,
    /// The fragment's plan with its metrics, if the ticket asked for it.
    #[prost(string, tag = "9")]
    pub plan_metrics: String,
    /// Time the ticket waited for a place to run, in microseconds.
    #[prost(uint64, tag = "10")]
    pub queued_us: u64,
    /// Of those whose rows a relay merged, the slowest one and why, as text for EXPLAIN ANALYZE.
    #[prost(string, tag = "11")]
    pub slowest_member: String,
    /// Bytes of the tickets that it sent to them.
    #[prost(uint64, tag = "12")]
    pub sent_bytes: u64,
}

impl Frame {
    /// A keep-alive frame.
    pub fn keep_alive() -> Self {
        Self {
            kind: Some(frame::Kind::KeepAlive(KeepAlive {})),
        }
    }

    /// The frame that ends a stream.
    pub fn end(end: EndOfStream) -> Self {
        Self {
            kind: Some(frame::Kind::End(end)),
        }
    }

    /// The frame that asks for the fragment itself.
    pub fn send_fragment() -> Self {
        Self {
            kind: Some(frame::Kind::SendFragment(SendFragment {})),
        }
    }

    /// The frame that goes with rows by bucket.
    pub fn rows_by_bucket(rows: RowsByBucket) -> Self {
        Self {
            kind: Some(frame::Kind::RowsByBucket(rows)),
        }
    }

    /// As `app_metadata`.
    pub fn to_bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }
}
