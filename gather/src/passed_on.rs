//! Messages of workers that are a client's, too: where nothing is left to do with their rows, nobody decodes them on their way.

use arrow_flight::FlightData;
use bytes::Bytes;
use futures::stream::BoxStream;
use volary_flight_proto::Result;
use volary_flight_proto::frame::RowsByBucket;

use crate::request::Request;
use crate::stream::FromMessage;

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
