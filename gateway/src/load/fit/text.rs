//! Arrow's own parsers drop the digits for which a decimal or a timestamp has no room.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, PrimitiveBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::{
    Parser, parse_decimal, string_to_datetime, string_to_time_nanoseconds,
};
use arrow::datatypes::{
    ArrowPrimitiveType, ArrowTimestampType, DataType, Date32Type, Decimal32Type, Decimal64Type,
    Decimal128Type, Decimal256Type, DecimalType, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use chrono::{NaiveTime, TimeZone, Utc};
use volary_exec::text_casts;
use volary_flight_proto::SqlState;

use super::misfit::Misfit;
use crate::sql_type::sql_type_name;

/// Maximum length of the text of a decimal, in bytes. Longer texts are refused, because arrow
/// counts digits in a `u8`.
const MAX_DECIMAL_BYTES: usize = 255;
/// Largest absolute value of the exponent of a decimal. Larger ones are refused, because arrow
/// computes exponents in 16 bits.
const MAX_EXPONENT: i64 = 1_000;
/// Largest number up to which an `f64` can represent every whole number.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Returns whether this module parses values of the type.
pub(crate) fn is_parsed_type(wanted: &DataType) -> bool {
    wanted.is_integer()
        || wanted.is_decimal()
        || text_casts::is_read_by_own_cast(wanted)
        || matches!(
            wanted,
            DataType::Date32
                | DataType::Timestamp(_, _)
                | DataType::Time32(_)
                | DataType::Time64(_)
        )
}

/// Why a text is not a value of the wanted type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParseFailure {
    /// The text is not a value of the type at all.
    Invalid,
    /// The text has more digits than the type can hold.
    TooPrecise,
}

/// Parses the texts as values of the wanted type, for which [`is_parsed_type`] must be true.
///
/// # Errors
/// A text that is not a value of the type, or a value that the type can hold only in part.
pub(super) fn parse(texts: &StringViewArray, wanted: &DataType) -> Result<ArrayRef, Misfit> {
    use DataType::{
        Decimal32, Decimal64, Decimal128, Decimal256, Int8, Int16, Int32, Int64, Time32, Time64,
        Timestamp, UInt8, UInt16, UInt32, UInt64,
    };
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    match wanted {
        Int8 => parse_values::<Int8Type>(texts, wanted, parse_integer::<Int8Type>),
        Int16 => parse_values::<Int16Type>(texts, wanted, parse_integer::<Int16Type>),
        Int32 => parse_values::<Int32Type>(texts, wanted, parse_integer::<Int32Type>),
        Int64 => parse_values::<Int64Type>(texts, wanted, parse_integer::<Int64Type>),
        UInt8 => parse_values::<UInt8Type>(texts, wanted, parse_integer::<UInt8Type>),
        UInt16 => parse_values::<UInt16Type>(texts, wanted, parse_integer::<UInt16Type>),
        UInt32 => parse_values::<UInt32Type>(texts, wanted, parse_integer::<UInt32Type>),
        UInt64 => parse_values::<UInt64Type>(texts, wanted, parse_integer::<UInt64Type>),
        Decimal32(precision, scale) => {
            parse_decimals::<Decimal32Type>(texts, wanted, *precision, *scale)
        }
        Decimal64(precision, scale) => {
            parse_decimals::<Decimal64Type>(texts, wanted, *precision, *scale)
        }
        Decimal128(precision, scale) => {
            parse_decimals::<Decimal128Type>(texts, wanted, *precision, *scale)
        }
        Decimal256(precision, scale) => {
            parse_decimals::<Decimal256Type>(texts, wanted, *precision, *scale)
        }
        DataType::Date32 => parse_values::<Date32Type>(texts, wanted, parse_date),
        Timestamp(Second, _) => parse_timestamps::<TimestampSecondType>(texts, wanted),
        Timestamp(Millisecond, _) => parse_timestamps::<TimestampMillisecondType>(texts, wanted),
        Timestamp(Microsecond, _) => parse_timestamps::<TimestampMicrosecondType>(texts, wanted),
        Timestamp(Nanosecond, _) => parse_timestamps::<TimestampNanosecondType>(texts, wanted),
        Time32(Second) => parse_values::<Time32SecondType>(texts, wanted, |text| {
            parse_time(text, Second)
                .and_then(|time| i32::try_from(time).map_err(|_| ParseFailure::Invalid))
        }),
        Time32(_) => parse_values::<Time32MillisecondType>(texts, wanted, |text| {
            parse_time(text, Millisecond)
                .and_then(|time| i32::try_from(time).map_err(|_| ParseFailure::Invalid))
        }),
        Time64(Nanosecond) => {
            parse_values::<Time64NanosecondType>(texts, wanted, |text| parse_time(text, Nanosecond))
        }
        Time64(_) => parse_values::<Time64MicrosecondType>(texts, wanted, |text| {
            parse_time(text, Microsecond)
        }),
        own if text_casts::is_read_by_own_cast(own) => parse_by_own_cast(texts, own),
        _ => Err(misfit(0, "text", wanted, ParseFailure::Invalid)),
    }
}

