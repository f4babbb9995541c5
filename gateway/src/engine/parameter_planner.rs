//! The planner asks an aggregate or a window function for the type of its result. Some functions
//! fail if an argument has no type. So parameters among their arguments get types before that.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawWindowExpr,
};
use datafusion::logical_expr::{Expr, WindowFunctionDefinition};

/// Aggregates of numbers.
const OF_NUMBERS: [&str; 27] = [
    "sum",
    "avg",
    "mean",
    "median",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "var",
    "var_pop",
    "var_samp",
    "var_population",
    "var_sample",
    "corr",
    "covar",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "regr_intercept",
    "regr_count",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "approx_median",
    "approx_percentile_cont",
];
/// Aggregates of bits.
const OF_INTEGERS: [&str; 3] = ["bit_and", "bit_or", "bit_xor"];
/// Aggregates of conditions.
const OF_CONDITIONS: [&str; 2] = ["bool_and", "bool_or"];

/// Gives types to the parameters that alone decide the type of an argument.
#[derive(Debug)]
pub(super) struct ParameterPlanner;

impl ExprPlanner for ParameterPlanner {
    fn plan_aggregate(
        &self,
        mut call: RawAggregateExpr,
    ) -> Result<PlannerResult<RawAggregateExpr>> {
        type_arguments(call.func.name(), &mut call.args);
        if let Some(filter) = &mut call.filter {
            type_parameters(filter, &DataType::Boolean);
        }
        Ok(PlannerResult::Original(call))
    }

    fn plan_window(&self, mut call: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        if let WindowFunctionDefinition::AggregateUDF(function) = &call.func_def {
            type_arguments(function.name(), &mut call.args);
        }
        Ok(PlannerResult::Original(call))
    }
}

fn type_arguments(function: &str, arguments: &mut [Expr]) {
    let data_type = if OF_NUMBERS.contains(&function) {
        // Drivers can send any number as a DOUBLE. A whole number that is sent as such stays one.
        DataType::Float64
    } else if OF_INTEGERS.contains(&function) {
        DataType::Int64
    } else if OF_CONDITIONS.contains(&function) {
        DataType::Boolean
    } else if function == "string_agg" {
        DataType::Utf8View
    } else {
        return;
    };
    for argument in arguments {
        type_parameters(argument, &data_type);
    }
}

/// Gives the type to the parameters of an expression, if nothing else decides its type.
fn type_parameters(expression: &mut Expr, data_type: &DataType) {
    if !is_of_parameters(expression) {
        return;
    }
    match expression {
        Expr::Placeholder(Placeholder { id, field }) => {
            *field = Some(Arc::new(Field::new(id.as_str(), data_type.clone(), true)));
        }
        Expr::Negative(inner) => type_parameters(inner, data_type),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then);
            for result in results.chain(&mut case.else_expr) {
                type_parameters(result, data_type);
            }
        }
        _ => {}
    }
}

/// Returns whether only parameters without a type decide the type of an expression.
fn is_of_parameters(expression: &Expr) -> bool {
    match expression {
        Expr::Placeholder(parameter) => parameter.field.is_none(),
        Expr::Negative(inner) => is_of_parameters(inner),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then);
            let mut results = results.chain(&case.else_expr).peekable();
            results.peek().is_some()
                && results.all(|result| {
                    matches!(result.as_ref(), Expr::Literal(ScalarValue::Null, _))
                        || is_of_parameters(result)
                })
        }
        _ => false,
    }
}
