use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, IntervalUnit, TimeUnit,
};
use volary_exec::uuids::UUID;

/// The name of the type of differences between timestamps, which the parser does not know.
pub(crate) const DURATION: &str = "DURATION";

/// Returns the SQL name of a type. CREATE TABLE takes this name, if it takes the type.
pub(crate) fn sql_type_name(data_type: &DataType) -> String {
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
        uuid if *uuid == UUID => "UUID",
        DataType::FixedSizeBinary(_) => "BINARY",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(unit) | DataType::Time64(unit) => return format!("TIME{}", digits(*unit)),
        DataType::Duration(unit) => return format!("{DURATION}{}", digits(*unit)),
        DataType::Timestamp(unit, None) => return format!("TIMESTAMP{}", digits(*unit)),
        DataType::Timestamp(unit, Some(_)) => {
            return format!("TIMESTAMP{} WITH TIME ZONE", digits(*unit));
        }
        DataType::Interval(IntervalUnit::YearMonth) => "INTERVAL YEAR TO MONTH",
        DataType::Interval(IntervalUnit::DayTime) => "INTERVAL DAY TO SECOND",
        DataType::Interval(IntervalUnit::MonthDayNano) => "INTERVAL",
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

/// The keys of Flight SQL's metadata about the type of a column.
pub(crate) const TYPE_NAME: &str = "ARROW:FLIGHT:SQL:TYPE_NAME";
const PRECISION: &str = "ARROW:FLIGHT:SQL:PRECISION";
const SCALE: &str = "ARROW:FLIGHT:SQL:SCALE";

/// Returns Flight SQL's metadata about a column of this type. JDBC and ODBC read the number of
/// digits from it, and ODBC the name of the type.
pub(crate) fn driver_metadata(data_type: &DataType) -> impl Iterator<Item = (String, String)> {
    // Generators of code and checks of schemas know the name that the standard has.
    let name = match sql_type_name(data_type) {
        name if name == "BYTEA" => "VARBINARY".to_owned(),
        name => name,
    };
    let (precision, scale) = match data_type {
        DataType::Int8 => (Some(3), None),
        DataType::Int16 | DataType::UInt8 => (Some(5), None),
        DataType::Int32 | DataType::UInt16 => (Some(10), None),
        DataType::Int64 | DataType::UInt32 => (Some(19), None),
        DataType::UInt64 => (Some(20), Some(0)),
        DataType::Float16 | DataType::Float32 => (Some(7), None),
        DataType::Float64 => (Some(15), None),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (Some(*precision), Some(*scale)),
        _ => (None, None),
    };
    let entry = |key: &str, value: String| (key.to_owned(), value);
    [
        Some(entry(TYPE_NAME, name)),
        precision.map(|digits| entry(PRECISION, digits.to_string())),
        scale.map(|digits| entry(SCALE, digits.to_string())),
    ]
    .into_iter()
    .flatten()
}

/// Returns the type of decimals with this precision and scale. Returns `None` if no type has so
/// many digits.
pub(crate) fn decimal_type(precision: u8, scale: i8) -> Option<DataType> {
    if precision <= DECIMAL128_MAX_PRECISION {
        Some(DataType::Decimal128(precision, scale))
    } else if precision <= DECIMAL256_MAX_PRECISION {
        Some(DataType::Decimal256(precision, scale))
    } else {
        None
    }
}

/// Returns the number of digits after the point of a second.
pub(crate) fn fraction_digits(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Returns the number of digits after the point of a second, in parentheses. Microseconds are the
/// default.
fn digits(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "(0)",
        TimeUnit::Millisecond => "(3)",
        TimeUnit::Microsecond => "",
        TimeUnit::Nanosecond => "(9)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name() {
        let list = DataType::new_list(DataType::Utf8View, true);
        assert_eq!(sql_type_name(&list), "VARCHAR[]");
        assert_eq!(
            sql_type_name(&DataType::Decimal128(15, 2)),
            "DECIMAL(15, 2)"
        );
        assert_eq!(sql_type_name(&DataType::UInt64), "BIGINT UNSIGNED");
    }
}
