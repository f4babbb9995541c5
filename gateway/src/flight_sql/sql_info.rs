//! JDBC reads every standard id of GetSqlInfo at once. It fails if an id is missing, if it does not
//! know an id, or if a value is in another arm of the union than it expects. Bit masks have one bit
//! for each value of the enumeration.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction,
    SqlSupportsConvert,
};
use volary_flight_proto::Result;

/// The highest id that exists.
const LAST_ID: u32 = 576;

/// Returns the values of the given ids, or of all standard ids if none is given.
pub(super) fn rows(ids: &[u32]) -> Result<RecordBatch> {
    let all = values()?;
    // Each id is compared with all values, so ids that cannot exist are removed first.
    let mut valid_ids: Vec<u32> = ids.iter().copied().filter(|id| *id <= LAST_ID).collect();
    valid_ids.sort_unstable();
    valid_ids.dedup();
    if valid_ids.is_empty() && !ids.is_empty() {
        return Ok(RecordBatch::new_empty(all.schema()));
    }
    Ok(all.record_batch(valid_ids)?)
}

fn values() -> Result<SqlInfoData> {
    let mut info = SqlInfoDataBuilder::new();
    add_server(&mut info);
    add_syntax(&mut info);
    add_vocabulary(&mut info);
    add_grammar(&mut info);
    add_limits(&mut info);
    add_transactions(&mut info);
    Ok(info.build()?)
}

fn add_server(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::FlightSqlServerName, "Volary");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerSubstraitMinVersion, "");
    info.append(SqlInfo::FlightSqlServerSubstraitMaxVersion, "");
    // ADBC refuses to connect if transactions are advertised and cannot be begun.
    info.append(
        SqlInfo::FlightSqlServerTransaction,
        SqlSupportedTransaction::None as i32,
    );
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    // Lifetime of prepared statements and of transactions in milliseconds. 0 means no limit.
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0);
}

fn add_syntax(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, true);
    info.append(SqlInfo::SqlDdlTable, true);
    // FlightSql.proto defines these values as int32, but JDBC and ODBC read int64.
    let lower = SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i64;
    info.append(SqlInfo::SqlIdentifierCase, lower);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    // Quoted identifiers keep their case. The enumeration has no value for that.
    let unknown = SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i64;
    info.append(SqlInfo::SqlQuotedIdentifierCase, unknown);
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(
        SqlInfo::SqlNullOrdering,
        SqlNullOrdering::SqlNullsSortedHigh as i64,
    );
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlExtraNameCharacters, "");
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlProcedureTerm, "procedure");
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlCatalogAtStart, true);
}

fn add_vocabulary(info: &mut SqlInfoDataBuilder) {
    let keywords: &[&str] = &[
        "COPY", "DESCRIBE", "EXPLAIN", "ILIKE", "LIMIT", "OFFSET", "QUALIFY", "SHOW", "UNNEST",
    ];
    let numeric: &[&str] = &[
        "abs",
        "acos",
        "asin",
        "atan",
        "atan2",
        "cbrt",
        "ceil",
        "cos",
        "cot",
        "degrees",
        "exp",
        "factorial",
        "floor",
        "gcd",
        "lcm",
        "ln",
        "log",
        "log10",
        "log2",
        "pi",
        "power",
        "radians",
        "random",
        "round",
        "signum",
        "sin",
        "sqrt",
        "tan",
        "trunc",
    ];
    let text: &[&str] = &[
        "ascii",
        "btrim",
        "char_length",
        "chr",
        "concat",
        "concat_ws",
        "ends_with",
        "initcap",
        "left",
        "length",
        "lower",
        "lpad",
        "ltrim",
        "regexp_like",
        "regexp_match",
        "regexp_replace",
        "repeat",
        "replace",
        "reverse",
        "right",
        "rpad",
        "rtrim",
        "split_part",
        "starts_with",
        "strpos",
        "substr",
        "to_hex",
        "translate",
        "trim",
        "upper",
        "uuid",
    ];
    let system: &[&str] = &[
        "arrow_cast",
        "arrow_typeof",
        "coalesce",
        "nullif",
        "nvl",
        "version",
    ];
    let datetime: &[&str] = &[
        "current_date",
        "current_time",
        "date_bin",
        "date_part",
        "date_trunc",
        "from_unixtime",
        "make_date",
        "now",
        "to_char",
        "to_date",
        "to_timestamp",
        "to_unixtime",
    ];
    info.append(SqlInfo::SqlKeywords, keywords);
    info.append(SqlInfo::SqlNumericFunctions, numeric);
    info.append(SqlInfo::SqlStringFunctions, text);
    info.append(SqlInfo::SqlSystemFunctions, system);
    info.append(SqlInfo::SqlDatetimeFunctions, datetime);
    info.append(SqlInfo::SqlSupportsConvert, conversions());
}

