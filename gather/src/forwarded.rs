use arrow_flight::FlightData;
use bytes::Bytes;
use futures::stream::BoxStream;
use volary_flight_proto::Result;
use volary_flight_proto::frame::RowsByBucket;

use crate::request::GatherRequest;
use crate::stream::FromMessage;

/// A message of a worker that is forwarded to the client.
#[derive(Debug)]
pub struct ForwardedMessage {
    /// The message. It has rows, and no metadata that is meant for nodes.
    pub message: FlightData,
    /// Number of rows in the message.
    pub rows: u64,
}

/// The messages for a client. See [`crate::WorkerStream`].
pub type ForwardedStream = BoxStream<'static, Result<ForwardedMessage>>;

impl FromMessage for ForwardedMessage {
    fn from_message(
        message: FlightData,
        rows: u64,
        _: Option<RowsByBucket>,
        _: &GatherRequest,
    ) -> Result<Self> {
        let message = FlightData {
            flight_descriptor: None,
            app_metadata: Bytes::new(),
            ..message
        };
        Ok(Self { message, rows })
    }
}
