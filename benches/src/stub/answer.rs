//! What a stub sends.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use futures::{Stream, TryStreamExt, stream};
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
    rows: Vec<FlightData>,
    /// How often `rows` are sent: like messages are held once.
    times: usize,
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
        let (batches, times) = match options.coalesce_bytes {
            None => (vec![batch], options.batches),
            Some(target_bytes) => {
                let input = std::iter::repeat_n(batch, options.batches).map(Ok);
                let sized = CoalesceBytes::new(stream::iter(input), shape.schema(), target_bytes);
                let batches: Vec<RecordBatch> = sized.try_collect().await?;
                (batches, 1)
            }
        };
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let messages = batches.len();
        let encoder = FlightDataEncoderBuilder::new()
            .with_schema(shape.schema())
            .with_max_flight_data_size(NO_SPLIT_BYTES)
            .build(stream::iter(batches.into_iter().map(Ok)));
        let mut encoded: Vec<FlightData> = encoder.try_collect().await?;
        ensure!(encoded.len() == messages + 1, "a batch is one message");
        let schema = encoded.drain(..1).next().context("no schema")?;
        let end = EndOfStream {
            rows: (rows * times) as u64,
            batches: (messages * times) as u64,
            ..EndOfStream::default()
        };
        Ok(Self {
            schema,
            rows: encoded,
            times,
            end: FlightData {
                app_metadata: Frame::end(end).to_bytes(),
                ..FlightData::default()
            },
        })
    }

    /// All messages, in order.
    pub fn messages(self: &Arc<Self>) -> impl Stream<Item = FlightData> + Send + use<> {
        let answer = Arc::clone(self);
        let (first, last) = (self.schema.clone(), self.end.clone());
        let messages = 0..self.rows.len() * self.times;
        let rows = messages.map(move |at| answer.rows[at % answer.rows.len()].clone());
        stream::iter(
            std::iter::once(first)
                .chain(rows)
                .chain(std::iter::once(last)),
        )
    }
}
