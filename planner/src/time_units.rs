//! DataFusion 55 compares a timestamp with a text or a date in nanoseconds, which do not have the
//! years before 1677 and after 2262. And it does not compare times of day of different units at
//! all. So [`TimeUnits`] casts the operands to one type before DataFusion looks for one.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Between, BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use volary_exec::date_part::date_part;

use crate::rewrite_parts::rewrite_parts;

/// Casts the operands of comparisons of times to one type. It must run before the rule that makes
/// the types of operands agree.
#[derive(Debug)]
pub(crate) struct TimeUnits;

impl AnalyzerRule for TimeUnits {
    fn name(&self) -> &'static str {
        "time_units"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_parts(plan, is_comparison, |part, schema| Ok(agree(part, schema)))
    }
}

/// Casts the operands of comparisons of times of day to one type. The planner refuses them before
/// any rule sees them. Plans EXTRACT with Volary's function, and not with DataFusion's.
#[derive(Debug)]
pub struct TimesOfDay;

impl ExprPlanner for TimesOfDay {
    fn plan_binary_op(
        &self,
        mut comparison: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        // Finding the type of a chain of conditions takes time for each of its parts, and chains
        // are long.
        if matches!(comparison.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(comparison));
        }
        let types = [&comparison.left, &comparison.right];
        let types = types.map(|operand| operand.get_type(schema).ok());
        if let [Some(left), Some(right)] = types
            && left != right
            && is_time_of_day(&left)
            && is_time_of_day(&right)
        {
            if digits(&left) < digits(&right) {
                comparison.left = cast(comparison.left, right);
            } else {
                comparison.right = cast(comparison.right, left);
            }
        }
        Ok(PlannerResult::Original(comparison))
    }

    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let extracted = ScalarFunction::new_udf(date_part(), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(extracted)))
    }
}

/// Returns whether the expression compares its operands.
pub(crate) fn is_comparison(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryExpr(operation) => matches!(
            operation.op,
            Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom
        ),
        Expr::Between(_) | Expr::InList(_) => true,
        _ => false,
    }
}

fn agree(mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if !is_comparison(&expression) {
        return Transformed::no(expression);
    }
    let mut operands = operands_of(&mut expression);
    let types = operands.iter().map(|operand| operand.get_type(schema).ok());
    let Some(types) = types.collect::<Option<Vec<_>>>() else {
        return Transformed::no(expression);
    };
    let Some(wanted) = common_type(&operands, &types) else {
        return Transformed::no(expression);
    };
    for (operand, data_type) in operands.iter_mut().zip(&types) {
        if *data_type != wanted {
            **operand = cast(std::mem::take(*operand), wanted.clone());
        }
    }
    Transformed::yes(expression)
}

/// Returns the operands of a comparison.
pub(crate) fn operands_of(comparison: &mut Expr) -> Vec<&mut Expr> {
    match comparison {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![left, right],
        Expr::Between(Between {
            expr, low, high, ..
        }) => vec![expr, low, high],
        Expr::InList(InList { expr, list, .. }) => {
            let mut operands = vec![expr.as_mut()];
            operands.extend(list);
            operands
        }
        _ => Vec::new(),
    }
}

/// Returns the type that the operands are cast to. Returns `None` if they are left alone.
fn common_type(operands: &[&mut Expr], types: &[DataType]) -> Option<DataType> {
    let (first, others) = types.split_first()?;
    if others.iter().all(|other| other == first) {
        return None;
    }
    if types.iter().all(is_time_of_day) {
        return types.iter().max_by_key(|time| digits(time)).cloned();
    }
    let timestamps = types.iter().filter(|other| is_coarse_timestamp(other));
    let timestamp = timestamps.min_by_key(|other| digits(other))?;
    let mut all = operands.iter().zip(types);
    let are_cast = all.all(|(operand, data_type)| match data_type {
        DataType::Date32 | DataType::Date64 | DataType::Null => true,
        text if text.is_string() => is_exact(operand, digits(timestamp)),
        other if other == timestamp => true,
        other => has_same_zone(other, timestamp) && is_exact_cast(operand, digits(timestamp)),
    });
    are_cast.then(|| timestamp.clone())
}

fn has_same_zone(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::Timestamp(_, left), DataType::Timestamp(_, right)) => left == right,
        _ => false,
    }
}

fn is_time_of_day(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}

/// Returns whether the operand is a constant of a finer type, such as `TIMESTAMP '2026-01-01'`,
/// whose text has at most this number of digits.
fn is_exact_cast(operand: &Expr, digits: usize) -> bool {
    matches!(operand, Expr::Cast(cast) if is_exact(&cast.expr, digits))
}

fn is_coarse_timestamp(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(unit, _) if *unit != TimeUnit::Nanosecond)
}

/// Returns the number of digits after the point of a second in a type of times.
pub(crate) fn digits(data_type: &DataType) -> usize {
    match data_type {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            }
        }
        _ => 0,
    }
}

/// Returns whether the operand is a constant text whose seconds have at most this number of digits
/// after the point, without zeros at the end.
pub(crate) fn is_exact(operand: &Expr, digits: usize) -> bool {
    let Expr::Literal(value, _) = operand else {
        return false;
    };
    let Some(text) = value.try_as_str() else {
        return false;
    };
    let fraction = text.and_then(|text| text.split_once('.'));
    let fraction = fraction.map_or("", |(_, fraction)| fraction);
    let mut below = fraction.bytes().take_while(u8::is_ascii_digit).skip(digits);
    below.all(|digit| digit == b'0')
}
