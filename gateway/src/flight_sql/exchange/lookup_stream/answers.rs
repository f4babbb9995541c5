use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::FlightData;
use datafusion::execution::memory_pool::MemoryReservation;
use volary_exec::client_rows::{client_batches, row_message};
use volary_flight_proto::{Error, Result};

use super::notes::AnswerNote;
use crate::client_types::{TypeProfile, map_schema};
use crate::engine::lookup_stream::LookedUp;
use crate::flight_sql::arrow_error;
use crate::flight_sql::exchange::batch_notes::{RefusalNote, message};
use crate::lookup::found_rows::OrderedRows;

/// Name of the first column of the answers: the position of a row's key in its batch, counted
/// from 0. Every client can read its type, which is not so for unsigned integers.
const POSITION: &str = "__position";

/// The columns of a stream's answers.
#[derive(Debug, Clone)]
pub(super) struct AnswerColumns {
    /// The columns in DataFusion's own types.
    native: SchemaRef,
    /// The columns as the client is sent them.
    pub(super) announced: SchemaRef,
}

/// The part of a lookup that answers one batch of the client.
#[derive(Debug)]
pub(super) struct BatchPart {
    /// The number of the batch.
    pub(super) sequence: u64,
    /// The positions of its keys in the lookup, or why they are not looked up.
    pub(super) asked: Result<Range<u32>>,
}

/// A message to the client, with the memory that it takes.
pub(super) struct AnswerMessage {
    pub(super) message: FlightData,
    /// Number of rows in the message.
    pub(super) rows: u64,
    /// The memory of the whole lookup, which is free when its last message was sent.
    #[expect(dead_code, reason = "held until it is dropped")]
    pub(super) memory: Option<Arc<MemoryReservation>>,
}

impl From<AnswerMessage> for FlightData {
    fn from(answer: AnswerMessage) -> Self {
        answer.message
    }
}

impl AnswerColumns {
    /// Returns the columns of answers with these columns of the table.
    pub(super) fn new(columns: &Schema, profile: TypeProfile) -> Self {
        let position = Arc::new(Field::new(POSITION, DataType::Int32, false));
        let columns = columns.fields().iter().cloned();
        let fields: Vec<_> = std::iter::once(position).chain(columns).collect();
        let native = Arc::new(Schema::new(fields));
        Self {
            announced: map_schema(profile, &native),
            native,
        }
    }

    /// Returns the messages that answer the batches of a lookup, in their order. `found` is `None`
    /// if nothing was looked up for them.
    pub(super) fn answer(
        &self,
        found: Option<Result<LookedUp>>,
        parts: Vec<BatchPart>,
    ) -> Vec<AnswerMessage> {
        let found = found.unwrap_or_else(|| Err(Error::internal("the keys were not looked up")));
        let found = found.map(|found| (found.ordered, Arc::new(found.memory)));
        let mut messages = Vec::with_capacity(parts.len());
        for part in parts {
            let sequence = part.sequence;
            let keys = match (&part.asked, &found) {
                (Err(error), _) | (Ok(_), Err(error)) => {
                    messages.push(refusal(sequence, error));
                    continue;
                }
                (Ok(keys), Ok((ordered, memory))) => {
                    self.answer_part(ordered, sequence, keys, memory)
                }
            };
            match keys {
                Ok(answer) => messages.extend(answer),
                Err(error) => messages.push(refusal(sequence, &error)),
            }
        }
        messages
    }

    fn answer_part(
        &self,
        ordered: &OrderedRows,
        sequence: u64,
        keys: &Range<u32>,
        memory: &Arc<MemoryReservation>,
    ) -> Result<Vec<AnswerMessage>> {
        let row_of = |position: u32| ordered.positions.partition_point(|other| *other < position);
        let (first, last) = (row_of(keys.start), row_of(keys.end));
        let positions = &ordered.positions[first..last];
        let end = AnswerNote {
            sequence,
            found: Some(count_keys(positions)),
            rows: Some(positions.len() as u64),
            ..AnswerNote::default()
        };
        if positions.is_empty() {
            return Ok(vec![AnswerMessage {
                message: message(&end),
                rows: 0,
                memory: Some(Arc::clone(memory)),
            }]);
        }
        let positions = positions.iter().map(|position| {
            // A batch has fewer keys than this type has numbers.
            i32::try_from(position - keys.start).unwrap_or(i32::MAX)
        });
        let positions: ArrayRef = Arc::new(Int32Array::from_iter_values(positions));
        let rows = ordered.rows.slice(first, last - first);
        let columns = std::iter::once(positions).chain(rows.columns().iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let native = Arc::clone(&self.native);
        let rows = RecordBatch::try_new_with_options(native, columns.collect(), &options);
        let pieces = client_batches(rows.map_err(arrow_error)?, &self.announced)?;
        let more = AnswerNote {
            sequence,
            more: Some(true),
            ..AnswerNote::default()
        };
        let last = pieces.len().saturating_sub(1);
        let messages = pieces.iter().enumerate().map(|(piece, rows)| {
            let note = message(if piece == last { &end } else { &more });
            Ok(AnswerMessage {
                message: row_message(rows)?.with_app_metadata(note.app_metadata),
                rows: rows.num_rows() as u64,
                memory: Some(Arc::clone(memory)),
            })
        });
        messages.collect()
    }
}

/// Returns the message that refuses a batch.
pub(super) fn refusal(sequence: u64, error: &Error) -> AnswerMessage {
    let note = AnswerNote {
        sequence,
        error: Some(RefusalNote::new(error)),
        ..AnswerNote::default()
    };
    AnswerMessage {
        message: message(&note),
        rows: 0,
        memory: None,
    }
}

/// Returns the number of different positions, which are in order.
fn count_keys(positions: &[u32]) -> u32 {
    let changes = positions.windows(2).filter(|pair| pair[0] != pair[1]);
    let count = changes.count() + usize::from(!positions.is_empty());
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, StringViewArray};
    use arrow_flight::decode::FlightRecordBatchStream;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use futures::stream::{self, StreamExt, TryStreamExt};
    use volary_exec::client_rows::schema_message;

