//! Arrow does not cast between texts and UUIDs, and DataFusion does not compare the two, nor texts
//! with intervals and durations. [`TextOperators`] and [`TextOperands`] cast the texts, and
//! [`TextCasts`] replaces the casts by functions ([`volary_exec::text_casts`]).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, TryCast, cast};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use volary_exec::text_casts::{self, is_read_by_own_cast};
use volary_exec::uuids::UUID;

use crate::rewrite_parts::rewrite_parts;
use crate::time_units::{is_comparison, operands_of};

/// Casts a text to the type of the UUID, the interval or the duration that it is compared with.
/// Casts a UUID to a text if a text is joined to it by `||`. The planner refuses such operations
/// before any rule sees them.
#[derive(Debug)]
pub struct TextOperators;

impl ExprPlanner for TextOperators {
    fn plan_binary_op(
        &self,
        mut operation: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        keep_double(&mut operation, schema);
        let is_comparison = matches!(
            operation.op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Spaceship
        );
        if !is_comparison && operation.op != BinaryOperator::StringConcat {
            return Ok(PlannerResult::Original(operation));
        }
        let types = [&operation.left, &operation.right];
        let types = types.map(|operand| operand.get_type(schema).ok());
        let [Some(left), Some(right)] = types else {
            return Ok(PlannerResult::Original(operation));
        };
        if left.is_string() && is_read_by_own_cast(&right) {
            if is_comparison {
                operation.left = cast(operation.left, right);
            } else if right == UUID {
                operation.right = cast(operation.right, DataType::Utf8);
            }
        } else if right.is_string() && is_read_by_own_cast(&left) {
            if is_comparison {
                operation.right = cast(operation.right, left);
            } else if left == UUID {
                operation.left = cast(operation.left, DataType::Utf8);
            }
        }
        Ok(PlannerResult::Original(operation))
    }
}

/// Reads a number with many digits beside a double as a double, because DataFusion would compare
/// both as decimals.
fn keep_double(operation: &mut RawBinaryExpr, schema: &DFSchema) {
    let is_double = |side: &Expr| side.get_type(schema).is_ok_and(|it| it.is_floating());
    if text_of_decimal(&operation.left).is_some() && is_double(&operation.right) {
        operation.left = double_of_decimal(&operation.left);
    } else if text_of_decimal(&operation.right).is_some() && is_double(&operation.left) {
        operation.right = double_of_decimal(&operation.right);
    }
}

/// Returns a cast of the text of a constant decimal to a double. Other values stay as they are.
fn double_of_decimal(value: &Expr) -> Expr {
    match text_of_decimal(value) {
        Some(text) => cast(text.clone(), DataType::Float64),
        None => value.clone(),
    }
}

/// Casts the texts with which BETWEEN and IN compare UUIDs, intervals and durations, and the long
/// numbers with which they compare doubles. It must run before the rule that makes the types of
/// operands agree.
#[derive(Debug)]
pub(crate) struct TextOperands;

impl AnalyzerRule for TextOperands {
    fn name(&self) -> &'static str {
        "text_operands"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_parts(plan, is_comparison, with_equal_types)
    }
}

/// Replaces the casts that Arrow does not make by functions, and reads a constant decimal that is
/// cast to a double as a double at once. It must run after the rule that makes
/// the types of operands agree.
#[derive(Debug)]
pub(crate) struct TextCasts;

impl AnalyzerRule for TextCasts {
    fn name(&self) -> &'static str {
        "text_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let is_cast = |part: &Expr| matches!(part, Expr::Cast(_) | Expr::TryCast(_));
        rewrite_parts(plan, is_cast, without_cast)
    }
}

fn with_equal_types(mut part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_comparison(&part) {
        return Ok(Transformed::no(part));
    }
    let mut operands = operands_of(&mut part);
    let types = operands.iter().map(|operand| operand.get_type(schema).ok());
    let types: Vec<_> = types.collect();
    let has_long_number = operands.iter().any(|it| text_of_decimal(it).is_some());
    if has_long_number && types.iter().flatten().any(DataType::is_floating) {
        for operand in &mut operands {
            **operand = double_of_decimal(operand);
        }
        return Ok(Transformed::yes(part));
    }
    let wanted = types
        .iter()
        .flatten()
        .find(|known| is_read_by_own_cast(known));
    let Some(wanted) = wanted.cloned() else {
        return Ok(Transformed::no(part));
    };
    for (operand, data_type) in operands.iter_mut().zip(types) {
        if data_type.is_some_and(|data_type| data_type.is_string()) {
            **operand = cast(std::mem::take(*operand), wanted.clone());
        }
    }
    Ok(Transformed::yes(part))
}

/// Returns the constant text that the value reads as a decimal.
pub(crate) fn text_of_decimal(value: &Expr) -> Option<&Expr> {
    match value {
        Expr::Cast(Cast { expr, field }) if field.data_type().is_decimal() => {
            let is_text =
                matches!(expr.as_ref(), Expr::Literal(text, _) if text.data_type().is_string());
            is_text.then_some(expr)
        }
        _ => None,
    }
}

fn without_cast(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (value, to, is_try) = match &part {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        _ => return Ok(Transformed::no(part)),
    };
    if matches!(to, DataType::Float32 | DataType::Float64)
        && let Some(text) = text_of_decimal(value)
    {
        // A cast of the decimal would round twice.
        return Ok(Transformed::yes(cast(text.clone(), to.clone())));
    }
    Ok(
        match text_casts::convert(value, &value.get_type(schema)?, to, is_try) {
            Some(converted) => Transformed::yes(converted),
            None => Transformed::no(part),
        },
    )
}
