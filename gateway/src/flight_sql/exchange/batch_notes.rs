use arrow_flight::FlightData;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};

/// The note that a client sends with the rows of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchNote {
    /// The number of the batch. The first batch has the number 1.
    pub(super) sequence: u64,
    /// Says whether the next message has more rows of the batch.
    #[serde(default)]
    pub(super) more: bool,
}

impl BatchNote {
    /// Reads the note in the metadata of a message.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is no such note.
    pub(super) fn parse(metadata: &Bytes) -> Result<Self> {
        let note: Self = serde_json::from_slice(metadata).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                "a message with rows must have the number of its batch in its app_metadata, such as {\"sequence\": 1}",
                source,
            )
        })?;
        if note.sequence == 0 {
            return Err(Error::invalid(
                "the batches of a stream are numbered from 1, and a message has the number 0",
            ));
        }
        Ok(note)
    }
}

/// The first note that the gateway sends.
#[derive(Debug, Serialize)]
pub(super) struct OpenedNote<'a> {
    /// Id of the stream in logs, errors and system tables.
    pub(super) query_id: QueryId,
    /// The producer, if the client has named one.
    pub(super) producer: Option<&'a str>,
    /// The last batch of the producer that was decided, or 0.
    pub(super) last_sequence: u64,
    /// Size of the batches that may be under way without an answer.
    pub(super) window: usize,
}

/// The answer to a batch.
#[derive(Debug, Serialize)]
pub(super) struct Acknowledgement {
    /// The number of the batch.
    pub(super) sequence: u64,
    /// Number of rows that are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<u64>,
    /// What became of the batch.
    pub(super) outcome: Outcome,
    /// Why the batch was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RefusalNote>,
    /// See [`OpenedNote::window`].
    pub(super) window: usize,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// The rows are durable and visible.
    Committed,
    /// The batch had been committed before, and nothing was written.
    Duplicate,
    /// Nothing of the batch was written.
    Refused,
}

/// An error that refuses a batch.
#[derive(Debug, Serialize)]
pub(super) struct RefusalNote {
    code: &'static str,
    sqlstate: &'static str,
    message: String,
    /// Time after which the batch may be sent again, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl RefusalNote {
    pub(super) fn new(error: &Error) -> Self {
        let text = error.text();
        let code = format!("{}: ", error.code());
        let message = text.strip_prefix(&code).unwrap_or(&text).to_owned();
        let retry_after_ms = error
            .retry_after()
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        Self {
            code: error.code().name(),
            sqlstate: error.sqlstate().code(),
            message,
            retry_after_ms,
        }
    }
}

/// Returns a note as a message without rows.
pub(super) fn message(note: &impl Serialize) -> FlightData {
    let json = serde_json::to_vec(note).unwrap_or_default();
    FlightData::new().with_app_metadata(json)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(text: &'static str) -> Result<BatchNote> {
        BatchNote::parse(&Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_client_numbers_its_batches() {
        let (sequence, more) = (7, false);
        assert_eq!(
            parse(r#"{"sequence": 7}"#).unwrap(),
            BatchNote { sequence, more }
        );
        assert!(parse(r#"{"sequence": 7, "more": true}"#).unwrap().more);
        for wrong in [
            "",
            "7",
            "{}",
            r#"{"sequence": 0}"#,
            r#"{"sequence": -1}"#,
            r#"{"sequence": 1.5}"#,
            r#"{"sequence": 1, "mroe": true}"#,
            r#"{"sequence": 18446744073709551616}"#,
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{wrong}");
            assert!(error.message().contains("number"), "{error}");
        }
    }

    #[test]
    fn notes_have_the_same_text_for_ever() {
        let text = |message: FlightData| String::from_utf8(message.app_metadata.to_vec()).unwrap();
        let query_id = QueryId::new();
        let opened = OpenedNote {
            query_id,
            producer: None,
            last_sequence: 3,
            window: 9,
        };
        assert_eq!(
            text(message(&opened)),
            format!(r#"{{"query_id":"{query_id}","producer":null,"last_sequence":3,"window":9}}"#)
        );
        let committed = Acknowledgement {
            sequence: 4,
            rows: Some(2),
            outcome: Outcome::Committed,
            error: None,
            window: 9,
        };
        assert_eq!(
            text(message(&committed)),
            r#"{"sequence":4,"rows":2,"outcome":"committed","window":9}"#
        );
        let error = Error::new(ErrorCode::ResourceExhausted, "full")
            .with_retry_after(Duration::from_millis(500));
        let refused = Acknowledgement {
            rows: None,
            outcome: Outcome::Refused,
            error: Some(RefusalNote::new(&error)),
            ..committed
        };
        assert_eq!(
            text(message(&refused)),
            r#"{"sequence":4,"outcome":"refused","error":{"code":"RESOURCE_EXHAUSTED","sqlstate":"53000","message":"full; retry in about 500 ms","retry_after_ms":500},"window":9}"#
        );
    }
}
