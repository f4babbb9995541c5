//! What a stub sends.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use volary_flight_proto::frame::{EndOfStream, Frame};
use volary_node::batches::CoalesceBytes;

use super::StubOptions;
use crate::rows::RowShape;

/// Batches are sized before they are encoded, as workers do it.
const NO_SPLIT_BYTES: usize = usize::MAX / 2;

/// Messages as a worker sends them: the schema, rows, and the end of the stream with its counts.
#[derive(Debug)]
pub struct Answer {
    schema: FlightData,
    /// And how often each is sent: like messages are held once.
    rows: Vec<(FlightData, usize)>,
    end: FlightData,
}

impl Answer {
    /// Makes and encodes the rows.
    ///
    /// # Errors
    /// If there are no such rows.
    pub async fn encode(options: &StubOptions) -> Result<Self> {
        let shape = RowShape::new(options.row_bytes)?;
        let batch = shape.batch(options.rows)?;
        let batches = match options.coalesce_bytes {
            None => vec![(batch, options.batches)],
            Some(target_bytes) => {
                let input = std::iter::repeat_n(batch, options.batches).map(Ok);
                let sized = CoalesceBytes::new(stream::iter(input), shape.schema(), target_bytes);
                repeated(sized.try_collect().await?)
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

    /// All messages, in order.
    pub fn messages(self: &Arc<Self>) -> impl Stream<Item = FlightData> + Send + use<> {
        let last = self.end.clone();
        self.messages_for_clients().chain(stream::iter([last]))
    }

    /// The same as clients know it: nothing follows the rows.
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

/// Batches of as many rows, one after another, as one of them and their number.
fn repeated(batches: Vec<RecordBatch>) -> Vec<(RecordBatch, usize)> {
    let mut runs: Vec<(RecordBatch, usize)> = Vec::new();
    for batch in batches {
        match runs.last_mut() {
            Some((like, times)) if like.num_rows() == batch.num_rows() => *times += 1,
            _ => runs.push((batch, 1)),
        }
    }
    runs
}
