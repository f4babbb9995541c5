use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetXdbcTypeInfo, Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode,
};
use volary_flight_proto::Result;

/// Most digits of a decimal.
const MAX_DECIMAL_DIGITS: i32 = 76;
/// Most digits after the point of a second.
const MAX_FRACTION_DIGITS: i32 = 9;
/// Number of letters of the longest interval as a text.
const MAX_INTERVAL_LETTERS: i32 = 75;

/// Returns the columns of the answer.
pub(super) fn schema() -> SchemaRef {
    XdbcTypeInfoDataBuilder::new().schema()
}

/// Returns all types, or the ones that map to the given type.
pub(super) fn rows(command: CommandGetXdbcTypeInfo) -> Result<RecordBatch> {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for info in types() {
        builder.append(info);
    }
    Ok(command.into_builder(&builder.build()?).build()?)
}

/// Returns all types. Among those of one number, the type that tools should prefer comes first.
fn types() -> Vec<XdbcTypeInfo> {
    use XdbcDataType as Xdbc;
    use XdbcDatetimeSubcode as Subcode;
    let numbers = [
        number("TINYINT", Xdbc::XdbcTinyint, 3, 10),
        number("SMALLINT", Xdbc::XdbcSmallint, 5, 10),
        number("INTEGER", Xdbc::XdbcInteger, 10, 10),
        number("BIGINT", Xdbc::XdbcBigint, 19, 10),
        number("REAL", Xdbc::XdbcReal, 24, 2),
        number("DOUBLE", Xdbc::XdbcDouble, 53, 2),
        XdbcTypeInfo {
            create_params: created_with(&["precision", "scale"]),
            minimum_scale: Some(-MAX_DECIMAL_DIGITS),
            maximum_scale: Some(MAX_DECIMAL_DIGITS),
            ..number("DECIMAL", Xdbc::XdbcDecimal, MAX_DECIMAL_DIGITS, 10)
        },
        // Clients read these as the next larger types.
        unsigned("TINYINT UNSIGNED", Xdbc::XdbcSmallint, 3),
        unsigned("SMALLINT UNSIGNED", Xdbc::XdbcInteger, 5),
        unsigned("INTEGER UNSIGNED", Xdbc::XdbcBigint, 10),
        unsigned("BIGINT UNSIGNED", Xdbc::XdbcDecimal, 20),
        plain("BOOLEAN", Xdbc::XdbcBit, 1),
    ];
    let texts = [
        text("VARCHAR", Xdbc::XdbcVarchar),
        text("NVARCHAR", Xdbc::XdbcWvarchar),
        text("CHAR", Xdbc::XdbcChar),
        XdbcTypeInfo {
            create_params: None,
            ..text("CLOB", Xdbc::XdbcLongvarchar)
        },
        XdbcTypeInfo {
            create_params: None,
            ..text("JSON", Xdbc::XdbcLongvarchar)
        },
        // Clients get a UUID as a text. There is no number for it.
        quoted("UUID", Xdbc::XdbcChar, 36),
    ];
    let bytes = [
        binary("VARBINARY", Xdbc::XdbcVarbinary, None),
        binary("BINARY", Xdbc::XdbcBinary, created_with(&["length"])),
        binary("BLOB", Xdbc::XdbcLongvarbinary, None),
    ];
    // The size is that of the longest text: with nine digits after the point of a second.
    let times = [
        XdbcTypeInfo {
            sql_data_type: Xdbc::XdbcDatetime,
            datetime_subcode: Some(Subcode::XdbcSubcodeYear),
            ..quoted("DATE", Xdbc::XdbcDate, 10)
        },
        time("TIME", Xdbc::XdbcTime, Subcode::XdbcSubcodeTime, 18),
        time(
            "TIMESTAMP",
            Xdbc::XdbcTimestamp,
            Subcode::XdbcSubcodeTimestamp,
            29,
        ),
        time(
            "TIMESTAMP WITH TIME ZONE",
            Xdbc::XdbcTimestamp,
            Subcode::XdbcSubcodeTimestampWithTimezone,
            35,
        ),
    ];
    let intervals = [
        XdbcTypeInfo {
            literal_prefix: Some("INTERVAL '".to_owned()),
            interval_precision: Some(MAX_FRACTION_DIGITS),
            ..quoted("INTERVAL", Xdbc::XdbcInterval, MAX_INTERVAL_LETTERS)
        },
        XdbcTypeInfo {
            create_params: created_with(&["precision"]),
            minimum_scale: Some(0),
            maximum_scale: Some(MAX_FRACTION_DIGITS),
            ..quoted("DURATION", Xdbc::XdbcInterval, MAX_INTERVAL_LETTERS)
        },
    ];
    let types = numbers.into_iter().chain(texts).chain(bytes);
    types.chain(times).chain(intervals).collect()
}

