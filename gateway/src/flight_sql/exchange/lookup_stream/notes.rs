use serde::Serialize;
use volary_flight_proto::ids::QueryId;

use crate::flight_sql::exchange::batch_notes::RefusalNote;

/// The first note that the gateway sends.
#[derive(Debug, Serialize)]
pub(super) struct OpenedNote {
    /// Id of the stream in logs, errors and system tables.
    pub(super) query_id: QueryId,
    /// Maximum number of keys in a batch.
    pub(super) max_keys: usize,
    /// Size of the keys that are read before they are answered.
    pub(super) window: usize,
}

/// The note with the rows of a batch, or instead of them.
#[derive(Debug, Default, Serialize)]
pub(super) struct AnswerNote {
    /// The number of the batch, counted from 1.
    pub(super) sequence: u64,
    /// Says that the next message has more rows of the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) more: Option<bool>,
    /// Number of keys that have a row. It is in the last message of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<u32>,
    /// Number of rows in all messages of the batch. It is in the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<u64>,
    /// Why the batch has no rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RefusalNote>,
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::Error;

    use super::*;

    #[test]
    fn notes_have_the_same_text_for_ever() {
        let text = |note: &AnswerNote| serde_json::to_string(note).unwrap();
        let query_id = QueryId::new();
        let opened = OpenedNote {
            query_id,
            max_keys: 7,
            window: 9,
        };
        assert_eq!(
            serde_json::to_string(&opened).unwrap(),
            format!(r#"{{"query_id":"{query_id}","max_keys":7,"window":9}}"#)
        );
        let part = AnswerNote {
            sequence: 3,
            more: Some(true),
            ..AnswerNote::default()
        };
        assert_eq!(text(&part), r#"{"sequence":3,"more":true}"#);
        let last = AnswerNote {
            sequence: 3,
            found: Some(2),
            rows: Some(5),
            ..AnswerNote::default()
        };
        assert_eq!(text(&last), r#"{"sequence":3,"found":2,"rows":5}"#);
        let refused = AnswerNote {
            sequence: 4,
            error: Some(RefusalNote::new(&Error::invalid("no key"))),
            ..AnswerNote::default()
        };
        assert_eq!(
            text(&refused),
            r#"{"sequence":4,"error":{"code":"INVALID_ARGUMENT","sqlstate":"42000","message":"no key"}}"#
        );
    }
}
