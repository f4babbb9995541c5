//! Arrow does not cast between texts and UUIDs, from views of bytes to UUIDs, or from texts to
//! durations, and it reads fewer forms of intervals than other databases write. The planner
//! replaces these casts by the functions of this module. Where rows are cast outside of plans,
//! [`cast_column`] does the same.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveBuilder, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use uuid::Uuid;

use crate::columnar::map_column;
use crate::intervals::{self, INTERVAL, to_duration};
use crate::uuids::{self, UUID};

/// Returns whether this module makes the cast, and not Arrow.
pub fn is_own_cast(from: &DataType, to: &DataType) -> bool {
    Conversion::between(from, to).is_some()
}

/// Returns whether a text must be cast explicitly to be inserted into a column of this type.
pub fn is_read_by_own_cast(to: &DataType) -> bool {
    is_own_cast(&DataType::Utf8, to)
}

/// Returns a cast of an expression. Unlike [`ExprSchemable::cast_to`], it allows the casts of this
/// module, which the analyzer replaces by functions.
///
/// # Errors
/// An error if there is no such cast.
pub fn cast_expression(expression: Expr, wanted: &DataType, schema: &DFSchema) -> Result<Expr> {
    if is_own_cast(&expression.get_type(schema)?, wanted) {
        let expression = Box::new(expression);
        return Ok(Expr::Cast(Cast::new(expression, wanted.clone())));
    }
    expression.cast_to(wanted, schema)
}

/// Casts a column with `cast`, or without it if the cast is one of this module.
///
/// # Errors
/// The errors of `cast`, and a value that does not fit.
pub fn cast_column<E: From<ArrowError>>(
    column: &ArrayRef,
    wanted: &DataType,
    cast: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef, E>,
) -> Result<ArrayRef, E> {
    match Conversion::between(column.data_type(), wanted) {
        None => cast(column, wanted),
        Some(conversion) => {
            let converted = conversion.convert(column, Misfit::Error)?;
            if converted.data_type() == wanted {
                Ok(converted)
            } else {
                cast(&converted, wanted)
            }
        }
    }
}

/// Casts a value, also with the casts of this module.
///
/// # Errors
/// A value that does not fit the type.
pub fn cast_value(value: &ScalarValue, wanted: &DataType) -> Result<ScalarValue> {
    if !is_own_cast(&value.data_type(), wanted) {
        return value.cast_to(wanted);
    }
    let convert = |value: &ArrayRef, wanted: &DataType| cast(value, wanted);
    let converted = cast_column(&value.to_array()?, wanted, convert)?;
    ScalarValue::try_from_array(&converted, 0)
}

/// Returns the expression that CAST stands for, or TRY_CAST if `is_try` is true. Returns `None` for
/// casts that Arrow makes.
pub fn convert(value: &Expr, from: &DataType, to: &DataType, is_try: bool) -> Option<Expr> {
    let misfit = if is_try { Misfit::Null } else { Misfit::Error };
    let value = vec![value.clone()];
    let (conversion, misfit, value) = match Conversion::between(from, to)? {
        Conversion::TextToDuration(unit) => {
            let interval = function(Conversion::TextToInterval, misfit).call(value);
            (duration_of(unit), misfit, vec![interval])
        }
        Conversion::IntervalToDuration(unit) => (duration_of(unit), misfit, value),
        Conversion::UuidToText => (Conversion::UuidToText, Misfit::Error, value),
        conversion => (conversion, misfit, value),
    };
    let converted = function(conversion, misfit).call(value);
    Some(if conversion.result() == *to {
        converted
    } else {
        Expr::Cast(Cast::new(Box::new(converted), to.clone()))
    })
}

/// Returns the conversion that makes a duration with at least the digits of the unit.
fn duration_of(unit: TimeUnit) -> Conversion {
    Conversion::IntervalToDuration(match unit {
        TimeUnit::Nanosecond => TimeUnit::Nanosecond,
        _ => TimeUnit::Microsecond,
    })
}

/// Returns the functions that stand for casts.
pub fn functions() -> [Arc<ScalarUDF>; 11] {
    const MICROS: Conversion = Conversion::IntervalToDuration(TimeUnit::Microsecond);
    const NANOS: Conversion = Conversion::IntervalToDuration(TimeUnit::Nanosecond);
    [
        (Conversion::UuidToText, Misfit::Error),
        (Conversion::TextToUuid, Misfit::Error),
        (Conversion::TextToUuid, Misfit::Null),
        (Conversion::BytesToUuid, Misfit::Error),
        (Conversion::BytesToUuid, Misfit::Null),
        (Conversion::TextToInterval, Misfit::Error),
        (Conversion::TextToInterval, Misfit::Null),
        (MICROS, Misfit::Error),
        (MICROS, Misfit::Null),
        (NANOS, Misfit::Error),
        (NANOS, Misfit::Null),
    ]
    .map(|(conversion, misfit)| function(conversion, misfit))
}