/// Returns the names of what is written in parentheses behind the name of a type.
fn created_with(parameters: &[&str]) -> Option<Vec<String>> {
    Some(parameters.iter().map(|name| (*name).to_owned()).collect())
}

fn text(name: &str, data_type: XdbcDataType) -> XdbcTypeInfo {
    XdbcTypeInfo {
        case_sensitive: true,
        create_params: created_with(&["length"]),
        ..quoted(name, data_type, i32::MAX)
    }
}

fn binary(name: &str, data_type: XdbcDataType, create_params: Option<Vec<String>>) -> XdbcTypeInfo {
    XdbcTypeInfo {
        literal_prefix: Some("X'".to_owned()),
        create_params,
        ..quoted(name, data_type, i32::MAX)
    }
}

fn time(
    name: &str,
    data_type: XdbcDataType,
    subcode: XdbcDatetimeSubcode,
    column_size: i32,
) -> XdbcTypeInfo {
    XdbcTypeInfo {
        sql_data_type: XdbcDataType::XdbcDatetime,
        datetime_subcode: Some(subcode),
        create_params: created_with(&["precision"]),
        minimum_scale: Some(0),
        maximum_scale: Some(MAX_FRACTION_DIGITS),
        ..quoted(name, data_type, column_size)
    }
}

fn unsigned(name: &str, data_type: XdbcDataType, digits: i32) -> XdbcTypeInfo {
    XdbcTypeInfo {
        unsigned_attribute: Some(true),
        ..number(name, data_type, digits, 10)
    }
}

fn plain(name: &str, data_type: XdbcDataType, column_size: i32) -> XdbcTypeInfo {
    XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type,
        column_size: Some(column_size),
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Full,
        local_type_name: Some(name.to_owned()),
        sql_data_type: data_type,
        ..XdbcTypeInfo::default()
    }
}

fn number(name: &str, data_type: XdbcDataType, digits: i32, radix: i32) -> XdbcTypeInfo {
    XdbcTypeInfo {
        searchable: Searchable::Basic,
        unsigned_attribute: Some(false),
        auto_increment: Some(false),
        num_prec_radix: Some(radix),
        ..plain(name, data_type, digits)
    }
}

fn quoted(name: &str, data_type: XdbcDataType, column_size: i32) -> XdbcTypeInfo {
    XdbcTypeInfo {
        literal_prefix: Some("'".to_owned()),
        literal_suffix: Some("'".to_owned()),
        ..plain(name, data_type, column_size)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;

    #[test]
    fn all_types_are_listed_or_the_one_asked_for() {
        let all = rows(CommandGetXdbcTypeInfo { data_type: None }).unwrap();
        assert_eq!(all.num_rows(), types().len());
        assert_eq!(all.schema(), schema());
        let bigint = rows(CommandGetXdbcTypeInfo {
            data_type: Some(-5),
        })
        .unwrap();
        let names = bigint.column(0).as_string::<i32>();
        let names: Vec<_> = names.iter().flatten().collect();
        assert_eq!(names, ["BIGINT", "INTEGER UNSIGNED"]);
    }
}
