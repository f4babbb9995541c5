use std::sync::Arc;

use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use volary_exec::instants::UTC;
use volary_exec::intervals::INTERVAL;
use volary_exec::uuids::UUID;

use crate::sql_type::{DURATION, decimal_type};

/// Digits of a decimal that does not say how many it has: all digits, and those after the point.
const DEFAULT_DECIMAL: (u64, i64) = (38, 10);

/// Most digits after the point of a second that a type can have: those of nanoseconds.
const MAX_FRACTION_DIGITS: u64 = 9;
/// Digits after the point of a second in a type that does not say how many it has. Nanoseconds
/// would leave out all years before 1677 and after 2262.
const DEFAULT_FRACTION_DIGITS: u64 = 6;

/// Plans the names of types that DataFusion does not know, or plans differently from other
/// databases. The other names are left to DataFusion.
#[derive(Debug)]
pub(crate) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let planned = planned_type(sql_type)?;
        Ok(planned.map(|data_type| Arc::new(Field::new("", data_type, true))))
    }
}

fn planned_type(sql_type: &SqlType) -> Result<Option<DataType>> {
    Ok(Some(match sql_type {
        SqlType::Timestamp(digits, zone) => {
            let zone = match zone {
                TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => None,
                TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => Some(UTC.into()),
            };
            DataType::Timestamp(unit(sql_type, *digits)?, zone)
        }
        SqlType::TimestampNtz(digits) | SqlType::Datetime(digits) => {
            DataType::Timestamp(unit(sql_type, *digits)?, None)
        }
        SqlType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            match unit(sql_type, *digits)? {
                unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond) => DataType::Time64(unit),
            }
        }
        SqlType::Character(_)
        | SqlType::CharacterVarying(_)
        | SqlType::CharVarying(_)
        | SqlType::CharacterLargeObject(_)
        | SqlType::CharLargeObject(_)
        | SqlType::Clob(_)
        | SqlType::Nvarchar(_)
        | SqlType::TinyText
        | SqlType::MediumText
        | SqlType::LongText
        | SqlType::JSON
        | SqlType::JSONB => DataType::Utf8View,
        SqlType::Binary(_)
        | SqlType::Varbinary(_)
        | SqlType::Blob(_)
        | SqlType::Bytes(_)
        | SqlType::TinyBlob
        | SqlType::MediumBlob
        | SqlType::LongBlob => DataType::Binary,
        SqlType::Bit(None | Some(1)) => DataType::Boolean,
        SqlType::Uuid => UUID,
        // Qualifiers such as YEAR TO MONTH are not checked, and neither are lengths of texts.
        SqlType::Interval { precision, .. } => {
            unit(sql_type, *precision)?;
            INTERVAL
        }
        SqlType::Custom(name, modifiers) if name.to_string().eq_ignore_ascii_case(DURATION) => {
            DataType::Duration(duration_unit(sql_type, modifiers)?)
        }
        SqlType::MediumInt(_) => DataType::Int32,
        SqlType::MediumIntUnsigned(_) => DataType::UInt32,
        SqlType::Signed | SqlType::SignedInteger => DataType::Int64,
        SqlType::Unsigned | SqlType::UnsignedInteger => DataType::UInt64,
        SqlType::Double(_) => DataType::Float64,
        SqlType::Dec(digits) | SqlType::Decimal(digits) | SqlType::Numeric(digits) => {
            decimal(sql_type, *digits)?
        }
        _ => return Ok(None),
    }))
}

/// Returns the unit of a type with this number of digits after the point of a second.
fn unit(sql_type: &SqlType, digits: Option<u64>) -> Result<TimeUnit> {
    match digits.unwrap_or(DEFAULT_FRACTION_DIGITS) {
        0 => Ok(TimeUnit::Second),
        1..=3 => Ok(TimeUnit::Millisecond),
        4..=6 => Ok(TimeUnit::Microsecond),
        7..=MAX_FRACTION_DIGITS => Ok(TimeUnit::Nanosecond),
        _ => plan_err!("{sql_type} has too many digits; use at most {MAX_FRACTION_DIGITS}"),
    }
}

/// Returns the unit of a DURATION, whose only modifier is its number of digits.
fn duration_unit(sql_type: &SqlType, modifiers: &[String]) -> Result<TimeUnit> {
    match modifiers {
        [] => unit(sql_type, None),
        [digits] if let Ok(digits) = digits.parse() => unit(sql_type, Some(digits)),
        _ => plan_err!("{sql_type} does not exist; write DURATION(6) or DURATION"),
    }
}

/// Returns a type of exact numbers. A negative scale counts zeros before the point.
fn decimal(sql_type: &SqlType, digits: ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match digits {
        ExactNumberInfo::None => DEFAULT_DECIMAL,
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let most = u64::from(DECIMAL256_MAX_PRECISION);
    let fits = (1..=most).contains(&precision) && scale.unsigned_abs() <= precision;
    let planned = match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision), Ok(scale)) if fits => decimal_type(precision, scale),
        _ => None,
    };
    match planned {
        Some(planned) => Ok(planned),
        None => plan_err!(
            "{sql_type} does not exist: a decimal has 1 to {most} digits, and at most as many of them after the point"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_a_scale_on_either_side_of_the_point() {
        let of = |precision, scale| {
            let digits = ExactNumberInfo::PrecisionAndScale(precision, scale);
            decimal(&SqlType::Dec(digits), digits).ok()
        };
        assert_eq!(of(10, 2), Some(DataType::Decimal128(10, 2)));
        assert_eq!(of(10, -2), Some(DataType::Decimal128(10, -2)));
        assert_eq!(of(39, 0), Some(DataType::Decimal256(39, 0)));
        for (precision, scale) in [(0, 0), (77, 0), (10, 11), (10, -11), (u64::MAX, i64::MIN)] {
            assert_eq!(of(precision, scale), None, "{precision}, {scale}");
        }
    }
}