fn misfit(row: usize, text: &str, wanted: &DataType, failure: ParseFailure) -> Misfit {
    match failure {
        ParseFailure::Invalid => Misfit::of_value(
            row,
            SqlState::InvalidTextRepresentation,
            format!("'{text}' is not a valid {}", type_name(wanted)),
        ),
        ParseFailure::TooPrecise => Misfit::of_lossy_value(row, &format!("'{text}'"), wanted),
    }
}

/// Returns the name of a type in an error message.
fn type_name(data_type: &DataType) -> String {
    if text_casts::is_read_by_own_cast(data_type) {
        sql_type_name(data_type)
    } else {
        data_type.to_string()
    }
}

fn parse_values<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    wanted: &DataType,
    parse: impl Fn(&str) -> Result<T::Native, ParseFailure>,
) -> Result<ArrayRef, Misfit> {
    let mut values =
        PrimitiveBuilder::<T>::with_capacity(texts.len()).with_data_type(wanted.clone());
    for (row, text) in texts.iter().enumerate() {
        let value =
            text.map(|text| parse(text).map_err(|failure| misfit(row, text, wanted, failure)));
        values.append_option(value.transpose()?);
    }
    Ok(Arc::new(values.finish()))
}

/// Parses UUIDs, intervals and durations.
fn parse_by_own_cast(texts: &StringViewArray, wanted: &DataType) -> Result<ArrayRef, Misfit> {
    let parse = |texts: StringViewArray| {
        let texts: ArrayRef = Arc::new(texts);
        text_casts::cast_column(&texts, wanted, |texts, wanted| cast(texts, wanted))
    };
    parse(texts.clone()).map_err(|source| {
        let is_misfit = |row: &usize| parse(texts.slice(*row, 1)).is_err();
        match (0..texts.len()).find(is_misfit) {
            Some(row) => misfit(row, texts.value(row), wanted, ParseFailure::Invalid),
            None => Misfit::of_rows(source),
        }
    })
}

/// Parses a whole number. Up to `MAX_EXACT_INTEGER`, it may have a point or an exponent, because
/// programs that keep numbers as floating point write 5 as 5.0.
fn parse_integer<T: Parser>(text: &str) -> Result<T::Native, ParseFailure> {
    if let Some(value) = T::parse(text) {
        return Ok(value);
    }
    let number = f64::from_str(text).map_err(|_| ParseFailure::Invalid)?;
    if number.fract() != 0.0 {
        return Err(ParseFailure::TooPrecise);
    }
    if number.abs() > MAX_EXACT_INTEGER {
        return Err(ParseFailure::Invalid);
    }
    // Adding 0.0 turns -0.0 into 0.0, because an unsigned type cannot parse "-0".
    T::parse(&format!("{:.0}", number + 0.0)).ok_or(ParseFailure::Invalid)
}

