//! What Arrow knows beyond Parquet's types (seconds, durations, dictionaries) is in the usual
//! `ARROW:schema` entry. Views are not recorded there: they are only a layout in memory, and older
//! readers do not know them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::file::metadata::KeyValue;

/// Returns the entry of a file's metadata that records the schema of a table.
pub(super) fn schema_entry(schema: &Schema) -> KeyValue {
    let encoded = encode_arrow_schema(&without_views(schema));
    KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encoded)
}

fn without_views(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(without_views_in_field);
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

fn without_views_in_field(field: &FieldRef) -> FieldRef {
    let plain = Field::clone(field).with_data_type(without_views_in_type(field.data_type()));
    Arc::new(plain)
}

fn without_views_in_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) | DataType::ListView(item) => {
            DataType::List(without_views_in_field(item))
        }
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(without_views_in_field(item))
        }
        DataType::FixedSizeList(item, size) => {
            DataType::FixedSizeList(without_views_in_field(item), *size)
        }
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(without_views_in_field).collect())
        }
        DataType::Map(entry, sorted) => DataType::Map(without_views_in_field(entry), *sorted),
        DataType::Dictionary(key, value) => {
            DataType::Dictionary(key.clone(), Box::new(without_views_in_type(value)))
        }
        other => other.clone(),
    }
}
