use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::kernels::cast_utils::parse_decimal;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use volary_flight_proto::{Error, SqlState};

use super::number_template::NumberTemplate;
use crate::columnar::{finish, rows_of};

/// Number of digits after the point of the result, if the template is not a constant.
const DEFAULT_SCALE: i8 = 10;

/// Returns the function `to_number(text, template)`.
pub(super) fn to_number() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ToNumber {
        signature: Signature::string(2, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumber {
    signature: Signature,
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &'static str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(
            DECIMAL128_MAX_PRECISION,
            DEFAULT_SCALE,
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let template = args.scalar_arguments.get(1).copied().flatten();
        let scale = match template.and_then(|template| template.try_as_str().flatten()) {
            Some(template) => {
                let digits = NumberTemplate::parse(template)?.scale();
                let most = DECIMAL128_MAX_PRECISION.cast_signed();
                i8::try_from(digits).unwrap_or(most).min(most)
            }
            None => DEFAULT_SCALE,
        };
        let data_type = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Decimal128(precision, scale) = *args.return_field.data_type() else {
            return internal_err!("to_number returns a decimal");
        };
        let rows = rows_of(&args.args, args.number_rows);
        let columns = args
            .args
            .iter()
            .map(|argument| argument.cast_to(&DataType::Utf8View, None)?.to_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let [texts, templates] = columns.as_slice() else {
            return internal_err!("to_number takes two arguments");
        };
        let (texts, templates) = (texts.as_string_view(), templates.as_string_view());
        let mut last: Option<(&str, NumberTemplate)> = None;
        let numbers = texts.iter().zip(templates).map(|(text, written)| {
            let (Some(text), Some(written)) = (text, written) else {
                return Ok(None);
            };
            let template = match last.take() {
                Some((known, template)) if known == written => template,
                _ => NumberTemplate::parse(written)?,
            };
            let digits = template.read(text)?;
            last = Some((written, template));
            let number = parse_decimal::<Decimal128Type>(&digits, precision, scale);
            number.map(Some).map_err(|_| out_of_range(text))
        });
        let numbers: Decimal128Array = numbers.collect::<Result<_>>()?;
        let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(precision, scale)?);
        finish(&args.args, numbers)
    }
}

fn out_of_range(text: &str) -> datafusion::error::DataFusionError {
    Error::invalid(format!("the number '{text}' has too many digits"))
        .with_sqlstate(SqlState::NumericValueOutOfRange)
        .into()
}
