//! Schemas and rows as bytes inside other messages.
//!
//! What is read here travelled in a sealed message: arrow's reader trusts lengths and panics on some schemas that no Arrow
//! library writes, so bytes that a stranger sends must not come here.

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_flight::{FlightData, SchemaAsIpc};
use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{Error, ErrorCode, Result};

/// What stands before the length of an encapsulated message
/// (<https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format>).
const CONTINUATION: u32 = 0xFFFF_FFFF;
const ALIGNMENT: usize = 8;

/// A schema as one encapsulated IPC message, as `FlightInfo.schema` has it and `pyarrow.ipc.read_schema` reads it.
pub fn schema_to_bytes(schema: &Schema) -> Bytes {
    let options = IpcWriteOptions::default();
    let header = FlightData::from(SchemaAsIpc::new(schema, &options)).data_header;
    let padded = header.len().next_multiple_of(ALIGNMENT);
    let mut out = BytesMut::with_capacity(ALIGNMENT + padded);
    out.put_u32_le(CONTINUATION);
    // A schema of 4 GiB cannot be: flatbuffers end at 2 GiB.
    out.put_u32_le(u32::try_from(padded).unwrap_or(u32::MAX));
    out.put_slice(&header);
    out.put_bytes(0, padded - header.len());
    out.freeze()
}

/// Reads what [`schema_to_bytes`] made.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is no schema.
pub fn schema_from_bytes(bytes: &[u8]) -> Result<Schema> {
    try_schema_from_ipc_buffer(bytes).map_err(|source| unreadable("schema", source))
}

/// Batches of one schema as an IPC stream.
///
/// # Errors
/// `INVALID_ARGUMENT` if a batch has another schema.
pub fn batches_to_bytes(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Bytes> {
    let failed = |source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            "rows cannot be encoded as an Arrow IPC stream",
            source,
        )
    };
    let mut writer = StreamWriter::try_new(Vec::new(), schema).map_err(failed)?;
    for batch in batches {
        writer.write(batch).map_err(failed)?;
    }
    writer.into_inner().map(Bytes::from).map_err(failed)
}

/// Reads what [`batches_to_bytes`] made.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is no IPC stream, or one that is cut short.
pub fn batches_from_bytes(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let failed = |source| unreadable("stream", source);
    let reader = StreamReader::try_new(bytes, None).map_err(failed)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    Ok((schema, batches))
}

fn unreadable(what: &str, source: ArrowError) -> Error {
    Error::with_source(
        ErrorCode::InvalidArgument,
        format!(
            "an Arrow IPC {what} inside a message cannot be read; run the same release on all nodes"
        ),
        source,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn batch() -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("s", DataType::Utf8View, true),
        ]);
        RecordBatch::try_new(
            Arc::new(schema),
            vec![
                Arc::new(Int64Array::from(vec![1, 2])),
                Arc::new(StringViewArray::from(vec![
                    Some("a text of more than twelve bytes"),
                    None,
                ])),
            ],
        )
        .unwrap()
    }

    #[test]
    fn a_schema_comes_back_and_is_framed_as_the_specification_says() {
        let bytes = schema_to_bytes(&batch().schema());
        assert_eq!(bytes[..4], [0xFF; 4]);
        assert_eq!(bytes.len() % ALIGNMENT, 0);
        assert_eq!(schema_from_bytes(&bytes).unwrap(), *batch().schema());
        // A stream of this schema begins with the same message.
        let stream = batches_to_bytes(&batch().schema(), &[]).unwrap();
        assert_eq!(schema_from_bytes(&stream).unwrap(), *batch().schema());
    }

    #[test]
    fn batches_come_back_and_none_are_a_stream_too() {
        let schema = batch().schema();
        for batches in [vec![], vec![batch(), batch()]] {
            let bytes = batches_to_bytes(&schema, &batches).unwrap();
            assert_eq!(
                batches_from_bytes(&bytes).unwrap(),
                (schema.clone(), batches)
            );
        }
    }

    #[test]
    fn nonsense_is_the_senders_error() {
        for bytes in [&b""[..], b"abc", b"\xFF\xFF\xFF\xFF\x10\0\0\0abcdefgh"] {
            let code = schema_from_bytes(bytes).unwrap_err().code();
            assert_eq!(code, ErrorCode::InvalidArgument);
            let code = batches_from_bytes(bytes).unwrap_err().code();
            assert_eq!(code, ErrorCode::InvalidArgument);
        }
        let whole = batches_to_bytes(&batch().schema(), &[batch()]).unwrap();
        assert!(batches_from_bytes(&whole[..whole.len() - 40]).is_err());
    }
}
