//! The payload of a frame with rows is the length of its description (u32, little-endian), the
//! [description](LoggedWrite), the length of the header of an Arrow IPC message (u32), this header,
//! and the body of the message.

use arrow::array::RecordBatch;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::FlightData;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::log::{ContextFrame, NewFrame};

/// The kind of frames with the description of a table, which later frames of their file need.
pub(super) const TABLE: u32 = 1;
/// The kind of frames with rows of a write.
pub(super) const ROWS: u32 = 2;

/// What a frame has besides the rows.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LoggedWrite {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub(super) table: u64,
    /// Id of the write.
    #[prost(uint64, tag = "2")]
    pub(super) write: u64,
    /// The shards that have rows, ascending.
    #[prost(uint32, repeated, tag = "3")]
    pub(super) shards: Vec<u32>,
    /// Number of rows of each of these shards. The rows are in the order of the shards.
    #[prost(uint64, repeated, tag = "4")]
    pub(super) rows: Vec<u64>,
    /// Number of committed writes that the worker had heard of.
    #[prost(uint64, tag = "5")]
    pub(super) commits: u64,
    /// The incarnation of the catalog that gave out the number of the write. A catalog that was
    /// recovered gives out some numbers again. It is 0 if the gateway does not name incarnations.
    #[prost(fixed32, tag = "6")]
    pub(super) incarnation: u32,
}

impl LoggedWrite {
    /// Returns the shards with the number of rows of each. Returns `None` if these are not `rows`
    /// rows together.
    pub(super) fn counts(&self, rows: usize) -> Option<Vec<(u32, usize)>> {
        if self.shards.len() != self.rows.len() {
            return None;
        }
        let mut total = 0_usize;
        let mut counts = Vec::with_capacity(self.shards.len());
        for (shard, count) in self.shards.iter().zip(&self.rows) {
            let count = usize::try_from(*count).ok()?;
            total = total.checked_add(count)?;
            counts.push((*shard, count));
        }
        (total == rows).then_some(counts)
    }
}

/// Encodes the rows of a write as a frame.
///
/// # Errors
/// Returns `INTERNAL` if the rows cannot be encoded.
pub(super) fn encode(
    table: &TableDescription,
    described: &LoggedWrite,
    rows: &RecordBatch,
) -> Result<NewFrame> {
    let options = IpcWriteOptions::default();
    let (_, message) = IpcDataGenerator::default()
        .encode(
            rows,
            &mut DictionaryTracker::new(false),
            &options,
            &mut IpcWriteContext::default(),
        )
        .map_err(|source| {
            let text = "rows cannot be encoded for the log";
            Error::with_source(ErrorCode::Internal, text, source)
        })?;
    let description = described.encode_to_vec();
    let mut head = BytesMut::with_capacity(8 + description.len() + message.ipc_message.len());
    for part in [&description, &message.ipc_message] {
        head.put_u32_le(u32::try_from(part.len()).unwrap_or(u32::MAX));
        head.put_slice(part);
    }
    Ok(NewFrame {
        kind: ROWS,
        payload: vec![head.freeze(), message.arrow_data.into()],
        context: Some(ContextFrame {
            key: table.table_id,
            kind: TABLE,
            payload: table.encode_to_vec().into(),
        }),
    })
}

/// Splits the payload of a frame into the description and the rows, which are still encoded.
pub(super) fn split(payload: &Bytes) -> Option<(LoggedWrite, FlightData)> {
    let (description, rest) = take_part(payload)?;
    let (data_header, data_body) = take_part(&rest)?;
    let described = LoggedWrite::decode(description).ok()?;
    let rows = FlightData {
        data_header,
        data_body,
        ..FlightData::default()
    };
    Some((described, rows))
}

fn take_part(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let end = length.checked_add(4).filter(|end| *end <= bytes.len())?;
    Some((bytes.slice(4..end), bytes.slice(end..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_all_rows() {
        let write = |shards: &[u32], rows: &[u64]| LoggedWrite {
            shards: shards.to_vec(),
            rows: rows.to_vec(),
            ..LoggedWrite::default()
        };
        assert_eq!(
            write(&[1, 5], &[2, 1]).counts(3),
            Some(vec![(1, 2), (5, 1)])
        );
        assert_eq!(write(&[], &[]).counts(0), Some(Vec::new()));
        for (shards, rows) in [
            (&[1, 5][..], &[2, 2][..]),
            (&[1, 5], &[3]),
            (&[1], &[3, 0]),
            // Their sum is 3 only if it wraps.
            (&[1, 5], &[u64::MAX, 4]),
        ] {
            assert_eq!(write(shards, rows).counts(3), None, "{shards:?} {rows:?}");
        }
    }
}