fn parse_decimals<T: DecimalType>(
    texts: &StringViewArray,
    wanted: &DataType,
    precision: u8,
    scale: i8,
) -> Result<ArrayRef, Misfit> {
    parse_values::<T>(texts, wanted, |text| {
        if text.len() > MAX_DECIMAL_BYTES
            || exponent(text).is_none_or(|exponent| exponent.abs() > MAX_EXPONENT)
        {
            return Err(ParseFailure::Invalid);
        }
        let value =
            parse_decimal::<T>(text, precision, scale).map_err(|_| ParseFailure::Invalid)?;
        if digits_after_point(text) > i64::from(scale) {
            return Err(ParseFailure::TooPrecise);
        }
        Ok(value)
    })
}

/// Returns the number of digits after the point, without zeros at the end: 2 for "-1.250", 1 for
/// "12e-1", -2 for "300". The text must be a valid number.
fn digits_after_point(number: &str) -> i64 {
    let mantissa = number
        .split_once(['e', 'E'])
        .map_or(number, |(mantissa, _)| mantissa);
    let after_point = mantissa
        .split_once('.')
        .map_or(0, |(_, digits)| digits.len());
    let digits = mantissa.bytes().rev().filter(|byte| *byte != b'.');
    let zeros = digits.take_while(|digit| *digit == b'0').count();
    // The conversion cannot fail, because numbers have at most 255 bytes.
    let count = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    count(after_point) - count(zeros) - exponent(number).unwrap_or_default()
}

/// Returns the exponent of a number: 0 if it has none, and `None` if the exponent is not a number.
fn exponent(number: &str) -> Option<i64> {
    match number.split_once(['e', 'E']) {
        None => Some(0),
        Some((_, exponent)) => exponent.parse().ok(),
    }
}

/// Parses a date. A time of day after the date is accepted only if it is midnight.
fn parse_date(text: &str) -> Result<i32, ParseFailure> {
    let days = Date32Type::parse(text).ok_or(ParseFailure::Invalid)?;
    let is_longer = text.len() > 10 && !text.starts_with(['+', '-']);
    if is_longer && !string_to_datetime(&Utc, text).is_ok_and(|time| time.time() == NaiveTime::MIN)
    {
        return Err(ParseFailure::TooPrecise);
    }
    Ok(days)
}

fn parse_timestamps<T: ArrowTimestampType>(
    texts: &StringViewArray,
    wanted: &DataType,
) -> Result<ArrayRef, Misfit> {
    let DataType::Timestamp(_, Some(zone)) = wanted else {
        return parse_values::<T>(texts, wanted, |text| parse_timestamp(text, &Utc, T::UNIT));
    };
    let zone =
        Tz::from_str(zone).map_err(|source| Misfit::of_type(texts.data_type(), wanted, source))?;
    parse_values::<T>(texts, wanted, |text| parse_timestamp(text, &zone, T::UNIT))
}

fn parse_timestamp(text: &str, zone: &impl TimeZone, unit: TimeUnit) -> Result<i64, ParseFailure> {
    let time = string_to_datetime(zone, text).map_err(|_| ParseFailure::Invalid)?;
    if time.timestamp_subsec_nanos() % nanos_per_unit(unit) != 0 || has_digits_below_nanos(text) {
        return Err(ParseFailure::TooPrecise);
    }
    match unit {
        TimeUnit::Second => Ok(time.timestamp()),
        TimeUnit::Millisecond => Ok(time.timestamp_millis()),
        TimeUnit::Microsecond => Ok(time.timestamp_micros()),
        TimeUnit::Nanosecond => time.timestamp_nanos_opt().ok_or(ParseFailure::Invalid),
    }
}

/// Parses a time of day, and returns the number of units since midnight.
fn parse_time(text: &str, unit: TimeUnit) -> Result<i64, ParseFailure> {
    let time = string_to_time_nanoseconds(text).map_err(|_| ParseFailure::Invalid)?;
    let unit = i64::from(nanos_per_unit(unit));
    if time % unit != 0 || has_digits_below_nanos(text) {
        return Err(ParseFailure::TooPrecise);
    }
    Ok(time / unit)
}

