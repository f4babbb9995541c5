use std::fmt;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, Result};

use super::records::{Record, TENTH_FORMAT};

/// Maximum number of characters of a producer's name.
const MAX_NAME_CHARS: usize = 64;

/// The producers of one table, by name.
pub(super) type TableProducers = RedBlackTreeMapSync<ProducerName, Arc<ProducerRecord>>;

/// The name of a producer: text of 1 to 64 characters without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProducerName(String);

impl ProducerName {
    /// Reads the name of a producer. `what` says where it was given, for errors.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a name that is empty, too long, or has control characters.
    pub fn parse(what: &str, name: &str) -> Result<Self> {
        let is_valid = (1..=MAX_NAME_CHARS).contains(&name.chars().count())
            && !name.chars().any(char::is_control);
        if is_valid {
            return Ok(Self(name.to_owned()));
        }
        Err(Error::invalid(format!(
            "{what} must be a text of 1 to {MAX_NAME_CHARS} characters without control characters; choose another one, such as a UUID"
        )))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProducerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hash of what a batch contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchContent(pub [u8; 16]);

impl Serialize for BatchContent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for BatchContent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; 16];
        hex::decode_to_slice(&text, &mut bytes).map_err(serde::de::Error::custom)?;
        Ok(Self(bytes))
    }
}

/// A batch that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedBatch {
    /// The number of the batch. The first batch of a producer has the number 1.
    pub sequence: u64,
    /// Number of rows that were committed.
    pub rows: u64,
    /// A hash of what the client sent.
    pub content: BatchContent,
    /// Says that the rows were refused, and that the producer went on without them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_refused: bool,
}

/// What a producer has written to a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerRecord {
    /// The id of the table.
    pub(super) table: TableId,
    /// The name of the producer.
    pub(super) producer: ProducerName,
    /// The last batch that was decided. All batches up to it were decided, too.
    pub(super) last_sequence: u64,
    /// The last write that has rows of the producer.
    pub(super) write: WriteId,
    /// The last batches, oldest first.
    pub(super) recent: Vec<DecidedBatch>,
    /// Time of the last commit, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// Says whether the producer is the id of a single statement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_statement: bool,
}

impl Record for ProducerRecord {
    const PREFIX: &'static str = "producer/";

    fn name(&self) -> String {
        Self::key_part(self.table, &self.producer)
    }

    fn format(&self) -> u32 {
        TENTH_FORMAT
    }
}

impl ProducerRecord {
    /// Returns the part of the key after the prefix.
    pub(super) fn key_part(table: TableId, producer: &ProducerName) -> String {
        format!("{}/{producer}", table.0)
    }

    /// Returns the name of the producer.
    pub fn name(&self) -> &ProducerName {
        &self.producer
    }

    /// Returns the last batch that was decided. All batches up to it were decided, too.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Returns a batch, or `None` if it was not decided or is no longer remembered.
    pub fn batch(&self, sequence: u64) -> Option<&DecidedBatch> {
        let mut recent = self.recent.iter();
        recent.find(|batch| batch.sequence == sequence)
    }

    /// Returns the time of the last commit, in milliseconds since 1970.
    pub fn committed_at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Returns whether the producer is the id of a single statement.
    pub fn is_statement(&self) -> bool {
        self.is_statement
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::{decode, encode};
    use super::*;

    fn batch(sequence: u64, is_refused: bool) -> DecidedBatch {
        DecidedBatch {
            sequence,
            rows: 3,
            content: BatchContent([7; 16]),
            is_refused,
        }
    }

    #[test]
    fn a_producer_has_the_same_text_for_ever() {
        let record = ProducerRecord {
            table: TableId(5),
            producer: ProducerName::parse("the producer", "kea/1").unwrap(),
            last_sequence: 9,
            write: WriteId(77),
            recent: vec![batch(8, true), batch(9, false)],
            at_ms: 12,
            is_statement: false,
        };
        let text = r#"{"format":10,"table":5,"producer":"kea/1","last_sequence":9,"write":77,"recent":[{"sequence":8,"rows":3,"content":"07070707070707070707070707070707","is_refused":true},{"sequence":9,"rows":3,"content":"07070707070707070707070707070707"}],"at_ms":12}"#;
        assert_eq!(String::from_utf8(encode(&record).unwrap()).unwrap(), text);
        assert_eq!(record.key(), "producer/5/kea/1");
        let read = decode::<ProducerRecord>("producer/5/kea/1", text.as_bytes());
        assert_eq!(read.unwrap(), record);
        let damaged = text.replace("0707", "07");
        assert!(decode::<ProducerRecord>("producer/5/kea/1", damaged.as_bytes()).is_err());
    }

    #[test]
    fn a_name_is_a_short_text() {
        for name in ["a", "kea-1", "ĉevalo", &"x".repeat(64)] {
            assert_eq!(ProducerName::parse("it", name).unwrap().as_str(), name);
        }
        for name in ["", "a\nb", "\u{1f}", &"x".repeat(65)] {
            let error = ProducerName::parse("the header x", name).unwrap_err();
            assert!(
                error.message().starts_with("the header x must be"),
                "{error}"
            );
        }
    }
}
