//! A constant argument of a function is not copied for each row, and the value of a function whose
//! arguments are all constants is a constant, too.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// Computes a column from a column, or a constant from a constant.
///
/// # Errors
/// The errors of `compute`.
pub(crate) fn map_column(
    value: &ColumnarValue,
    compute: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    Ok(match value {
        ColumnarValue::Array(values) => ColumnarValue::Array(compute(values)?),
        ColumnarValue::Scalar(value) => {
            let computed = compute(&value.to_array()?)?;
            ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?)
        }
    })
}

/// Computes a text from the texts in the arguments of a function, row by row. A text is `None`
/// where the argument is NULL.
///
/// # Errors
/// The errors of `of_row`.
pub(crate) fn map_texts(
    args: &ScalarFunctionArgs,
    of_row: impl Fn(&[Option<&str>]) -> Result<Option<String>>,
) -> Result<ColumnarValue> {
    let rows = rows_of(&args.args, args.number_rows);
    let columns = args.args.iter().map(|argument| {
        let texts = argument.cast_to(&DataType::Utf8View, None)?;
        texts.to_array(rows)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let columns: Vec<_> = columns
        .iter()
        .map(|column| column.as_string_view())
        .collect();
    let mut made = StringViewBuilder::with_capacity(rows);
    let mut texts = Vec::with_capacity(columns.len());
    for row in 0..rows {
        texts.clear();
        let of_columns = columns.iter();
        texts.extend(of_columns.map(|column| column.is_valid(row).then(|| column.value(row))));
        made.append_option(of_row(&texts)?);
    }
    finish(&args.args, Arc::new(made.finish()))
}

/// Returns for how many rows a function computes: for one if all its arguments are constants. A
/// batch may have no rows, but a constant always has a value.
pub(crate) fn rows_of(arguments: &[ColumnarValue], rows: usize) -> usize {
    if are_constant(arguments) { 1 } else { rows }
}

/// Returns the values as a constant if all arguments are constants. `values` has as many rows as
/// [`rows_of`] says.
///
/// # Errors
/// Fails if a value of this type cannot be a constant.
pub(crate) fn finish(arguments: &[ColumnarValue], values: ArrayRef) -> Result<ColumnarValue> {
    if are_constant(arguments) {
        let value = ScalarValue::try_from_array(&values, 0)?;
        return Ok(ColumnarValue::Scalar(value));
    }
    Ok(ColumnarValue::Array(values))
}

fn are_constant(arguments: &[ColumnarValue]) -> bool {
    let mut arguments = arguments.iter();
    arguments.all(|argument| matches!(argument, ColumnarValue::Scalar(_)))
}
