//! The rows of one worker, for all ways but the gather: opened, decoded and checked as the gather does it, without its deadlines, retries
//! and reports.

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

/// The stream of one worker.
#[derive(Debug)]
pub struct WorkerRows {
    messages: Streaming<FlightData>,
    schema: SchemaRef,
    rows: u64,
    batches: u64,
}

impl WorkerRows {
    /// Opens it.
    ///
    /// # Errors
    /// If the worker does not answer.
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

    /// The next rows; `None` when all are there.
    ///
    /// # Errors
    /// If the stream breaks, or ends before its end.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let message = self.messages.message().await?;
            let message = message.context("a stream without an end")?;
            if let Some(end) = end_of(&message)? {
                ensure!(
                    (end.rows, end.batches) == (self.rows, self.batches),
                    "rows are missing"
                );
                return Ok(None);
            }
            if let Some(batch) = rows_of(&message, &self.schema)? {
                self.rows += batch.num_rows() as u64;
                self.batches += 1;
                return Ok(Some(batch));
            }
        }
    }
}

/// What the worker says at the end, if this is the end.
///
/// # Errors
/// If it is not understood.
pub fn end_of(message: &FlightData) -> Result<Option<EndOfStream>> {
    if message.app_metadata.is_empty() {
        return Ok(None);
    }
    let frame = Frame::decode(message.app_metadata.clone())?;
    Ok(match frame.kind {
        Some(frame::Kind::End(end)) => Some(end),
        _ => None,
    })
}

/// The rows of a message, if it has some.
///
/// # Errors
/// If they cannot be decoded.
pub fn rows_of(message: &FlightData, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
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
