//! A worker's stream is opened, decoded and checked as in the gather, without the gather's
//! deadlines, retries and reports.

use std::collections::HashMap;

use anyhow::{Context, Result, anyhow, ensure};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::{MessageHeader, root_as_message};
use arrow_flight::FlightData;
use arrow_flight::utils::flight_data_to_arrow_batch;
use prost::Message;
use tonic::Streaming;
use volary_flight_proto::frame::{EndOfStream, Frame, frame};

use super::stubs::{Stub, StubCluster};

/// The stream of rows of one worker.
#[derive(Debug)]
pub struct WorkerRows {
    messages: Streaming<FlightData>,
    schema: SchemaRef,
    rows: u64,
    batches: u64,
}

impl WorkerRows {
    /// Opens the stream of a worker.
    ///
    /// # Errors
    /// Returns an error if the worker does not answer.
    pub async fn open(cluster: &StubCluster, stub: &Stub) -> Result<Self> {
        let mut client = stub.client.clone();
        let response = client.do_get(cluster.sealed_ticket()).await?;
        Ok(Self {
            messages: response.into_inner(),
            schema: cluster.schema(),
            rows: 0,
            batches: 0,
        })
    }

    /// Returns the next rows, or `None` when all rows have arrived.
    ///
    /// # Errors
    /// Returns an error if the stream breaks, or ends without its end frame.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let message = self.messages.message().await?;
            let message = message.context("a stream without an end")?;
            if let Some(end) = end_frame(&message)? {
                ensure!(
                    (end.rows, end.batches) == (self.rows, self.batches),
                    "rows are missing"
                );
                return Ok(None);
            }
            if let Some(batch) = decode_rows(&message, &self.schema)? {
                self.rows += batch.num_rows() as u64;
                self.batches += 1;
                return Ok(Some(batch));
            }
        }
    }
}

/// Returns the end frame in a message, if the message has one.
///
/// # Errors
/// Returns an error if the frame cannot be decoded.
pub fn end_frame(message: &FlightData) -> Result<Option<EndOfStream>> {
    if message.app_metadata.is_empty() {
        return Ok(None);
    }
    let frame = Frame::decode(message.app_metadata.clone())?;
    Ok(match frame.kind {
        Some(frame::Kind::End(end)) => Some(end),
        _ => None,
    })
}

/// Returns the rows in a message, if the message has rows.
///
/// # Errors
/// Returns an error if the rows cannot be decoded.
pub fn decode_rows(message: &FlightData, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
    if message.data_header.is_empty() {
        return Ok(None);
    }
    let header = root_as_message(&message.data_header)
        .map_err(|source| anyhow!("a message is malformed: {source}"))?;
    if header.header_type() != MessageHeader::RecordBatch {
        return Ok(None);
    }
    let batch = flight_data_to_arrow_batch(message, schema.clone(), &HashMap::new())?;
    Ok(Some(batch))
}
