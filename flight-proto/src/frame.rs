use bytes::Bytes;
use prost::Message;

/// The `app_metadata` of a message that a worker sends beside, or instead of, rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    /// What the frame says.
    #[prost(oneof = "frame::Kind", tags = "1, 2")]
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
    }
}

/// Says that the worker lives.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeepAlive {}

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

    /// As `app_metadata`.
    pub fn to_bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }
}
