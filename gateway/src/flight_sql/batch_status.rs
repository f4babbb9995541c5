use bytes::Bytes;
use serde::{Deserialize, Serialize};
use volary_catalog::ProducerName;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::FlightSql;
use super::call::ClientCall;

/// The action that says whether a batch was committed.
pub(super) const BATCH_STATUS_ACTION: &str = "volary.batch_status";

/// The body of the action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusRequest {
    /// The table, as SQL writes its name.
    table: String,
    /// The producer, or the id of a statement.
    producer: String,
    /// The batch. If it is missing, the status of the last batch is returned.
    #[serde(default)]
    sequence: Option<u64>,
}

/// The answer to the action.
#[derive(Debug, Serialize)]
struct StatusAnswer {
    table: String,
    producer: String,
    /// The last batch that was decided. It is 0 if the producer is not known.
    last_sequence: u64,
    sequence: u64,
    status: BatchStatus,
    /// Number of rows of the batch, if it is one of the last 16.
    rows: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum BatchStatus {
    Committed,
    Refused,
    /// The batch is not committed. It may still be under way.
    Unknown,
}

impl FlightSql {
    /// Says whether a batch of a producer was committed.
    pub(super) fn batch_status(&self, call: &ClientCall, body: &Bytes) -> Result<Bytes> {
        let request: StatusRequest = serde_json::from_slice(body).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("the body of {BATCH_STATUS_ACTION} must be JSON such as {{\"table\": \"t\", \"producer\": \"p\", \"sequence\": 1}}"),
                source,
            )
        })?;
        let name = ProducerName::parse("the producer", &request.producer)?;
        let session = &call.session.engine;
        let known = self.engine.producer(session, &request.table, &name)?;
        let last_sequence = known.as_ref().map_or(0, |known| known.last_sequence());
        let sequence = request.sequence.unwrap_or(last_sequence);
        let batch = known.as_ref().and_then(|known| known.batch(sequence));
        let status = match batch {
            Some(batch) if batch.is_refused => BatchStatus::Refused,
            _ if sequence == 0 || sequence > last_sequence => BatchStatus::Unknown,
            _ => BatchStatus::Committed,
        };
        let answer = StatusAnswer {
            table: request.table,
            producer: request.producer,
            last_sequence,
            sequence,
            status,
            rows: batch.map(|batch| batch.rows),
        };
        let json = serde_json::to_vec(&answer).map_err(|source| {
            let what = "the status of a batch cannot be encoded";
            Error::with_source(ErrorCode::Internal, what, source)
        })?;
        Ok(json.into())
    }
}
