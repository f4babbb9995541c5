use arrow::datatypes::{DataType, TimeUnit};
use volary_exec::intervals::INTERVAL;
use volary_exec::uuids::UUID;

use super::super::column::Column;
use super::table::{InformationTable, Listed, ListedTable};
use crate::sql_type::{fraction_digits, sql_type_name};

pub(super) struct Columns;

/// A column of a table or view.
pub(super) struct ListedColumn {
    catalog: String,
    schema: String,
    table: String,
    name: String,
    /// Position of the column. The first one is 1.
    position: u64,
    default: Option<String>,
    data_type: DataType,
    is_nullable: bool,
    comment: Option<String>,
}

impl InformationTable for Columns {
    type Row = ListedColumn;

    const NAME: &'static str = "columns";

    const COLUMNS: &'static [Column<ListedColumn>] = &[
        Column::text("table_catalog", |it| it.catalog.clone()),
        Column::text("table_schema", |it| it.schema.clone()),
        Column::text("table_name", |it| it.table.clone()),
        Column::text("column_name", |it| it.name.clone()),
        Column::number("ordinal_position", |it| it.position),
        Column::optional_text("column_default", |it| it.default.clone()),
        Column::text("is_nullable", |it| {
            if it.is_nullable { "YES" } else { "NO" }.to_owned()
        }),
        Column::text("data_type", |it| sql_type_name(&it.data_type)),
        Column::optional_number("character_maximum_length", |_| None),
        Column::optional_number("character_octet_length", |it| max_octets(&it.data_type)),
        Column::optional_number("numeric_precision", |it| {
            Some(numeric(&it.data_type)?.precision)
        }),
        Column::optional_number("numeric_precision_radix", |it| {
            Some(numeric(&it.data_type)?.radix)
        }),
        Column::optional_number("numeric_scale", |it| numeric(&it.data_type)?.scale),
        Column::optional_number("datetime_precision", |it| datetime_precision(&it.data_type)),
        Column::optional_text("interval_type", |_| None),
        Column::optional_text("comment", |it| it.comment.clone()),
    ];

    fn rows(listed: &Listed) -> Vec<ListedColumn> {
        listed.tables.iter().flat_map(columns).collect()
    }
}

fn columns(table: &ListedTable) -> Vec<ListedColumn> {
    let defaults = table.declarations().map(|it| &it.defaults);
    let comments = table.declarations().map(|it| &it.column_comments);
    let schema = table.columns();
    let columns = (1..).zip(schema.fields().iter().enumerate());
    let columns = columns.map(|(position, (index, field))| ListedColumn {
        catalog: table.catalog.clone(),
        schema: table.schema.clone(),
        table: table.name.clone(),
        name: field.name().clone(),
        position,
        default: defaults.and_then(|it| it.get(&index).cloned()),
        data_type: field.data_type().clone(),
        is_nullable: field.is_nullable(),
        comment: comments.and_then(|it| it.get(&index).cloned()),
    });
    columns.collect()
}

/// Returns the length in bytes that values of a type may have, if the type limits it.
fn max_octets(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Utf8 | DataType::Binary | DataType::Utf8View | DataType::BinaryView => {
            u64::try_from(i32::MAX).ok()
        }
        DataType::LargeUtf8 | DataType::LargeBinary => u64::try_from(i64::MAX).ok(),
        uuid if *uuid == UUID => None,
        DataType::FixedSizeBinary(size) => u64::try_from(*size).ok(),
        _ => None,
    }
}

/// The precision of a numeric type, in digits of the radix.
struct Numeric {
    precision: u64,
    radix: u64,
    scale: Option<u64>,
}

fn numeric(data_type: &DataType) -> Option<Numeric> {
    let (precision, radix, scale) = match data_type {
        DataType::Int8 | DataType::UInt8 => (8, 2, Some(0)),
        DataType::Int16 | DataType::UInt16 => (16, 2, Some(0)),
        DataType::Int32 | DataType::UInt32 => (32, 2, Some(0)),
        DataType::Int64 | DataType::UInt64 => (64, 2, Some(0)),
        DataType::Float16 => (11, 2, None),
        DataType::Float32 => (24, 2, None),
        DataType::Float64 => (53, 2, None),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (u64::from(*precision), 10, u64::try_from(*scale).ok())
        }
        _ => return None,
    };
    Some(Numeric {
        precision,
        radix,
        scale,
    })
}

/// Returns the number of digits of the second's fraction.
fn datetime_precision(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Date32 | DataType::Date64 => Some(0),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            Some(u64::from(fraction_digits(*unit)))
        }
        DataType::Duration(unit) => Some(u64::from(fraction_digits(*unit))),
        interval if *interval == INTERVAL => Some(u64::from(fraction_digits(TimeUnit::Nanosecond))),
        _ => None,
    }
}