/// Returns the types to which CAST can convert each type.
fn conversions() -> BTreeMap<i32, Vec<i32>> {
    use SqlSupportsConvert as To;
    let numbers = [
        To::SqlConvertTinyint as i32,
        To::SqlConvertSmallint as i32,
        To::SqlConvertInteger as i32,
        To::SqlConvertBigint as i32,
        To::SqlConvertReal as i32,
        To::SqlConvertFloat as i32,
        To::SqlConvertDecimal as i32,
    ];
    let text = To::SqlConvertVarchar as i32;
    let date = To::SqlConvertDate as i32;
    let timestamp = To::SqlConvertTimestamp as i32;
    let mut from: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for number in numbers {
        from.insert(number, [numbers.as_slice(), &[text]].concat());
    }
    from.insert(
        text,
        [numbers.as_slice(), &[text, date, timestamp]].concat(),
    );
    from.insert(date, vec![text, date, timestamp]);
    from.insert(timestamp, vec![text, date, timestamp]);
    from
}

fn add_grammar(info: &mut SqlInfoDataBuilder) {
    for id in [
        SqlInfo::SqlSupportsColumnAliasing,
        SqlInfo::SqlNullPlusNullIsNull,
        SqlInfo::SqlSupportsTableCorrelationNames,
        SqlInfo::SqlSupportsExpressionsInOrderBy,
        SqlInfo::SqlSupportsOrderByUnrelated,
        SqlInfo::SqlSupportsLikeEscapeClause,
        SqlInfo::SqlSupportsNonNullableColumns,
        SqlInfo::SqlCorrelatedSubqueriesSupported,
        SqlInfo::SqlBatchUpdatesSupported,
    ] {
        info.append(id, true);
    }
    for id in [
        SqlInfo::SqlSupportsDifferentTableCorrelationNames,
        SqlInfo::SqlSupportsIntegrityEnhancementFacility,
        SqlInfo::SqlSelectForUpdateSupported,
        SqlInfo::SqlStoredProceduresSupported,
        SqlInfo::SqlMaxRowSizeIncludesBlobs,
        SqlInfo::SqlNamedParametersSupported,
        SqlInfo::SqlLocatorsUpdateCopy,
        SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported,
    ] {
        info.append(id, false);
    }
    // SQL_GROUP_BY_UNRELATED and SQL_GROUP_BY_BEYOND_SELECT.
    info.append(SqlInfo::SqlSupportedGroupBy, 0b11);
    info.append(SqlInfo::SqlSupportedGrammar, 0b011); // minimum, core
    info.append(SqlInfo::SqlAnsi92SupportedLevel, 0b001); // entry
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, 0b110); // limited, full
    info.append(SqlInfo::SqlSchemasSupportedActions, 0b101); // calls, grants
    info.append(SqlInfo::SqlCatalogsSupportedActions, 0);
    info.append(SqlInfo::SqlSupportedPositionedCommands, 0);
    info.append(SqlInfo::SqlSupportedSubqueries, 0b0111); // in comparisons, EXISTS, IN
    info.append(SqlInfo::SqlSupportedUnions, 0b11); // UNION, UNION ALL
    info.append(SqlInfo::SqlSupportedResultSetTypes, 0b0010); // forward only
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified, 0);
    info.append(
        SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly,
        0b010,
    ); // read only
    info.append(
        SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive,
        0,
    );
    info.append(
        SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive,
        0,
    );
}

