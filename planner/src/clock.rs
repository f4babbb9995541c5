use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, Timelike, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::types::Date32Type;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{ScalarValue, internal_err, plan_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use volary_exec::instants::UTC;

use crate::session_settings::SessionSettings;

/// Returns `now`, `current_date` and `current_time`: the time at which the statement began, and its
/// date and time of day in the time zone of the session. DataFusion's own functions count
/// nanoseconds. Other times would be converted to these when they are compared with them, and those
/// after the year 2262 do not fit.
pub fn functions() -> [Arc<ScalarUDF>; 3] {
    [
        clock("now", &["current_timestamp"], Reading::Instant),
        clock("current_date", &["today"], Reading::Date),
        clock("current_time", &[], Reading::TimeOfDay),
    ]
}

fn clock(name: &'static str, aliases: &[&str], reading: Reading) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Clock {
        name,
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        signature: Signature::nullary(Volatility::Stable),
        reading,
    }))
}

/// What a function reads from the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reading {
    Instant,
    Date,
    TimeOfDay,
}

impl Reading {
    fn data_type(self) -> DataType {
        match self {
            Self::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            Self::Date => DataType::Date32,
            Self::TimeOfDay => DataType::Time64(TimeUnit::Microsecond),
        }
    }

    fn of(self, now: DateTime<Utc>, zone: &Tz) -> ScalarValue {
        let local: NaiveDateTime = now.with_timezone(zone).naive_local();
        match self {
            Self::Instant => {
                ScalarValue::TimestampMicrosecond(Some(now.timestamp_micros()), Some(UTC.into()))
            }
            Self::Date => ScalarValue::Date32(Some(Date32Type::from_naive_date(local.date()))),
            Self::TimeOfDay => {
                let seconds = i64::from(local.num_seconds_from_midnight());
                let micros = seconds * 1_000_000 + i64::from(local.nanosecond() / 1_000);
                ScalarValue::Time64Microsecond(Some(micros))
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
    reading: Reading,
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.reading.data_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = Field::new(self.name, self.reading.data_type(), false);
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{}() is computed when a statement is planned", self.name)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(now) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let zone = SessionSettings::time_zone(info.config_options());
        let zone: Tz = zone
            .parse()
            .map_err(|_| plan_datafusion_err!("there is no time zone \"{zone}\""))?;
        let read = self.reading.of(now, &zone);
        Ok(ExprSimplifyResult::Simplified(lit(read)))
    }
}