fn function(conversion: Conversion, misfit: Misfit) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(CastFunction {
        name: format!("{}{}", misfit.prefix(), conversion.name()),
        signature: Signature::any(1, Volatility::Immutable),
        conversion,
        misfit,
    }))
}

/// What to do with a value that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Misfit {
    Error,
    Null,
}

impl Misfit {
    fn prefix(self) -> &'static str {
        match self {
            Self::Error => "",
            Self::Null => "try_",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Conversion {
    UuidToText,
    TextToUuid,
    BytesToUuid,
    TextToInterval,
    TextToDuration(TimeUnit),
    IntervalToDuration(TimeUnit),
}

impl Conversion {
    fn between(from: &DataType, to: &DataType) -> Option<Self> {
        match (from, to) {
            (uuid, text) if *uuid == UUID && text.is_string() => Some(Self::UuidToText),
            (text, uuid) if is_text(text) && *uuid == UUID => Some(Self::TextToUuid),
            (bytes, uuid) if *uuid == UUID && *bytes != UUID && bytes.is_binary() => {
                Some(Self::BytesToUuid)
            }
            (text, interval) if is_text(text) && *interval == INTERVAL => {
                Some(Self::TextToInterval)
            }
            (text, DataType::Duration(unit)) if is_text(text) => Some(Self::TextToDuration(*unit)),
            (interval, DataType::Duration(unit)) if *interval == INTERVAL => {
                Some(Self::IntervalToDuration(*unit))
            }
            _ => None,
        }
    }

    /// Returns the name of the function that makes the conversion.
    fn name(self) -> &'static str {
        match self {
            Self::UuidToText => "uuid_to_text",
            Self::TextToUuid => "text_to_uuid",
            Self::BytesToUuid => "bytes_to_uuid",
            Self::TextToInterval => "text_to_interval",
            Self::TextToDuration(_) => "text_to_duration",
            Self::IntervalToDuration(TimeUnit::Nanosecond) => "interval_to_duration_nanos",
            Self::IntervalToDuration(_) => "interval_to_duration",
        }
    }

    /// Returns the type of the converted values, which Arrow may cast further.
    fn result(self) -> DataType {
        match self {
            Self::UuidToText => DataType::Utf8,
            Self::TextToUuid | Self::BytesToUuid => UUID,
            Self::TextToInterval => INTERVAL,
            Self::TextToDuration(unit) | Self::IntervalToDuration(unit) => DataType::Duration(unit),
        }
    }

    /// Converts a column.
    fn convert(self, values: &ArrayRef, misfit: Misfit) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::UuidToText => Ok(uuids::write_texts(values)),
            Self::TextToUuid => {
                let texts = cast(values, &DataType::Utf8View)?;
                let parsed = parsed(texts.as_string_view(), misfit, "a UUID", uuids::parse);
                uuids::from_uuids(parsed)
            }
            Self::BytesToUuid => {
                let bytes = cast(values, &DataType::BinaryView)?;
                let read = bytes.as_binary_view().iter().map(|bytes| {
                    match (bytes, bytes.and_then(|bytes| Uuid::from_slice(bytes).ok())) {
                        (Some(bytes), None) if misfit == Misfit::Error => {
                            Err(ArrowError::CastError(format!(
                                "Can't cast value of {} bytes to a UUID, which has 16",
                                bytes.len()
                            )))
                        }
                        (_, uuid) => Ok(uuid),
                    }
                });
                uuids::from_uuids(read)
            }
            Self::TextToInterval => {
                let texts = cast(values, &DataType::Utf8View)?;
                let parsed = parsed(
                    texts.as_string_view(),
                    misfit,
                    "an interval",
                    intervals::parse,
                );
                collect::<IntervalMonthDayNanoType>(values.len(), parsed)
            }
            Self::TextToDuration(unit) => {
                let texts = cast(values, &DataType::Utf8View)?;
                let read = |text: &str| to_duration(intervals::parse(text)?, unit);
                let parsed = parsed(texts.as_string_view(), misfit, "a duration", read);
                durations(values.len(), unit, parsed)
            }
            Self::IntervalToDuration(unit) => {
                let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
                let read = intervals.iter().map(|interval| {
                    let Some(interval) = interval else {
                        return Ok(None);
                    };
                    match to_duration(interval, unit) {
                        None if misfit == Misfit::Error => Err(too_long(interval)),
                        read => Ok(read),
                    }
                });
                durations(values.len(), unit, read)
            }
        }
    }
}

/// Returns whether values of the type are texts, which a dictionary may hold.
fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => other.is_string(),
    }
}

