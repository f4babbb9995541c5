//! The bytes that are decoded here travelled in a sealed message. arrow's reader panics on some
//! bytes that no Arrow library writes. Such a panic becomes `INVALID_ARGUMENT`, like any other
//! fault in the bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_flight::{FlightData, SchemaAsIpc};
use bytes::{BufMut, Bytes, BytesMut};

use crate::compressed;
use crate::error::{Error, ErrorCode, Result};

/// Marks the beginning of an encapsulated message, before its length
/// (<https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format>).
const CONTINUATION: u32 = 0xFFFF_FFFF;
const ALIGNMENT: usize = 8;

/// Encodes a schema as one encapsulated IPC message. `FlightInfo.schema` contains a schema in this
/// form, and `pyarrow.ipc.read_schema` reads it.
pub fn schema_to_bytes(schema: &Schema) -> Bytes {
    let options = IpcWriteOptions::default();
    let header = FlightData::from(SchemaAsIpc::new(schema, &options)).data_header;
    let padded = header.len().next_multiple_of(ALIGNMENT);
    let mut out = BytesMut::with_capacity(ALIGNMENT + padded);
    out.put_u32_le(CONTINUATION);
    // The length always fits, because flatbuffers end at 2 GiB.
    out.put_u32_le(u32::try_from(padded).unwrap_or(u32::MAX));
    out.put_slice(&header);
    out.put_bytes(0, padded - header.len());
    out.freeze()
}

/// Decodes a schema that [`schema_to_bytes`] encoded.
///
/// # Errors
/// `INVALID_ARGUMENT` if the bytes are not a schema.
pub fn schema_from_bytes(bytes: &[u8]) -> Result<Schema> {
    read("schema", || try_schema_from_ipc_buffer(bytes))
}

/// Encodes batches of one schema as an IPC stream.
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

/// Decodes batches that [`batches_to_bytes`] encoded.
///
/// # Errors
/// `INVALID_ARGUMENT` if the bytes are not an IPC stream, are compressed, or are cut short.
pub fn batches_from_bytes(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    read("stream", || {
        refuse_compressed(bytes)?;
        // `StreamReader` would allocate as many bytes as a message announces, before it checks that
        // they exist.
        let mut decoder = StreamDecoder::new();
        let mut rest = Buffer::from(bytes);
        let mut batches = Vec::new();
        while let Some(batch) = decoder.decode(&mut rest)? {
            batches.push(batch);
        }
        decoder.finish()?;
        let schema = decoder
            .schema()
            .ok_or_else(|| ArrowError::IpcError("there is no schema".to_owned()))?;
        Ok((schema, batches))
    })
}

/// Refuses compressed messages. No node compresses what is read here, and the reader would allocate
/// as much memory as a compressed message states.
fn refuse_compressed(mut bytes: &[u8]) -> Result<(), ArrowError> {
    // If the bytes are not a message, or are cut short, the decoder says what is wrong.
    while let Some((header, rest)) = encapsulated_header(bytes)
        && let Ok(message) = root_as_message(header)
    {
        if compressed::uncompressed_bytes_of(&message, rest).is_some() {
            return Err(ArrowError::IpcError("it is compressed".to_owned()));
        }
        let body = usize::try_from(message.bodyLength()).ok();
        bytes = body.and_then(|body| rest.get(body..)).unwrap_or_default();
    }
    Ok(())
}

/// Returns the header of the first message, and all bytes that follow it. Returns `None` at the
/// end.
fn encapsulated_header(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut length, mut rest) = bytes.split_first_chunk::<4>()?;
    if *length == CONTINUATION.to_le_bytes() {
        (length, rest) = rest.split_first_chunk::<4>()?;
    }
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    (length > 0)
        .then(|| rest.split_at_checked(length))
        .flatten()
}

fn read<T>(what: &str, read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T> {
    // After a panic, nothing that `read` may have left half done is used again.
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ArrowError::IpcError("the reader panicked".to_owned())))
        .map_err(|source| unreadable(what, source))
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
    use arrow::ipc::CompressionType;

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
    fn whatever_byte_is_altered_it_is_read_or_the_senders_error() {
        let schema = schema_to_bytes(&batch().schema());
        let stream = batches_to_bytes(&batch().schema(), &[batch()]).unwrap();
        // Some of these bytes are lengths. The bytes that an altered length promises do not exist,
        // and must not be allocated.
        for with in [0x01, 0x80, 0xFF] {
            for at in 0..schema.len() {
                let refused = schema_from_bytes(&altered(&schema, at, with)).err();
                assert!(refused.is_none_or(|error| error.code() == ErrorCode::InvalidArgument));
            }
            for at in 0..stream.len() {
                let refused = batches_from_bytes(&altered(&stream, at, with)).err();
                assert!(refused.is_none_or(|error| error.code() == ErrorCode::InvalidArgument));
            }
        }
    }

    #[test]
    fn compressed_rows_are_refused() {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .unwrap();
        let schema = batch().schema();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        writer.write(&batch()).unwrap();
        let refused = batches_from_bytes(&writer.into_inner().unwrap()).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
        assert!(format!("{refused:?}").contains("compressed"), "{refused:?}");
    }

    fn altered(bytes: &[u8], at: usize, with: u8) -> Vec<u8> {
        let mut altered = bytes.to_vec();
        altered[at] ^= with;
        altered
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
