use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Fields, UnionFields};

use volary_exec::uuids::{UUID, UUID_EXTENSION};

use super::TypeProfile;
use crate::sql_type::{TYPE_NAME, sql_type_name};

/// The beginning of the keys of metadata for JDBC and ODBC.
const FLIGHT_SQL: &str = "ARROW:FLIGHT:SQL:";
const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

/// Number of decimal digits of the largest UInt64.
const UINT64_DIGITS: u8 = 20;

/// Returns the field that a client is sent in the place of `field`.
pub(crate) fn map_field(profile: TypeProfile, field: &Field) -> Field {
    let data_type = map_type(profile, field.data_type());
    let mut metadata = field.metadata().clone();
    if profile == TypeProfile::Native {
        // Arrow's own types say it all.
        metadata.retain(|key, _| !key.starts_with(FLIGHT_SQL));
    }
    let mut nullable = field.is_nullable();
    if data_type == UUID {
        metadata.insert(EXTENSION_NAME.to_owned(), UUID_EXTENSION.to_owned());
    } else if *field.data_type() == UUID {
        // Clients that know UUIDs can find out that this text is one.
        metadata.insert(TYPE_NAME.to_owned(), sql_type_name(&UUID));
    }
    if data_type != *field.data_type() {
        // An extension type is bound to its storage type. Clients refuse a schema that has the
        // extension on another storage type.
        metadata.remove(EXTENSION_NAME);
        metadata.remove(EXTENSION_METADATA);
        // A run-end encoded array has its NULLs in its values.
        if let DataType::RunEndEncoded(_, values) = field.data_type() {
            nullable |= values.is_nullable();
        }
    }
    if matches!(data_type, DataType::Union(_, _)) {
        // arrow-flight's encoder announces unions as not nullable and without metadata, and a
        // FlightInfo must announce the same.
        return Field::new(field.name(), data_type, false);
    }
    Field::new(field.name(), data_type, nullable).with_metadata(metadata)
}

/// Returns the type that a client is sent in the place of `data_type`.
fn map_type(profile: TypeProfile, data_type: &DataType) -> DataType {
    let classic = profile == TypeProfile::Classic;
    match data_type {
        DataType::Dictionary(_, values) => map_type(profile, values),
        DataType::RunEndEncoded(_, values) if classic => {
            map_field(profile, values).data_type().clone()
        }
        DataType::RunEndEncoded(ends, values) => {
            DataType::RunEndEncoded(ends.clone(), map_child(profile, values))
        }
        DataType::List(item) | DataType::LargeList(item) => {
            DataType::List(map_child(profile, item))
        }
        DataType::ListView(item) | DataType::LargeListView(item) if classic => {
            DataType::List(map_child(profile, item))
        }
        DataType::ListView(item) => DataType::ListView(map_child(profile, item)),
        DataType::LargeListView(item) => DataType::LargeListView(map_child(profile, item)),
        DataType::FixedSizeList(item, size) => {
            DataType::FixedSizeList(map_child(profile, item), *size)
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|field| map_child(profile, field))
                .collect(),
        ),
        DataType::Map(entries, sorted) => DataType::Map(map_entries(profile, entries), *sorted),
        DataType::Union(fields, mode) => DataType::Union(map_members(profile, fields), *mode),
        leaf if classic => classic_leaf(leaf),
        leaf => leaf.clone(),
    }
}

fn classic_leaf(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => DataType::Utf8,
        uuid if *uuid == UUID => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(UINT64_DIGITS, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Decimal256(precision, scale) if *precision <= DECIMAL128_MAX_PRECISION => {
            DataType::Decimal128(*precision, *scale)
        }
        other => other.clone(),
    }
}

fn map_child(profile: TypeProfile, field: &FieldRef) -> FieldRef {
    Arc::new(map_field(profile, field))
}

/// Maps the entries of a map. In the classic profile they are named `key` and `value`, because JDBC
/// reads them by name.
fn map_entries(profile: TypeProfile, entries: &FieldRef) -> FieldRef {
    let mapped = map_field(profile, entries);
    let DataType::Struct(children) = mapped.data_type() else {
        return Arc::new(mapped);
    };
    if profile == TypeProfile::Native {
        return Arc::new(mapped);
    }
    let renamed: Fields = children
        .iter()
        .zip(["key", "value"])
        .map(|(child, name)| Arc::new(child.as_ref().clone().with_name(name)))
        .collect();
    Arc::new(mapped.with_data_type(DataType::Struct(renamed)))
}

fn map_members(profile: TypeProfile, fields: &UnionFields) -> UnionFields {
    fields
        .iter()
        .map(|(id, field)| (id, map_child(profile, field)))
        .collect()
}