/// Adds the limits. 0 means that there is no limit, or that the limit is not known.
fn add_limits(info: &mut SqlInfoDataBuilder) {
    for id in [
        SqlInfo::SqlMaxBinaryLiteralLength,
        SqlInfo::SqlMaxCharLiteralLength,
        SqlInfo::SqlMaxColumnNameLength,
        SqlInfo::SqlMaxColumnsInGroupBy,
        SqlInfo::SqlMaxColumnsInIndex,
        SqlInfo::SqlMaxColumnsInOrderBy,
        SqlInfo::SqlMaxColumnsInSelect,
        SqlInfo::SqlMaxColumnsInTable,
        SqlInfo::SqlMaxConnections,
        SqlInfo::SqlMaxCursorNameLength,
        SqlInfo::SqlMaxIndexLength,
        SqlInfo::SqlDbSchemaNameLength,
        SqlInfo::SqlMaxProcedureNameLength,
        SqlInfo::SqlMaxCatalogNameLength,
        SqlInfo::SqlMaxRowSize,
        SqlInfo::SqlMaxStatementLength,
        SqlInfo::SqlMaxStatements,
        SqlInfo::SqlMaxTableNameLength,
        SqlInfo::SqlMaxTablesInSelect,
        SqlInfo::SqlMaxUsernameLength,
    ] {
        info.append(id, 0_i64);
    }
}

fn add_transactions(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::SqlDefaultTransactionIsolation, 0_i64); // none
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, 0b00001); // none
    for id in [
        SqlInfo::SqlTransactionsSupported,
        SqlInfo::SqlDataDefinitionCausesTransactionCommit,
        SqlInfo::SqlDataDefinitionsInTransactionsIgnored,
        SqlInfo::SqlSavepointsSupported,
    ] {
        info.append(id, false);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::UInt32Type;

    use super::*;

    /// Returns the answered ids, each with the arm of the union that its value is in. JDBC casts
    /// the value to that arm.
    fn answered(ids: &[u32]) -> Vec<(u32, i8)> {
        let rows = rows(ids).unwrap();
        let names = rows.column(0).as_primitive::<UInt32Type>();
        let arms = rows.column(1).as_union();
        (0..rows.num_rows())
            .map(|row| (names.value(row), arms.type_id(row)))
            .collect()
    }

    fn expected_arm(id: u32) -> i8 {
        match id {
            0 | 1 | 2 | 6 | 7 | 504 | 513 | 514 | 529..=531 => 0,
            541..=555 | 557..=562 | 503 | 505 | 507 => 2,
            8 | 100 | 101 | 522 | 525 | 526 | 528 | 533..=535 | 538 | 540 | 564 | 567..=571 => 3,
            508..=512 => 4,
            517 => 5,
            _ => 1,
        }
    }

    #[test]
    fn every_standard_id_is_answered_in_its_arm_and_no_other() {
        let standard = (0..10_000_i32)
            .filter_map(|id| SqlInfo::try_from(id).ok())
            .map(|info| u32::try_from(i32::from(info)).unwrap());
        let expected: Vec<_> = standard.map(|id| (id, expected_arm(id))).collect();
        assert_eq!(answered(&[]), expected);
    }

    #[test]
    fn only_what_is_asked_for_is_answered() {
        assert_eq!(answered(&[8, 3, 504, 3]), [(3, 1), (8, 3), (504, 0)]);
        assert_eq!(answered(&[9_999]), []);
        assert_eq!(answered(&[12]), []);
    }

    #[test]
    fn the_schema_is_the_announced_one() {
        let rows = rows(&[]).unwrap();
        assert_eq!(rows.schema().as_ref(), SqlInfoDataBuilder::schema());
        assert_eq!(rows.column(1).null_count(), 0);
    }
}
