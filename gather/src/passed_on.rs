//! Messages of workers that are a client's, too: where nothing is left to do with their rows, nobody decodes them on their way.

use arrow_flight::FlightData;
use bytes::Bytes;
use futures::stream::BoxStream;
use volary_flight_proto::frame::RowsByBucket;
use volary_flight_proto::{Error, Result};

use crate::request::Request;
use crate::stream::FromMessage;

/// The schema that a client was announced. Workers send their rows in it.
#[derive(Debug, Clone)]
pub struct Announced {
    /// For them, as Arrow IPC.
    pub schema: Bytes,
    /// The header of the message that the client was sent. A worker's is the same, or its rows are not what the client expects.
    pub header: Bytes,
}

/// A message for the client.
#[derive(Debug)]
pub struct PassedOn {
    /// It has rows, and nothing that nodes say to each other.
    pub message: FlightData,
    /// How many.
    pub rows: u64,
}

/// Messages for a client; see [`crate::WorkerStream`].
pub type PassedOnStream = BoxStream<'static, Result<PassedOn>>;

impl FromMessage for PassedOn {
    fn from_message(
        message: FlightData,
        rows: u64,
        _: Option<RowsByBucket>,
        _: &Request,
    ) -> Result<Self> {
        let message = FlightData {
            flight_descriptor: None,
            app_metadata: Bytes::new(),
            ..message
        };
        Ok(Self { message, rows })
    }
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
