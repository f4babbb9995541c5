//! A release that changes the format gives it a new number if earlier releases would misread the
//! files. Earlier releases then refuse these files. A change that earlier releases read correctly
//! needs no new number: for example, another size of pages, or more metadata that they ignore.

use parquet::file::metadata::{KeyValue, ParquetMetaData};

use super::page_checksums::Damage;

/// Key of the number in the file's metadata.
const KEY: &str = "volary.format";
/// The first format. Files without a number have it: some releases wrote none.
const FIRST: u32 = 1;
/// The format that is written, and the newest one that is read.
pub(super) const FORMAT: u32 = FIRST;

/// Returns the entry of a file's metadata that tells the format.
pub(super) fn format_entry() -> KeyValue {
    KeyValue::new(KEY.to_owned(), FORMAT.to_string())
}

/// Returns the format of a file with this metadata.
pub(super) fn format_of(metadata: &ParquetMetaData) -> Result<u32, Damage> {
    let entries = metadata.file_metadata().key_value_metadata();
    let Some(entry) = entries.and_then(|entries| entries.iter().find(|entry| entry.key == KEY))
    else {
        return Ok(FIRST);
    };
    let number = entry.value.as_deref().unwrap_or_default();
    let unreadable = |_| Damage(format!("its format \"{number}\" is not a number"));
    number.parse().map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::properties::WriterProperties;

    use super::*;

    fn metadata(entry: Option<KeyValue>) -> Arc<ParquetMetaData> {
        let properties = WriterProperties::builder()
            .set_key_value_metadata(entry.map(|entry| vec![entry]))
            .build();
        let field = Field::new("k", DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![field]));
        let mut file = Vec::new();
        let writer = ArrowWriter::try_new(&mut file, schema, Some(properties));
        writer.unwrap().close().unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file));
        Arc::clone(reader.unwrap().metadata())
    }

    #[test]
    fn the_number_that_was_written_is_read_and_a_missing_one_is_the_first() {
        assert_eq!(
            format_entry(),
            KeyValue::new("volary.format".to_owned(), "1".to_owned())
        );
        assert_eq!(format_of(&metadata(Some(format_entry()))), Ok(FORMAT));
        let newer = KeyValue::new(KEY.to_owned(), "7".to_owned());
        assert_eq!(format_of(&metadata(Some(newer))), Ok(7));
        assert_eq!(format_of(&metadata(None)), Ok(1));
        for text in [Some("-1".to_owned()), Some("seven".to_owned()), None] {
            let entry = KeyValue::new(KEY.to_owned(), text);
            assert!(format_of(&metadata(Some(entry))).is_err());
        }
    }
}
