//! DataFusion adds up the lengths that the texts of all rows are padded to before it checks them. A
//! negative length becomes the largest possible number, and the allocation of that much memory
//! panics.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// Returns whether the function pads texts. Its arguments are the text, the length, and the
/// padding.
pub(super) fn is_padding(function: &str) -> bool {
    matches!(function, "lpad" | "rpad")
}

/// Replaces negative lengths by 0, which has the same meaning.
///
/// # Errors
/// Fails if the lengths are not integers.
pub(super) fn without_negative_lengths(args: &mut ScalarFunctionArgs) -> Result<()> {
    match args.args.get_mut(1) {
        Some(ColumnarValue::Scalar(length)) => {
            let number = length.cast_to(&DataType::Int64)?;
            if matches!(number, ScalarValue::Int64(Some(number)) if number < 0) {
                *length = ScalarValue::Int64(Some(0));
            }
        }
        Some(ColumnarValue::Array(lengths)) => {
            let numbers = cast(lengths, &DataType::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>();
            if numbers.iter().flatten().any(|length| length < 0) {
                let positive: Int64Array = numbers.unary(|length| length.max(0));
                *lengths = Arc::new(positive) as ArrayRef;
            }
        }
        None => {}
    }
    Ok(())
}

/// Refuses negative lengths of lists. DataFusion calls them an internal error.
///
/// # Errors
/// Fails for a negative length, and if the lengths are not integers.
pub(super) fn check_list_lengths(args: &ScalarFunctionArgs) -> Result<()> {
    let Some(lengths) = args.args.get(1) else {
        return Ok(());
    };
    let lengths = lengths.cast_to(&DataType::Int64, None)?.to_array(1)?;
    let lengths = lengths.as_primitive::<Int64Type>();
    match lengths.iter().flatten().find(|length| *length < 0) {
        Some(length) => {
            exec_err!("a list cannot have the length {length}; give it 0 or more elements")
        }
        None => Ok(()),
    }
}
