//! DataFusion 55 makes series of timestamps in nanoseconds: a series outside the years 1678 to 2261
//! is NULL. It also ends a series of whole days at the first local time that clocks skip or show
//! twice.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::types::{
    ArrowTimestampType, IntervalMonthDayNanoType, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, PrimitiveArray, PrimitiveBuilder};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, TimeUnit};
use arrow::temporal_conversions::as_datetime_with_timezone;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::columnar::{finish, rows_of};
use crate::intervals::INTERVAL;
use crate::local_time::{add_interval, zone_named};

/// Returns `range` and `generate_series` for timestamps of all years in place of DataFusion's
/// functions, and each other function as it is.
pub(crate) fn with_all_years(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    let last = match function.name() {
        "range" => Last::Excluded,
        "generate_series" => Last::Included,
        _ => return function,
    };
    Arc::new(ScalarUDF::from(TimestampSeries { function, last }))
}

/// Says whether a series contains its last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Last {
    Included,
    Excluded,
}

/// A function that makes a list of all timestamps from `start` to `stop`, `step` apart. It calls
/// DataFusion's function for values of other types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimestampSeries {
    function: Arc<ScalarUDF>,
    last: Last,
}

impl ScalarUDFImpl for TimestampSeries {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match element_type(arg_types) {
            Some(element) => Ok(DataType::List(Field::new_list_field(element, true).into())),
            None => self.function.inner().return_type(arg_types),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = args.args.iter().map(ColumnarValue::data_type).collect();
        let element = match element_type(&types) {
            Some(element) if types.get(2) == Some(&INTERVAL) => element,
            _ => return self.function.invoke_with_args(args),
        };
        let rows = rows_of(&args.args, args.number_rows);
        let arrays: Vec<_> = args
            .args
            .iter()
            .map(|value| value.to_array(rows))
            .collect::<Result<_>>()?;
        let made = match &element {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                self.series::<TimestampNanosecondType>(&arrays, &element)
            }
            _ => self.series::<TimestampMicrosecondType>(&arrays, &element),
        }?;
        finish(&args.args, made)
    }
}

/// Returns the type of the elements if these are the types of a series of timestamps, otherwise
/// `None`. A step may have microseconds, so the elements have them, too.
fn element_type(arguments: &[DataType]) -> Option<DataType> {
    match arguments {
        [
            DataType::Timestamp(start, zone),
            DataType::Timestamp(stop, _),
            _,
        ] => {
            let has_nanos = [start, stop].contains(&&TimeUnit::Nanosecond);
            let unit = if has_nanos {
                TimeUnit::Nanosecond
            } else {
                TimeUnit::Microsecond
            };
            Some(DataType::Timestamp(unit, zone.clone()))
        }
        _ => None,
    }
}

impl TimestampSeries {
    /// Returns a list for each row.
    ///
    /// # Errors
    /// Fails if a step is zero, is less than the unit of `T` or has parts of different signs, or if
    /// a timestamp is out of the range of that unit.
    fn series<T: ArrowTimestampType>(
        &self,
        arguments: &[ArrayRef],
        element: &DataType,
    ) -> Result<ArrayRef> {
        let [start, stop, step] = take_function_args(self.name(), arguments)?;
        let (starts, zone) = in_unit::<T>(start)?;
        let (stops, _) = in_unit::<T>(stop)?;
        let steps = step.as_primitive::<IntervalMonthDayNanoType>();
        let values = PrimitiveBuilder::<T>::new().with_data_type(element.clone());
        let mut lists = ListBuilder::new(values);
        for row in 0..starts.len() {
            if starts.is_null(row) || stops.is_null(row) || steps.is_null(row) {
                lists.append_null();
                continue;
            }
            let (start, stop) = (starts.value(row), stops.value(row));
            self.append_series::<T>(lists.values(), start, stop, steps.value(row), zone)?;
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    }

    fn append_series<T: ArrowTimestampType>(
        &self,
        values: &mut PrimitiveBuilder<T>,
        start: i64,
        stop: i64,
        step: IntervalMonthDayNano,
        zone: Tz,
    ) -> Result<()> {
        // The limit counts timestamps before they are made, which it cannot do for other steps.
        let parts = [
            i64::from(step.months),
            i64::from(step.days),
            step.nanoseconds,
        ];
        if parts.iter().any(|part| *part > 0) && parts.iter().any(|part| *part < 0) {
            return exec_err!(
                "{}: the months, the days and the time of the step must not have different signs",
                self.name()
            );
        }
        let after = |value: i64| {
            let time = add_interval(&as_datetime_with_timezone::<T>(value, zone)?, step)?;
            T::from_naive_datetime(time.naive_utc(), None)
        };
        let Some(second) = after(start) else {
            return exec_err!("{}: start and step give no timestamp", self.name());
        };
        let direction = second.cmp(&start);
        if direction == Ordering::Equal {
            return exec_err!(
                "{}: the step must not be zero, nor shorter than the digits that its timestamps have",
                self.name()
            );
        }
        let mut next = Some(start);
        while let Some(value) = next {
            let reaches = stop.cmp(&value);
            let is_in =
                reaches == direction || (reaches == Ordering::Equal && self.last == Last::Included);
            if !is_in {
                break;
            }
            values.append_value(value);
            next = after(value).filter(|later| later.cmp(&value) == direction);
        }
        Ok(())
    }
}

/// Returns timestamps in the unit of `T`, and their zone: UTC if they have none.
///
/// # Errors
/// Fails if a timestamp is out of the range of that unit.
fn in_unit<T: ArrowTimestampType>(times: &ArrayRef) -> Result<(PrimitiveArray<T>, Tz)> {
    let zone = match times.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        other => return exec_err!("a series of timestamps cannot begin or end with a {other}"),
    };
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let data_type = DataType::Timestamp(T::UNIT, zone.clone());
    let times = cast_with_options(times, &data_type, &strict)?;
    let zone = zone_named(zone.as_deref().unwrap_or("+00:00"))?;
    Ok((times.as_primitive::<T>().clone(), zone))
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampMicrosecondArray;
    use chrono::{DateTime, Utc};
    use datafusion::common::ScalarValue;
    use datafusion::execution::SessionStateDefaults;

