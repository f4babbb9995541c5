use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use volary_exec::batches::CoalesceBytes;
use volary_flight_proto::frame::{EndOfStream, Frame};

use super::StubOptions;
use crate::rows::RowShape;

/// A message size that keeps the encoder from splitting batches. Batches get their size before they
/// are encoded, as on workers.
const NO_SPLIT_BYTES: usize = usize::MAX / 2;

/// The messages of an answer, as a worker sends them: the schema, the rows, and the end of the
/// stream with its counts.
#[derive(Debug)]
pub struct StubAnswer {
    schema: FlightData,
    /// The messages with rows, each with the number of times that it is sent. Equal messages are
    /// held once.
    rows: Vec<(FlightData, usize)>,
    end: FlightData,
}

impl StubAnswer {
    /// Builds the rows and encodes them.
    ///
    /// # Errors
    /// Returns an error if rows with these options are not possible.
    pub async fn encode(options: &StubOptions) -> Result<Self> {
        let shape = RowShape::new(options.row_bytes)?;
        let batch = shape.batch(options.rows)?;
        let batches = match options.coalesce_bytes {
            None => vec![(batch, options.batches)],
            Some(target_bytes) => {
                let input = std::iter::repeat_n(batch, options.batches).map(Ok);
                let sized = CoalesceBytes::new(stream::iter(input), shape.schema(), target_bytes);
                group_equal_batches(sized.try_collect().await?)
            }
        };
        let times: Vec<usize> = batches.iter().map(|(_, times)| *times).collect();
        let rows: usize = batches
            .iter()
            .map(|(batch, times)| batch.num_rows() * times)
            .sum();
        let encoder = FlightDataEncoderBuilder::new()
            .with_schema(shape.schema())
            .with_max_flight_data_size(NO_SPLIT_BYTES)
            .build(stream::iter(
                batches.into_iter().map(|(batch, _)| Ok(batch)),
            ));
        let mut encoded: Vec<FlightData> = encoder.try_collect().await?;
        ensure!(encoded.len() == times.len() + 1, "a batch is one message");
        let schema = encoded.drain(..1).next().context("no schema")?;
        let end = EndOfStream {
            rows: rows as u64,
            batches: times.iter().sum::<usize>() as u64,
            ..EndOfStream::default()
        };
        Ok(Self {
            schema,
            rows: encoded.into_iter().zip(times).collect(),
            end: FlightData {
                app_metadata: Frame::end(end).to_bytes(),
                ..FlightData::default()
            },
        })
    }

    /// Returns all messages in order.
    pub fn messages(self: &Arc<Self>) -> impl Stream<Item = FlightData> + Send + use<> {
        let last = self.end.clone();
        self.messages_for_clients().chain(stream::iter([last]))
    }

    /// Returns the messages without the end of the stream, as clients receive them.
    pub fn messages_for_clients(self: &Arc<Self>) -> impl Stream<Item = FlightData> + Send + use<> {
        let answer = Arc::clone(self);
        let first = self.schema.clone();
        let rows = (0..self.rows.len()).flat_map(move |at| {
            let (message, times) = &answer.rows[at];
            std::iter::repeat_n(message.clone(), *times)
        });
        stream::iter(std::iter::once(first).chain(rows))
    }
}

/// Groups consecutive batches with the same number of rows. Returns one batch of each group with
/// the number of batches in the group.
fn group_equal_batches(batches: Vec<RecordBatch>) -> Vec<(RecordBatch, usize)> {
    let mut runs: Vec<(RecordBatch, usize)> = Vec::new();
    for batch in batches {
        match runs.last_mut() {
            Some((like, times)) if like.num_rows() == batch.num_rows() => *times += 1,
            _ => runs.push((batch, 1)),
        }
    }
    runs
}
