//! Parameters: binding and casting.

use std::collections::HashMap;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::CastOptions;
use datafusion::arrow::compute::cast_with_options;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use volary_flight_proto::{Error, ErrorCode, Result};

/// The types of a plan's parameters, by position.
///
/// # Errors
/// `INVALID_ARGUMENT` for parameters that are not numbered from 1 without a gap.
pub(super) fn types(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>> {
    let mut by_name: HashMap<String, Option<DataType>> = plan.get_parameter_types()?;
    let count = by_name.len();
    let mut types = Vec::with_capacity(count);
    for number in 1..=count {
        let name = format!("${number}");
        let data_type = by_name.remove(&name).ok_or_else(|| {
            Error::invalid(format!(
                "parameter {name} is missing: parameters are ? or $1 to $n without a gap"
            ))
        })?;
        types.push(data_type);
    }
    Ok(types)
}

/// The plan with values in place of its parameters.
///
/// # Errors
/// `INVALID_ARGUMENT` for another number of values, or one that cannot be cast to the type that the plan wants.
pub(super) fn bind(plan: LogicalPlan, values: Option<&RecordBatch>) -> Result<LogicalPlan> {
    let types = types(&plan)?;
    let given = values.map_or(0, RecordBatch::num_columns);
    if given != types.len() {
        return Err(Error::invalid(format!(
            "the statement has {} parameters and {given} values were given",
            types.len()
        )));
    }
    let Some(values) = values.filter(|_| given > 0) else {
        return Ok(plan);
    };
    if values.num_rows() != 1 {
        return Err(Error::invalid(format!(
            "{} rows of parameters were given; a query takes one",
            values.num_rows()
        )));
    }
    let mut scalars = Vec::with_capacity(given);
    for (number, (column, wanted)) in (1..).zip(values.columns().iter().zip(&types)) {
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let column = match wanted {
            Some(wanted) if column.data_type() != wanted => {
                cast_with_options(column, wanted, &strict).map_err(|source| {
                    Error::with_source(
                        ErrorCode::InvalidArgument,
                        format!(
                            "parameter ${number} is a {} and the statement wants a {wanted}",
                            column.data_type()
                        ),
                        source,
                    )
                })?
            }
            _ => column.clone(),
        };
        scalars.push(ScalarValue::try_from_array(&column, 0)?);
    }
    Ok(plan.with_param_values(ParamValues::from(scalars))?)
}
