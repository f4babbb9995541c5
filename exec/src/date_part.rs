//! DataFusion 55 cuts off the fraction of a second: `extract(second FROM TIME '00:00:01.25')` is 1.
//! In SQL, it is 1.25.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, Float64Array};
use arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// Returns the function `date_part`, which returns seconds with their fraction.
pub fn date_part() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DatePart(datetime::date_part())))
}

/// The function of DataFusion, which is called for everything. It returns the nanoseconds of the
/// minute in place of its seconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart(Arc<ScalarUDF>);

/// The part with which DataFusion's function returns seconds as nanoseconds.
const NANOSECOND: &str = "nanosecond";

/// Returns whether a part is the second. DataFusion takes all these names, and quotes around them.
fn is_second(part: Option<&ScalarValue>) -> bool {
    let part = part.and_then(|part| part.try_as_str().flatten());
    part.is_some_and(|part| {
        let part = part.trim_matches(['\'', '"']).to_ascii_lowercase();
        matches!(part.as_str(), "second" | "seconds" | "sec" | "secs" | "s")
    })
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
        match (args.scalar_arguments, args.arg_fields) {
            ([part, _], [_, time]) if is_second(*part) => {
                let is_nullable = time.is_nullable();
                Ok(Arc::new(Field::new(
                    self.name(),
                    DataType::Float64,
                    is_nullable,
                )))
            }
            _ => self.0.return_field_from_args(args),
        }
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

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), time] = args.args.as_mut_slice() else {
            return self.0.invoke_with_args(args);
        };
        if !is_second(Some(part)) {
            return self.0.invoke_with_args(args);
        }
        match time.data_type() {
            DataType::Interval(_) => return seconds_of_intervals(time),
            DataType::Duration(unit) => return seconds_of_durations(time, unit),
            _ => {}
        }
        *part = ScalarValue::from(NANOSECOND);
        let nanos = Field::new(
            self.name(),
            DataType::Int64,
            args.return_field.is_nullable(),
        );
        args.return_field = Arc::new(nanos);
        let nanos = self
            .0
            .invoke_with_args(args)?
            .cast_to(&DataType::Int64, None)?;
        map_values::<Int64Type>(&nanos, in_seconds)
    }
}

/// Returns all seconds of durations, which have no minutes.
fn seconds_of_durations(durations: &ColumnarValue, unit: TimeUnit) -> Result<ColumnarValue> {
    let units_per_second = match unit {
        TimeUnit::Second => 1.0,
        TimeUnit::Millisecond => 1e3,
        TimeUnit::Microsecond => 1e6,
        TimeUnit::Nanosecond => 1e9,
    };
    let units = durations.cast_to(&DataType::Int64, None)?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a fraction of a second that is lost is less than a millionth of the duration"
    )]
    map_values::<Int64Type>(&units, |units| units as f64 / units_per_second)
}

/// Returns the seconds of intervals, without whole minutes. DataFusion counts the nanoseconds of an
/// interval twice.
fn seconds_of_intervals(intervals: &ColumnarValue) -> Result<ColumnarValue> {
    const NANOS_PER_MINUTE: i64 = 60_000_000_000;
    let wanted = DataType::Interval(IntervalUnit::MonthDayNano);
    let intervals = intervals.cast_to(&wanted, None)?;
    map_values::<IntervalMonthDayNanoType>(&intervals, |interval| {
        in_seconds(interval.nanoseconds % NANOS_PER_MINUTE)
    })
}

fn map_values<T: ArrowPrimitiveType>(
    values: &ColumnarValue,
    compute: impl Fn(T::Native) -> f64,
) -> Result<ColumnarValue> {
    let compute = |values: &ArrayRef| -> Float64Array {
        values.as_primitive::<T>().unary::<_, Float64Type>(&compute)
    };
    Ok(match values {
        ColumnarValue::Array(values) => ColumnarValue::Array(Arc::new(compute(values))),
        ColumnarValue::Scalar(value) => {
            let computed = compute(&value.to_array()?);
            ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?)
        }
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a minute has fewer nanoseconds than the numbers without loss"
)]
fn in_seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}
