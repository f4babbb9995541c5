//! The Arrow schema that is recorded in a segment's file.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};

pub(super) fn without_views(schema: &Schema) -> Schema {
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
