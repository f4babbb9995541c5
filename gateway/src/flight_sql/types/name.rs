//! What a type is called in SQL, and the field metadata that drivers read it from.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

const CATALOG_NAME: &str = "ARROW:FLIGHT:SQL:CATALOG_NAME";
const SCHEMA_NAME: &str = "ARROW:FLIGHT:SQL:DB_SCHEMA_NAME";
const TABLE_NAME: &str = "ARROW:FLIGHT:SQL:TABLE_NAME";
const TYPE_NAME: &str = "ARROW:FLIGHT:SQL:TYPE_NAME";
const PRECISION: &str = "ARROW:FLIGHT:SQL:PRECISION";
const SCALE: &str = "ARROW:FLIGHT:SQL:SCALE";

/// `field`, as it is sent, with what Flight SQL says about a column of the table; `original` is the type that the table has.
/// ODBC's SQLColumns crashes on a field without metadata.
pub(in crate::flight_sql) fn with_sql_metadata(
    field: &Field,
    original: &DataType,
    table: [&str; 3],
) -> Field {
    let [catalog, schema, name] = table;
    let mut metadata: HashMap<String, String> = field.metadata().clone();
    let mut put = |key: &str, value: String| metadata.insert(key.to_owned(), value);
    put(CATALOG_NAME, catalog.to_owned());
    put(SCHEMA_NAME, schema.to_owned());
    put(TABLE_NAME, name.to_owned());
    put(TYPE_NAME, sql_type_name(original));
    if let DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) =
        field.data_type()
    {
        put(PRECISION, precision.to_string());
        put(SCALE, scale.to_string());
    }
    field.clone().with_metadata(metadata)
}

/// The type's name in SQL, as CREATE TABLE takes it where it can.
pub(super) fn sql_type_name(data_type: &DataType) -> String {
    let fixed = match data_type {
        DataType::Null => "NULL",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float16 | DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA",
        DataType::FixedSizeBinary(_) => "BINARY",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP(0)",
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP(3)",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP(6)",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP",
        DataType::Interval(IntervalUnit::YearMonth) => "INTERVAL YEAR TO MONTH",
        DataType::Interval(IntervalUnit::DayTime) => "INTERVAL DAY TO SECOND",
        DataType::Interval(IntervalUnit::MonthDayNano) => "INTERVAL",
        DataType::Duration(_) => "DURATION",
        DataType::Map(_, _) => "MAP",
        DataType::Struct(_) => "STRUCT",
        DataType::Union(_, _) => "UNION",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            return format!("DECIMAL({precision}, {scale})");
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            return format!("{}[]", sql_type_name(item.data_type()));
        }
        DataType::Dictionary(_, values) => return sql_type_name(values),
        DataType::RunEndEncoded(_, values) => return sql_type_name(values.data_type()),
    };
    fixed.to_owned()
}
