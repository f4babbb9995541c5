use arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::SqlOption;
use volary_catalog::Retention;
use volary_flight_proto::{Error, Result, SqlState};

use crate::sql::names::identifier;
use crate::sql::options::{literal_text, named_column};

/// What users write for rows that are kept for ever.
const FOREVER: &str = "forever";

/// Returns how long rows are kept, from the options `retention` and `time_column`. Returns `None`
/// if they are kept for ever.
///
/// # Errors
/// `INVALID_ARGUMENT` for a time that cannot be read, and if only one of the options is given.
pub(in crate::engine) fn retention(
    schema: &Schema,
    keep: Option<&str>,
    time_column: Option<&str>,
) -> Result<Option<Retention>> {
    let invalid =
        |what: String| Error::invalid(what).with_sqlstate(SqlState::InvalidTableDefinition);
    let (keep, time_column) = match (keep, time_column) {
        (None | Some(FOREVER), None) => return Ok(None),
        (Some(keep), Some(time_column)) if keep != FOREVER => (keep, time_column),
        (Some(keep), None) => {
            return Err(invalid(format!(
                "retention = '{keep}' does not say which column has the times of the rows; add time_column = 'column'"
            )));
        }
        (_, Some(time_column)) => {
            return Err(invalid(format!(
                "time_column = '{time_column}' is of no use without a retention; add retention = '30 days', or leave it out"
            )));
        }
    };
    let index = named_column(schema, "time_column", time_column)?;
    let compact: String = keep.split_whitespace().collect();
    let keep = humantime::parse_duration(&compact).map_err(|error| {
        invalid(format!(
            "retention = '{keep}' is not a time ({error}); write for example '30 days', '12 hours' or '{FOREVER}'"
        ))
    })?;
    Ok(Some(Retention {
        time_column: index,
        keep,
    }))
}

/// Returns how long rows are kept after ALTER TABLE … SET (…). If the statement does not name the
/// time column, it stays the same.
///
/// # Errors
/// `INVALID_ARGUMENT` for other options, and the errors of [`retention`].
pub(super) fn altered(
    schema: &Schema,
    before: Option<Retention>,
    options: &[SqlOption],
) -> Result<Option<Retention>> {
    let (mut keep, mut time_column) = (None, None);
    for option in options {
        let refused = || {
            Error::invalid(format!(
                "{option} cannot be changed; ALTER TABLE … SET (…) takes retention and time_column"
            ))
        };
        let SqlOption::KeyValue { key, value } = option else {
            return Err(refused());
        };
        match identifier(key).as_str() {
            "retention" => keep = Some(literal_text(value)),
            "time_column" => time_column = Some(literal_text(value)),
            _ => return Err(refused()),
        }
    }
    let (same_keep, same_column) = match before {
        Some(before) => {
            let column = schema.field(before.time_column).name().clone();
            (Some(before.to_string()), Some(column))
        }
        None => (None, None),
    };
    let keep = keep.or(same_keep);
    if keep.as_deref() != Some(FOREVER) {
        time_column = time_column.or(same_column);
    }
    retention(schema, keep.as_deref(), time_column.as_deref())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::datatypes::{DataType, Field};
    use datafusion::sql::sqlparser::ast::{Expr, Value};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("k", DataType::Int64, false),
            Field::new("day", DataType::Date32, true),
        ])
    }

    fn of(keep: Option<&str>, column: Option<&str>) -> Result<Option<Retention>> {
        retention(&schema(), keep, column)
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let day = Duration::from_secs(24 * 60 * 60);
        for (text, keep) in [
            ("30 days", 30 * day),
            ("30d", 30 * day),
            ("1 day 12 hours", day + day / 2),
            ("500ms", Duration::from_millis(500)),
        ] {
            let found = of(Some(text), Some("day")).unwrap().unwrap();
            assert_eq!((found.time_column, found.keep), (1, keep), "{text}");
            // It can be read as it is shown.
            let shown = found.to_string();
            assert_eq!(of(Some(&shown), Some("day")).unwrap(), Some(found));
        }
        assert_eq!(of(None, None).unwrap(), None);
        assert_eq!(of(Some("forever"), None).unwrap(), None);
    }

    #[test]
    fn a_retention_without_its_other_half_or_with_nonsense_is_refused() {
        for (keep, column, part) in [
            (Some("30 days"), None, "add time_column = 'column'"),
            (None, Some("day"), "add retention = '30 days'"),
            (
                Some("forever"),
                Some("day"),
                "of no use without a retention",
            ),
            (Some("soon"), Some("day"), "'soon' is not a time"),
            (Some("-3 days"), Some("day"), "is not a time"),
            (Some("30 days"), Some("when"), "its columns are k, day"),
        ] {
            let error = of(keep, column).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let option = |name: &str, text: &str| SqlOption::KeyValue {
            key: name.into(),
            value: Expr::value(Value::SingleQuotedString(text.to_owned())),
        };
        let before = of(Some("30 days"), Some("day")).unwrap();
        let altered = |options: &[SqlOption]| altered(&schema(), before, options);
        let longer = altered(&[option("retention", "60 days")]).unwrap();
        assert_eq!(longer, of(Some("60 days"), Some("day")).unwrap());
        assert_eq!(altered(&[option("time_column", "day")]).unwrap(), before);
        assert_eq!(altered(&[option("retention", "forever")]).unwrap(), None);
        let refused = altered(&[option("shards", "3")]).unwrap_err();
        assert!(refused.message().contains("takes retention"), "{refused}");
    }
}