/// Returns the number of nanoseconds in a time unit.
pub(super) fn nanos_per_unit(unit: TimeUnit) -> u32 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns whether the seconds have more than nine significant digits after the point. The parsers
/// skip these digits.
fn has_digits_below_nanos(text: &str) -> bool {
    let digits = text
        .split_once('.')
        .map_or("", |(_, digits)| digits)
        .bytes();
    let mut below = digits.take_while(u8::is_ascii_digit).skip(9);
    below.any(|digit| digit != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, wanted: &DataType) -> Result<String, Option<bool>> {
        let parsed = parse(&StringViewArray::from(vec![Some(text), None]), wanted);
        let parsed =
            parsed.map_err(|misfit| Some(misfit.in_line(1).message().contains("without loss")))?;
        assert_eq!((parsed.data_type(), parsed.null_count()), (wanted, 1));
        arrow::util::display::array_value_to_string(&parsed, 0).map_err(|_| None)
    }

    const FINER: Result<&str, Option<bool>> = Err(Some(true));
    const OTHER: Result<&str, Option<bool>> = Err(Some(false));

    #[test]
    fn text_is_parsed_whole_or_not_at_all() {
        let money = DataType::Decimal128(5, 2);
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let time = DataType::Time64(TimeUnit::Microsecond);
        let many_digits = format!("{}1", "1".repeat(300));
        for (text, wanted, value) in [
            ("1.23", &money, Ok("1.23")),
            ("-1.2300", &money, Ok("-1.23")),
            ("0.00", &money, Ok("0.00")),
            ("120", &money, Ok("120.00")),
            ("1.2e1", &money, Ok("12.00")),
            ("1.239", &money, FINER),
            ("1239e-3", &money, FINER),
            ("1234.5", &money, OTHER),
            ("1.2x", &money, OTHER),
            ("1e99999", &money, OTHER),
            (many_digits.as_str(), &money, OTHER),
            ("5", &DataType::Int8, Ok("5")),
            ("5.0", &DataType::Int8, Ok("5")),
            ("-0.0", &DataType::UInt8, Ok("0")),
            ("5e1", &DataType::Int8, Ok("50")),
            ("5.5", &DataType::Int8, FINER),
            ("500", &DataType::Int8, OTHER),
            (
                "9223372036854775807",
                &DataType::Int64,
                Ok("9223372036854775807"),
            ),
            ("9223372036854775808", &DataType::Int64, OTHER),
            ("NaN", &DataType::Int64, FINER),
            ("2026-01-31", &DataType::Date32, Ok("2026-01-31")),
            ("2026-01-31T00:00:00", &DataType::Date32, Ok("2026-01-31")),
            ("2026-01-31T10:00:00", &DataType::Date32, FINER),
            ("2026-02-30", &DataType::Date32, OTHER),
            (
                "2026-01-31 10:00:00.123456",
                &micros,
                Ok("2026-01-31T10:00:00.123456"),
            ),
            (
                "2026-01-31 10:00:00.123456000",
                &micros,
                Ok("2026-01-31T10:00:00.123456"),
            ),
            ("2026-01-31 10:00:00.1234567", &micros, FINER),
            ("2026-01-31 10:00:00.1234560001", &micros, FINER),
            ("1769853600", &micros, OTHER),
            ("10:00:00.5", &time, Ok("10:00:00.500")),
            ("10:00:00.1234567", &time, FINER),
            ("25:00", &time, OTHER),
        ] {
            let value = value.map(str::to_owned);
            assert_eq!(parsed(text, wanted), value, "{text} as {wanted}");
        }
    }

    #[test]
    fn digits_are_counted_without_zeros_at_the_end() {
        for (number, digits) in [
            ("-1.250", 2),
            ("12e-1", 1),
            ("300", -2),
            (".5", 1),
            ("1.", 0),
            ("1.25E2", 0),
        ] {
            assert_eq!(digits_after_point(number), digits, "{number}");
        }
    }
}
