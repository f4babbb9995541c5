//! A compressed buffer of Arrow IPC states its uncompressed size. arrow's reader allocates that
//! many bytes before it checks whether the size is true, so a few bytes that claim 2⁵⁶ end the
//! process.

use arrow::ipc::{Message, MessageHeader, RecordBatch, root_as_message};

/// Length of the uncompressed size, which stands at the start of a compressed buffer.
const PREFIX_BYTES: usize = 8;

/// Returns the sum of the uncompressed sizes that the buffers of a message state. Returns `None` if
/// the message is not compressed.
pub fn uncompressed_bytes(header: &[u8], body: &[u8]) -> Option<usize> {
    // If the bytes are not a message, the reader says what is wrong.
    uncompressed_bytes_of(&root_as_message(header).ok()?, body)
}

/// Returns what [`uncompressed_bytes`] returns, for a message that is already parsed.
pub(crate) fn uncompressed_bytes_of(message: &Message<'_>, body: &[u8]) -> Option<usize> {
    let batch = batch_of(message)?;
    batch.compression()?;
    let buffers = batch.buffers().into_iter().flatten();
    let sizes = buffers.map(|buffer| {
        let offset = usize::try_from(buffer.offset()).ok()?;
        let length = usize::try_from(buffer.length()).ok()?;
        // An empty buffer has no prefix. Its offset is that of the next buffer.
        let compressed = body.get(offset..offset.checked_add(length)?)?;
        let prefix = compressed.first_chunk::<PREFIX_BYTES>()?;
        // A negative size means that this buffer is not compressed.
        usize::try_from(i64::from_le_bytes(*prefix)).ok()
    });
    Some(sizes.flatten().fold(0, usize::saturating_add))
}

/// Returns the rows of a message, or the values of its dictionary.
fn batch_of<'a>(message: &Message<'a>) -> Option<RecordBatch<'a>> {
    match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch()?.data(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{DictionaryArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Int32Type;
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::{
        DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    };

    use super::*;

    fn encoded(compression: Option<CompressionType>) -> Vec<EncodedData> {
        let numbers = Int64Array::from_iter_values((0..1_000).map(|_| 7));
        let names = vec!["kea"; 1_000].into_iter();
        let names: DictionaryArray<Int32Type> = names.collect();
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(numbers) as _),
            ("s", Arc::new(StringArray::from(vec!["kea"; 1_000])) as _),
            ("d", Arc::new(names) as _),
        ]);
        let options = IpcWriteOptions::default().try_with_compression(compression);
        let mut tracker = DictionaryTracker::new(true);
        let generator = IpcDataGenerator::default();
        let batch = batch.unwrap();
        let options = options.unwrap();
        let _schema = generator.schema_to_bytes_with_dictionary_tracker(
            &batch.schema(),
            &mut tracker,
            &options,
        );
        let (dictionaries, batch) = generator
            .encode(
                &batch,
                &mut tracker,
                &options,
                &mut IpcWriteContext::default(),
            )
            .unwrap();
        dictionaries.into_iter().chain([batch]).collect()
    }

    #[test]
    fn what_a_compressed_message_says_is_added_up() {
        for compression in [CompressionType::ZSTD, CompressionType::LZ4_FRAME] {
            let messages = encoded(Some(compression));
            let sizes = messages
                .iter()
                .map(|message| uncompressed_bytes(&message.ipc_message, &message.arrow_data));
            // A dictionary of one word is too small to be compressed. The offsets of equal texts
            // may stay uncompressed, too.
            let sizes: Vec<_> = sizes.collect();
            let (least, offsets) = (8_000 + 3_000 + 4_000, 4_004);
            assert!(
                sizes == [Some(0), Some(least)] || sizes == [Some(0), Some(least + offsets)],
                "{sizes:?}"
            );
        }
        for message in encoded(None) {
            assert_eq!(
                uncompressed_bytes(&message.ipc_message, &message.arrow_data),
                None
            );
        }
    }

    #[test]
    fn what_is_said_is_not_believed_to_fit() {
        let mut message = encoded(Some(CompressionType::ZSTD)).pop().unwrap();
        let size = (1_i64 << 56).to_le_bytes();
        message.arrow_data[..8].copy_from_slice(&size);
        let said = uncompressed_bytes(&message.ipc_message, &message.arrow_data);
        assert!(said.unwrap() >= 1 << 56);
        assert_eq!(uncompressed_bytes(b"no message", &[]), None);
        // A body that is cut short states no size.
        assert_eq!(uncompressed_bytes(&message.ipc_message, &[]), Some(0));
    }
}
