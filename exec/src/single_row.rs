use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use volary_flight_proto::{Error, SqlState};

/// Returns the function `single_row`: the only value of a list of the values that a subquery found.
/// It is NULL if there is no list or no value in it, and an error if there are several.
pub fn single_row() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(SingleRow(Signature::any(
        1,
        Volatility::Immutable,
    ))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleRow(Signature);

impl ScalarUDFImpl for SingleRow {
    fn name(&self) -> &'static str {
        "single_row"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::List(item)] => Ok(item.data_type().clone()),
            _ => internal_err!("single_row takes a list"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = args.args.as_slice() else {
            return internal_err!("single_row takes one argument");
        };
        let is_scalar = matches!(lists, ColumnarValue::Scalar(_));
        let lists = match lists {
            ColumnarValue::Scalar(list) => list.to_array()?,
            ColumnarValue::Array(lists) => Arc::clone(lists),
        };
        let values = single_values(&lists)?;
        Ok(if is_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
        } else {
            ColumnarValue::Array(values)
        })
    }
}

fn single_values(lists: &ArrayRef) -> Result<ArrayRef> {
    let Some(lists) = lists.as_list_opt::<i32>() else {
        return internal_err!("single_row takes a list, not {}", lists.data_type());
    };
    let positions = (0..lists.len()).map(|row| {
        let length = if lists.is_null(row) {
            0
        } else {
            lists.value_length(row)
        };
        match length {
            0 => Ok(None),
            1 => Ok(u64::try_from(lists.value_offsets()[row]).ok()),
            _ => Err(Error::invalid(
                "a subquery that is used as a value has returned several rows; use max or another aggregate, or LIMIT 1",
            )
            .with_sqlstate(SqlState::CardinalityViolation)
            .into()),
        }
    });
    let positions = positions.collect::<Result<UInt64Array>>()?;
    Ok(take(lists.values(), &positions, None)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn a_list_has_one_value_or_none() {
        let lists = |rows: Vec<Option<Vec<Option<i64>>>>| -> ArrayRef {
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows))
        };
        let few = lists(vec![
            Some(vec![Some(7)]),
            None,
            Some(vec![]),
            Some(vec![None]),
            Some(vec![Some(9)]),
        ]);
        let expected = Int64Array::from(vec![Some(7), None, None, None, Some(9)]);
        assert_eq!(single_values(&few).unwrap().as_primitive(), &expected);
        let part = few.slice(4, 1);
        let expected = Int64Array::from(vec![9]);
        assert_eq!(single_values(&part).unwrap().as_primitive(), &expected);
        let many = lists(vec![Some(vec![Some(1)]), Some(vec![Some(1), Some(1)])]);
        let error = single_values(&many).unwrap_err();
        assert!(error.to_string().contains("several rows"), "{error}");
    }
}
