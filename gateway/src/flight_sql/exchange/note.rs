//! A note is JSON in a message that has only `app_metadata`, which any client can read.

use arrow_flight::{FlightData, FlightInfo};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message;
use serde::Serialize;
use volary_flight_proto::ids::QueryId;

use super::statistics::Statistics;
use crate::statements::StatementStatus;

/// A message to the client. Only the fields that are known are sent.
#[derive(Debug, Default, Serialize)]
pub(super) struct Note {
    /// Id of the statement in logs, errors and system tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    query_id: Option<String>,
    /// Number of rows that a statement without rows has written. It is 0 if rows are no measure of
    /// what the statement did.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_affected: Option<i64>,
    /// A FlightInfo in base64. The client fetches the rows from its endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    flight_info: Option<String>,
    /// Completed share of the workers' work, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    /// The time and resources that the statement took.
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<Statistics>,
}

impl Note {
    /// Creates a note with the id of the statement.
    pub(super) fn for_query(id: QueryId) -> Self {
        Self {
            query_id: Some(id.to_string()),
            ..Self::default()
        }
    }

    /// Creates a note with the progress of a query.
    pub(super) fn for_progress(percent: u32) -> Self {
        Self {
            progress: Some(f64::from(percent) / 100.0),
            ..Self::default()
        }
    }

    /// Creates the note for a statement that has ended. It carries the statement's statistics,
    /// and shows that all of its rows were sent.
    pub(super) fn for_end(status: &StatementStatus, rows: u64) -> Self {
        Self {
            statistics: Some(Statistics::of(status, rows)),
            ..Self::default()
        }
    }

    pub(super) fn with_rows_affected(self, count: i64) -> Self {
        Self {
            rows_affected: Some(count),
            ..self
        }
    }

    pub(super) fn with_parts(self, info: &FlightInfo) -> Self {
        Self {
            flight_info: Some(BASE64_STANDARD.encode(info.encode_to_vec())),
            ..self
        }
    }

    /// Returns the note as a message.
    pub(super) fn message(&self) -> FlightData {
        let json = serde_json::to_vec(self).unwrap_or_default();
        FlightData::new().with_app_metadata(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_fields_that_it_knows() {
        let text = |note: Note| String::from_utf8(note.message().app_metadata.to_vec()).unwrap();
        let id = QueryId::new();
        assert_eq!(
            text(Note::for_query(id).with_rows_affected(3)),
            format!("{{\"query_id\":\"{id}\",\"rows_affected\":3}}")
        );
        assert_eq!(text(Note::for_progress(66)), "{\"progress\":0.66}");
        assert!(Note::for_progress(66).message().data_header.is_empty());
    }
}