    use super::*;

    fn found(positions: Vec<u32>, bytes: usize) -> (LookedUp, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let memory = MemoryConsumer::new("rows").register(&pool);
        memory.try_grow(1).unwrap();
        let names = positions
            .iter()
            .map(|position| format!("{}{position}", " ".repeat(bytes.saturating_sub(1))));
        let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
        let rows = RecordBatch::try_from_iter([("name", names)]).unwrap();
        let ordered = OrderedRows { rows, positions };
        (LookedUp { ordered, memory }, pool)
    }

    fn notes(messages: &[AnswerMessage]) -> Vec<String> {
        let text = |sent: &AnswerMessage| sent.message.app_metadata.to_vec();
        let notes = messages.iter().map(text);
        notes.map(|note| String::from_utf8(note).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_lookup_of_several_batches_is_answered_batch_by_batch() {
        let (looked_up, pool) = found(vec![0, 0, 2, 5, 6], 1);
        let columns = AnswerColumns::new(looked_up.ordered.rows.schema_ref(), TypeProfile::Classic);
        let part = |sequence, asked| BatchPart { sequence, asked };
        let parts = vec![
            part(4, Ok(0..3)),
            part(5, Ok(3..5)),
            part(6, Err(Error::invalid("no key"))),
            part(7, Ok(5..7)),
        ];
        let messages = columns.answer(Some(Ok(looked_up)), parts);
        assert_eq!(
            notes(&messages),
            [
                r#"{"sequence":4,"found":2,"rows":3}"#,
                r#"{"sequence":5,"found":0,"rows":0}"#,
                r#"{"sequence":6,"error":{"code":"INVALID_ARGUMENT","sqlstate":"42000","message":"no key"}}"#,
                r#"{"sequence":7,"found":2,"rows":2}"#,
            ]
        );
        assert_eq!(messages.iter().map(|sent| sent.rows).sum::<u64>(), 5);
        assert_eq!(pool.reserved(), 1);
        let schema = schema_message(Arc::clone(&columns.announced)).unwrap();
        let rows = messages.into_iter().map(|sent| sent.message);
        let all = std::iter::once(schema).chain(rows.filter(|sent| !sent.data_header.is_empty()));
        let decoded = FlightRecordBatchStream::new_from_flight_data(stream::iter(all).map(Ok));
        let batches: Vec<RecordBatch> = decoded.try_collect().await.unwrap();
        let positions = batches.iter().map(|batch| batch.column(0).to_data());
        let expected = [vec![0, 0, 2], vec![0, 1]].map(|part| Int32Array::from(part).to_data());
        assert_eq!(positions.collect::<Vec<_>>(), expected);
        assert_eq!(batches[0].schema().field(1).data_type(), &DataType::Utf8);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn a_lookup_that_fails_refuses_all_its_batches() {
        let columns = AnswerColumns::new(&Schema::empty(), TypeProfile::Classic);
        let part = |sequence| BatchPart {
            sequence,
            asked: Ok(0..1),
        };
        let error = Error::unavailable("no worker");
        let messages = columns.answer(Some(Err(error)), vec![part(1), part(2)]);
        for (note, sequence) in notes(&messages).iter().zip(["1", "2"]) {
            assert!(note.starts_with(&format!("{{\"sequence\":{sequence},\"error\"")));
            assert!(
                note.contains("UNAVAILABLE") && note.contains("no worker"),
                "{note}"
            );
        }
    }

    #[test]
    fn a_large_answer_is_cut_and_only_its_last_message_says_what_was_found() {
        let (looked_up, _pool) = found((0..10).collect(), 1 << 20);
        let columns = AnswerColumns::new(looked_up.ordered.rows.schema_ref(), TypeProfile::Native);
        let part = BatchPart {
            sequence: 1,
            asked: Ok(0..10),
        };
        let messages = columns.answer(Some(Ok(looked_up)), vec![part]);
        let notes = notes(&messages);
        let (last, others) = notes.split_last().unwrap();
        assert!(others.len() > 2);
        assert!(
            others
                .iter()
                .all(|note| note == r#"{"sequence":1,"more":true}"#)
        );
        assert_eq!(last, r#"{"sequence":1,"found":10,"rows":10}"#);
        assert!(
            messages
                .iter()
                .all(|sent| sent.message.data_body.len() < 4 << 20)
        );
    }
}
