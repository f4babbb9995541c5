use arrow::array::ArrayRef;
use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

pub(super) const NAME: &str = "string_concat";

/// Concatenates two texts. The result is NULL if one of them is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct StringConcat {
    signature: Signature,
}

impl Default for StringConcat {
    fn default() -> Self {
        Self {
            // The planner has made the types of the operands equal.
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for StringConcat {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, right] if left == right => Ok(left.clone()),
            _ => exec_err!("{NAME} takes two texts of one type, not {arg_types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if are_scalar { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|value| value.to_array(rows));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        let [left, right] = arrays.as_slice() else {
            return exec_err!("{NAME} takes two texts");
        };
        let joined = concat_elements_dyn(left, right)?;
        Ok(if are_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?)
        } else {
            ColumnarValue::Array(joined)
        })
    }
}
