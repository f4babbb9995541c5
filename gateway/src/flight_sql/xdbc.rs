use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetXdbcTypeInfo, Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode,
};
use volary_flight_proto::Result;

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

fn types() -> Vec<XdbcTypeInfo> {
    use XdbcDataType as Xdbc;
    let timestamp = XdbcTypeInfo {
        sql_data_type: Xdbc::XdbcDatetime,
        datetime_subcode: Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
        minimum_scale: Some(0),
        maximum_scale: Some(9),
        ..quoted("TIMESTAMP", Xdbc::XdbcTimestamp, 29)
    };
    vec![
        number("TINYINT", Xdbc::XdbcTinyint, 3, 10),
        number("SMALLINT", Xdbc::XdbcSmallint, 5, 10),
        number("INTEGER", Xdbc::XdbcInteger, 10, 10),
        number("BIGINT", Xdbc::XdbcBigint, 19, 10),
        number("REAL", Xdbc::XdbcReal, 24, 2),
        number("DOUBLE", Xdbc::XdbcDouble, 53, 2),
        XdbcTypeInfo {
            create_params: Some(vec!["precision".to_owned(), "scale".to_owned()]),
            minimum_scale: Some(0),
            maximum_scale: Some(38),
            ..number("DECIMAL", Xdbc::XdbcDecimal, 38, 10)
        },
        plain("BOOLEAN", Xdbc::XdbcBit, 1),
        XdbcTypeInfo {
            case_sensitive: true,
            ..quoted("VARCHAR", Xdbc::XdbcVarchar, i32::MAX)
        },
        XdbcTypeInfo {
            literal_prefix: Some("X'".to_owned()),
            ..quoted("VARBINARY", Xdbc::XdbcVarbinary, i32::MAX)
        },
        XdbcTypeInfo {
            sql_data_type: Xdbc::XdbcDatetime,
            datetime_subcode: Some(XdbcDatetimeSubcode::XdbcSubcodeYear),
            ..quoted("DATE", Xdbc::XdbcDate, 10)
        },
        XdbcTypeInfo {
            sql_data_type: Xdbc::XdbcDatetime,
            datetime_subcode: Some(XdbcDatetimeSubcode::XdbcSubcodeTime),
            ..quoted("TIME", Xdbc::XdbcTime, 18)
        },
        timestamp,
    ]
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
        assert_eq!(bigint.column(0).as_string::<i32>().value(0), "BIGINT");
        assert_eq!(bigint.num_rows(), 1);
    }
}