    use super::*;

    /// Returns the series from `start` to `stop`, in microseconds, in a zone.
    fn series(
        name: &str,
        [start, stop]: [&str; 2],
        step: IntervalMonthDayNano,
        zone: &str,
    ) -> Result<Vec<String>> {
        let defaults = SessionStateDefaults::default_scalar_functions();
        let found = defaults
            .into_iter()
            .find(|function| function.name() == name);
        let function = with_all_years(found.expect("DataFusion has the function"));
        let time = |text: &str| {
            let time: DateTime<Utc> = text.parse().expect("a time");
            ScalarValue::TimestampMicrosecond(Some(time.timestamp_micros()), Some(zone.into()))
        };
        let step = ScalarValue::IntervalMonthDayNano(Some(step));
        let arguments = [time(start), time(stop), step];
        let types: Vec<_> = arguments.iter().map(ScalarValue::data_type).collect();
        let made = function.invoke_with_args(ScalarFunctionArgs {
            args: arguments.map(ColumnarValue::Scalar).into(),
            arg_fields: types
                .iter()
                .map(|each| Arc::new(Field::new("x", each.clone(), true)))
                .collect(),
            number_rows: 1,
            return_field: Arc::new(Field::new(
                "made",
                function.inner().return_type(&types)?,
                true,
            )),
            config_options: Arc::default(),
        })?;
        let made = made.to_array(1)?;
        let times = made.as_list::<i32>().value(0);
        let times: &TimestampMicrosecondArray = times.as_primitive();
        let text = |time: &i64| {
            let time = as_datetime_with_timezone::<TimestampMicrosecondType>(
                *time,
                zone.parse().expect("a zone"),
            );
            time.expect("a time").to_rfc3339()
        };
        Ok(times.values().iter().map(text).collect())
    }

    #[test]
    fn years_beyond_nanoseconds() {
        let days = IntervalMonthDayNano::new(0, 1, 0);
        let made = series(
            "generate_series",
            ["9999-12-30T00:00:00Z", "9999-12-31T00:00:00Z"],
            days,
            "+00:00",
        );
        assert_eq!(
            made.unwrap(),
            ["9999-12-30T00:00:00+00:00", "9999-12-31T00:00:00+00:00"]
        );
        let made = series(
            "range",
            ["0001-01-02T00:00:00Z", "0001-01-01T00:00:00Z"],
            IntervalMonthDayNano::new(0, -1, 0),
            "+00:00",
        );
        assert_eq!(made.unwrap(), ["0001-01-02T00:00:00+00:00"]);
    }

    #[test]
    fn days_with_skipped_and_repeated_hours() {
        let day = IntervalMonthDayNano::new(0, 1, 0);
        let made = series(
            "generate_series",
            ["2026-03-28T01:30:00Z", "2026-03-30T12:00:00Z"],
            day,
            "Europe/Berlin",
        );
        // Clocks skip 02:30 on 29 March.
        assert_eq!(
            made.unwrap(),
            [
                "2026-03-28T02:30:00+01:00",
                "2026-03-29T03:30:00+02:00",
                "2026-03-30T03:30:00+02:00"
            ]
        );
        let made = series(
            "generate_series",
            ["2026-10-24T00:30:00Z", "2026-10-26T12:00:00Z"],
            day,
            "Europe/Berlin",
        );
        // Clocks show 02:30 twice on 25 October.
        assert_eq!(
            made.unwrap(),
            [
                "2026-10-24T02:30:00+02:00",
                "2026-10-25T02:30:00+02:00",
                "2026-10-26T02:30:00+01:00"
            ]
        );
    }

    #[test]
    fn a_step_that_does_not_move_is_refused() {
        let times = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];
        for step in [
            IntervalMonthDayNano::new(0, 0, 0),
            IntervalMonthDayNano::new(0, 0, 999),
        ] {
            let error = series("range", times, step, "+00:00")
                .unwrap_err()
                .to_string();
            assert!(error.contains("the step must not be zero"), "{error}");
        }
    }

    #[test]
    fn a_step_with_parts_of_different_signs_is_refused() {
        // From 1 January, this step adds a microsecond at a time.
        let step = IntervalMonthDayNano::new(1, -31, 1000);
        let made = series(
            "range",
            ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"],
            step,
            "+00:00",
        );
        let error = made.unwrap_err().to_string();
        assert!(error.contains("different signs"), "{error}");
    }
}
