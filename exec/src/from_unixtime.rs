use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::instants::{EXPLICIT_UTC, UTC, is_utc};

/// Returns the function `from_unixtime`. Its values are instants, unlike those of DataFusion 55,
/// which have no time zone unless a second argument names one.
pub(crate) fn from_unixtime() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(FromUnixtime(datetime::from_unixtime())))
}

/// The function of DataFusion. A cast computes the values in its place.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FromUnixtime(Arc<ScalarUDF>);

impl ScalarUDFImpl for FromUnixtime {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of from_unixtime depends on its second argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let zone = match args.scalar_arguments {
            [_] => UTC,
            [_, Some(zone)] => match zone.try_as_str().flatten() {
                Some(zone) if is_utc(zone) => EXPLICIT_UTC,
                Some(zone) if !zone.is_empty() => zone,
                _ => return exec_err!("the time zone of from_unixtime must be a name, not NULL"),
            },
            _ => return exec_err!("the time zone of from_unixtime must be a constant"),
        };
        let data_type = DataType::Timestamp(TimeUnit::Second, Some(zone.into()));
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.0.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.first() {
            Some(seconds) => seconds.cast_to(args.return_field.data_type(), None),
            None => exec_err!("from_unixtime takes a number of seconds"),
        }
    }
}
