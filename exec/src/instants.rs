//! An instant is a value of SQL's TIMESTAMP WITH TIME ZONE. Its Arrow type is always
//! `Timestamp(unit, "UTC")`, whatever the time zone of the session. So two instants always have
//! the same zone, and a gateway and a worker cannot disagree about it. The zone of the session is
//! only needed to read and write text and the parts of a date, and the planner writes it into the
//! expressions that do so.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::functions::datetime;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::postgres::with_templates;

/// The time zone in the Arrow type of an instant.
pub const UTC: &str = "UTC";

/// The time zone in the Arrow type of `x AT TIME ZONE 'UTC'`. Such values are read and written in
/// UTC, whatever the time zone of the session is.
pub const EXPLICIT_UTC: &str = "Etc/UTC";

/// The end of the names of the functions that [`functions`] returns.
const IN_ZONE: &str = "_in_zone";

/// Sets the time zone with which DataFusion plans and computes. Its function `to_timestamp` then
/// returns instants.
pub fn plan_in_utc(options: &mut ConfigOptions) {
    options.execution.time_zone = Some(UTC.to_owned());
}

/// Returns whether this is a name of UTC.
pub fn is_utc(zone: &str) -> bool {
    [UTC, EXPLICIT_UTC, "Z", "+00:00", "-00:00", "+0000", "+00"].contains(&zone)
}

/// Returns whether a type is that of instants.
pub fn is_instant(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(zone)) if &**zone == UTC)
}

/// Returns whether values of a type are instants only together with a time zone.
pub fn is_local(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, None)
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_) => true,
        DataType::Dictionary(_, values) => is_local(values),
        other => other.is_string(),
    }
}

/// Casts a column with `cast`. Texts, dates and times without a time zone become instants in
/// `zone`.
///
/// # Errors
/// The errors of `cast`.
pub fn cast_in_zone<E>(
    column: &ArrayRef,
    wanted: &DataType,
    zone: &Arc<str>,
    cast: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef, E>,
) -> Result<ArrayRef, E> {
    let from = column.data_type();
    match wanted {
        DataType::Timestamp(unit, _) if is_instant(wanted) && is_local(from) && !is_utc(zone) => {
            let zoned = DataType::Timestamp(*unit, Some(Arc::clone(zone)));
            let read = match from {
                // Arrow reads a date as midnight in UTC, whatever the zone of the other type.
                DataType::Date32 | DataType::Date64 => {
                    let midnight = cast(column, &DataType::Timestamp(*unit, None))?;
                    cast(&midnight, &zoned)?
                }
                _ => cast(column, &zoned)?,
            };
            // This changes only the zone in the type.
            cast(&read, wanted)
        }
        _ => cast(column, wanted),
    }
}

/// Returns `to_timestamp`, `to_timestamp_seconds` and so on, and the variants of them that take a
/// time zone before the other arguments. These read texts without an offset as times in that zone.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let functions = of_utc().map(|utc| {
        let name = name_in_zone(utc.name());
        // The arguments after the zone are checked when the function is called.
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::from(ToTimestampInZone {
            name,
            signature,
            utc,
        }))
    });
    let in_zones = with_templates(functions, 1);
    let mut all = with_templates(of_utc(), 0);
    all.extend(in_zones);
    all
}

/// Returns `to_timestamp`, `to_timestamp_seconds` and so on, which read texts without an offset in
/// UTC.
fn of_utc() -> [Arc<ScalarUDF>; 5] {
    let functions = [
        datetime::to_timestamp as fn(&ConfigOptions) -> Arc<ScalarUDF>,
        datetime::to_timestamp_seconds,
        datetime::to_timestamp_millis,
        datetime::to_timestamp_micros,
        datetime::to_timestamp_nanos,
    ];
    let mut options = ConfigOptions::default();
    plan_in_utc(&mut options);
    functions.map(|function| function(&options))
}

/// Returns the name of the variant of a function that takes a time zone.
pub fn name_in_zone(function: &str) -> String {
    format!("{function}{IN_ZONE}")
}

/// A function that reads instants from texts, with the time zone of those without an offset as its
/// first argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestampInZone {
    name: String,
    signature: Signature,
    /// The function that takes no zone and reads texts without an offset in UTC.
    utc: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for ToTimestampInZone {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.split_first() {
            Some((zone, texts)) if zone.is_string() => self.utc.inner().return_type(texts),
            _ => exec_err!("the first argument of {} must be a time zone", self.name),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = args.args.first().and_then(|zone| match zone {
            ColumnarValue::Scalar(zone) => zone.try_as_str().flatten(),
            ColumnarValue::Array(_) => None,
        });
        let Some(zone) = zone else {
            return exec_err!(
                "the first argument of {} must be a constant time zone",
                self.name
            );
        };
        let mut options = ConfigOptions::default();
        options.execution.time_zone = Some(zone.to_owned());
        let Some(function) = self.utc.inner().with_updated_config(&options) else {
            return exec_err!("{} has no time zone", self.utc.name());
        };
        args.args.remove(0);
        args.arg_fields.remove(0);
        let instants = Arc::clone(&args.return_field);
        args.return_field = with_zone(&instants, &options);
        let read = function.invoke_with_args(args)?;
        read.cast_to(instants.data_type(), None)
    }
}

/// Returns the field with the time zone of the options.
fn with_zone(instants: &FieldRef, options: &ConfigOptions) -> FieldRef {
    let DataType::Timestamp(unit, _) = instants.data_type() else {
        return Arc::clone(instants);
    };
    let zone = options.execution.time_zone.as_deref().map(Arc::from);
    let zoned = instants.as_ref().clone();
    Arc::new(zoned.with_data_type(DataType::Timestamp(*unit, zone)))
}