fn too_long(interval: IntervalMonthDayNano) -> ArrowError {
    ArrowError::CastError(format!(
        "Can't cast value {} months {} days {} nanoseconds to a duration: a duration has no months, and only the digits of its type",
        interval.months, interval.days, interval.nanoseconds
    ))
}

/// Parses texts. `what` says in an error what they should be.
fn parsed<'a, T>(
    texts: &'a StringViewArray,
    misfit: Misfit,
    what: &'a str,
    parse: impl Fn(&str) -> Option<T> + 'a,
) -> impl Iterator<Item = Result<Option<T>, ArrowError>> + 'a {
    texts.iter().map(move |text| {
        let Some(text) = text else {
            return Ok(None);
        };
        match parse(text) {
            None if misfit == Misfit::Error => {
                Err(ArrowError::ParseError(format!("'{text}' is not {what}")))
            }
            parsed => Ok(parsed),
        }
    })
}

fn collect<T: ArrowPrimitiveType>(
    rows: usize,
    values: impl Iterator<Item = Result<Option<T::Native>, ArrowError>>,
) -> Result<ArrayRef, ArrowError> {
    let mut collected = PrimitiveBuilder::<T>::with_capacity(rows);
    for value in values {
        collected.append_option(value?);
    }
    Ok(Arc::new(collected.finish()))
}

fn durations(
    rows: usize,
    unit: TimeUnit,
    values: impl Iterator<Item = Result<Option<i64>, ArrowError>>,
) -> Result<ArrayRef, ArrowError> {
    match unit {
        TimeUnit::Second => collect::<DurationSecondType>(rows, values),
        TimeUnit::Millisecond => collect::<DurationMillisecondType>(rows, values),
        TimeUnit::Microsecond => collect::<DurationMicrosecondType>(rows, values),
        TimeUnit::Nanosecond => collect::<DurationNanosecondType>(rows, values),
    }
}

/// A function that stands for a cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastFunction {
    name: String,
    signature: Signature,
    conversion: Conversion,
    misfit: Misfit,
}

impl ScalarUDFImpl for CastFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.conversion.result())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = args.args.as_slice() else {
            return internal_err!("{} takes one argument", self.name);
        };
        let wanted = self.conversion.result();
        // A statement that names the function may call it with values of any type.
        let Some(conversion) = Conversion::between(&values.data_type(), &wanted) else {
            return values.cast_to(&wanted, None);
        };
        map_column(
            values,
            |values| Ok(conversion.convert(values, self.misfit)?),
        )
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    const TEXT: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

    fn strict(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
        cast(column, wanted)
    }

    fn texts(texts: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(texts.to_vec()))
    }

    #[test]
    fn texts_become_uuids_and_uuids_become_texts() {
        let braced = format!("{{{}}}", TEXT.to_uppercase());
        let plain = TEXT.replace('-', "");
        let texts = texts(&[Some(TEXT), Some(&braced), None, Some(&plain)]);
        let uuids = cast_column(&texts, &UUID, strict).unwrap();
        assert_eq!(uuids.data_type(), &UUID);
        let back = cast_column(&uuids, &DataType::Utf8View, strict).unwrap();
        let back: Vec<_> = back.as_string_view().iter().collect();
        assert_eq!(back, [Some(TEXT), Some(TEXT), None, Some(TEXT)]);
    }

    #[test]
    fn texts_in_a_dictionary_are_read_as_others() {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let texts = cast(&texts(&[Some(TEXT), None, Some(TEXT)]), &dictionary).unwrap();
        let uuids = cast_column(&texts, &UUID, strict).unwrap();
        let back = cast_column(&uuids, &DataType::Utf8View, strict).unwrap();
        let back: Vec<_> = back.as_string_view().iter().collect();
        assert_eq!(back, [Some(TEXT), None, Some(TEXT)]);
    }

    #[test]
    fn other_texts_are_an_error_or_null() {
        let duration = DataType::Duration(TimeUnit::Second);
        for (text, wanted) in [
            ("", UUID),
            (&TEXT[1..], UUID),
            ("6f9619ff-8b86-d011-b42d-00c04fc964fg", UUID),
            ("kea", INTERVAL),
            ("1 mon", duration.clone()),
            ("00:00:00.5", duration),
        ] {
            let texts = texts(&[Some(text)]);
            let error = cast_column(&texts, &wanted, strict).unwrap_err();
            assert!(error.to_string().contains("is not a"), "{error}");
            let conversion = Conversion::between(texts.data_type(), &wanted).unwrap();
            let converted = conversion.convert(&texts, Misfit::Null).unwrap();
            assert_eq!(
                (converted.data_type(), converted.null_count()),
                (&wanted, 1)
            );
        }
    }
}
