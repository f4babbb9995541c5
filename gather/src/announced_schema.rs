use bytes::Bytes;
use volary_flight_proto::{Error, Result};

/// The schema that was announced to a client. Workers send their rows in it.
#[derive(Debug, Clone)]
pub struct AnnouncedSchema {
    /// The schema as Arrow IPC, for the workers.
    pub schema: Bytes,
    /// Header of the schema message that the client was sent. A worker must send the same header,
    /// or its rows are not what the client expects.
    pub header: Bytes,
}

impl AnnouncedSchema {
    /// Checks that a worker whose stream begins with this header sends what the client expects.
    ///
    /// # Errors
    /// `INTERNAL` if it does not.
    pub(crate) fn check_header(&self, header: &Bytes) -> Result<()> {
        if *header == self.header {
            return Ok(());
        }
        Err(Error::internal(
            "the worker sends different columns than its gateway announced to the client; run the same release on all nodes",
        ))
    }
}
