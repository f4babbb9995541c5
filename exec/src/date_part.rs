//! DataFusion 55 cuts off the fraction of a second: `extract(second FROM TIME '00:00:01.25')` is 1.
//! In SQL, it is 1.25. DataFusion also computes the seconds of intervals and durations in 32 bits:
//! fractions above two seconds are lost, others are counted twice, and the milliseconds of a month
//! wrap around.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::kernels::cast_utils::IntervalUnit as TextUnit;
use arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    TimeUnit,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::columnar::map_column;
use crate::intervals::INTERVAL;
use crate::nanos::{NANOS_PER_MINUTE, NANOS_PER_SECOND, nanos_per, units_per_second};

/// Returns the function `date_part`, which returns seconds with their fraction.
pub fn date_part() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DatePart(datetime::date_part())))
}

/// The function of DataFusion, which is called for all other parts. It returns the nanoseconds of
/// the minute in place of its seconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart(Arc<ScalarUDF>);

/// The part with which DataFusion's function returns seconds as nanoseconds.
const NANOSECOND: &str = "nanosecond";

/// A part that consists of seconds or of fractions of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    /// All seconds since the beginning.
    Epoch,
}

impl Part {
    /// Returns the part of this name. DataFusion takes the same names, and quotes around them.
    fn named(name: Option<&ScalarValue>) -> Option<Self> {
        let name = name?.try_as_str().flatten()?.trim_matches(['\'', '"']);
        if name.eq_ignore_ascii_case("epoch") {
            return Some(Self::Epoch);
        }
        match name.parse::<TextUnit>().ok()? {
            TextUnit::Second => Some(Self::Second),
            TextUnit::Millisecond => Some(Self::Millisecond),
            TextUnit::Microsecond => Some(Self::Microsecond),
            TextUnit::Nanosecond => Some(Self::Nanosecond),
            _ => None,
        }
    }

    /// Returns the number of nanoseconds by which the part counts.
    fn nanos(self) -> i64 {
        match self {
            Self::Second | Self::Epoch => NANOS_PER_SECOND,
            Self::Millisecond => nanos_per(TimeUnit::Millisecond),
            Self::Microsecond => nanos_per(TimeUnit::Microsecond),
            Self::Nanosecond => 1,
        }
    }

    /// Returns the part of intervals, without whole minutes.
    fn of_intervals(self, intervals: &ColumnarValue) -> Result<ColumnarValue> {
        let intervals = intervals.cast_to(&INTERVAL, None)?;
        map_column(&intervals, |intervals| {
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            let nanos: Int64Array =
                intervals.unary(|interval| interval.nanoseconds % NANOS_PER_MINUTE);
            Ok(match self {
                Self::Second | Self::Epoch => {
                    Arc::new(nanos.unary::<_, Float64Type>(in_seconds)) as ArrayRef
                }
                Self::Nanosecond => Arc::new(nanos),
                // A minute has fewer microseconds than there are numbers of 32 bits.
                Self::Millisecond | Self::Microsecond => {
                    Arc::new(nanos.unary_opt::<_, Int32Type>(|nanos| {
                        i32::try_from(nanos / self.nanos()).ok()
                    }))
                }
            })
        })
    }

    /// Returns all seconds or fractions of durations, which have no minutes.
    fn of_durations(self, durations: &ColumnarValue, unit: TimeUnit) -> Result<ColumnarValue> {
        let units = durations.cast_to(&DataType::Int64, None)?;
        map_column(&units, |units| {
            let units = units.as_primitive::<Int64Type>();
            if matches!(self, Self::Second | Self::Epoch) {
                let seconds = units.unary::<_, Float64Type>(|units| seconds_of(units, unit));
                return Ok(Arc::new(seconds));
            }
            let whole = units.try_unary::<_, Int64Type, DataFusionError>(|units| {
                let nanos = i128::from(units) * i128::from(nanos_per(unit));
                i64::try_from(nanos / i128::from(self.nanos()))
                    .map_err(|_| exec_datafusion_err!("date_part: a duration is out of range"))
            })?;
            Ok(Arc::new(whole))
        })
    }
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let ([name, _], [_, time]) = (args.scalar_arguments, args.arg_fields) else {
            return self.0.return_field_from_args(args);
        };
        let data_type = match (Part::named(*name), time.data_type()) {
            (Some(Part::Second), _) => DataType::Float64,
            (Some(Part::Millisecond | Part::Microsecond), DataType::Duration(_)) => DataType::Int64,
            _ => return self.0.return_field_from_args(args),
        };
        let is_nullable = time.is_nullable();
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.0.inner().preimage(args, literal, info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(name), time] = args.args.as_slice() else {
            return self.0.invoke_with_args(args);
        };
        let Some(part) = Part::named(Some(name)) else {
            return self.0.invoke_with_args(args);
        };
        match (part, time.data_type()) {
            (Part::Epoch, DataType::Interval(_)) => self.0.invoke_with_args(args),
            (_, DataType::Interval(_)) => part.of_intervals(time),
            (_, DataType::Duration(unit)) => part.of_durations(time, unit),
            (Part::Second, _) => self.seconds_of_times(args),
            _ => self.0.invoke_with_args(args),
        }
    }
}

impl DatePart {
    /// Returns the seconds of dates and times, without whole minutes.
    fn seconds_of_times(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.args[0] = ColumnarValue::Scalar(ScalarValue::from(NANOSECOND));
        let nanos = Field::new(
            self.name(),
            DataType::Int64,
            args.return_field.is_nullable(),
        );
        args.return_field = Arc::new(nanos);
        let nanos = self.0.invoke_with_args(args)?;
        let nanos = nanos.cast_to(&DataType::Int64, None)?;
        map_column(&nanos, |nanos| {
            let nanos = nanos.as_primitive::<Int64Type>();
            Ok(Arc::new(nanos.unary::<_, Float64Type>(in_seconds)))
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a fraction of a second that is lost is less than a millionth of the duration"
)]
fn seconds_of(units: i64, unit: TimeUnit) -> f64 {
    units as f64 / units_per_second(unit) as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a minute has fewer nanoseconds than the numbers without loss"
)]
fn in_seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}
