use std::sync::Arc;

use arrow::array::{AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::extremes::Extreme;
use super::length::INTERVAL;
use crate::columnar::{finish, rows_of};

/// Returns the functions that stand for LEAST and GREATEST of intervals.
pub(crate) fn functions() -> [Arc<ScalarUDF>; 2] {
    [Extreme::Min, Extreme::Max].map(|extreme| {
        Arc::new(ScalarUDF::from(ExtremeOfRow {
            extreme,
            signature: Signature::variadic(vec![INTERVAL], Volatility::Immutable),
        }))
    })
}

/// Returns the function that stands for LEAST or GREATEST, by the name of these.
pub fn extreme_of_row(name: &str) -> Option<Arc<ScalarUDF>> {
    let [least, greatest] = functions();
    match name {
        "least" => Some(least),
        "greatest" => Some(greatest),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExtremeOfRow {
    extreme: Extreme,
    signature: Signature,
}

impl ScalarUDFImpl for ExtremeOfRow {
    fn name(&self) -> &str {
        match self.extreme {
            Extreme::Min => "interval_least",
            Extreme::Max => "interval_greatest",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = rows_of(&args.args, args.number_rows);
        let columns = args
            .args
            .iter()
            .map(|argument| argument.cast_to(&INTERVAL, None)?.to_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut found = vec![None; rows];
        for column in &columns {
            let column = column.as_primitive::<IntervalMonthDayNanoType>();
            for (found, value) in found.iter_mut().zip(column) {
                *found = match (*found, value) {
                    (Some(found), Some(value)) => Some(self.extreme.of(found, value)),
                    (found, value) => found.or(value),
                };
            }
        }
        let found: PrimitiveArray<IntervalMonthDayNanoType> = found.into_iter().collect();
        finish(&args.args, Arc::new(found))
    }
}
