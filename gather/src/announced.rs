//! What a client was announced to whom rows of workers are passed on as they come.

use bytes::Bytes;
use volary_flight_proto::{Error, Result};

/// The schema that a client was announced. Workers send their rows in it.
#[derive(Debug, Clone)]
pub struct Announced {
    /// For them, as Arrow IPC.
    pub schema: Bytes,
    /// The header of the message that the client was sent. A worker's is the same, or its rows are not what the client expects.
    pub header: Bytes,
}

impl Announced {
    /// Whether a worker that begins with this header sends what the client expects.
    ///
    /// # Errors
    /// `INTERNAL` if it does not.
    pub(crate) fn check(&self, header: &Bytes) -> Result<()> {
        if *header == self.header {
            return Ok(());
        }
        Err(Error::internal(
            "the worker sends other columns than its gateway has announced; run the same release on all nodes",
        ))
    }
}
