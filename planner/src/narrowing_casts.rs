//! The condition `CAST(price AS BIGINT) = 5` is also true for 5.30. DataFusion 55 instead compares
//! the column with 5.00, without the cast. It does so for casts of decimals that lose digits
//! (apache/datafusion#23095), for casts of timestamps to a time zone or to another number of
//! digits, and for TRY_CAST of values that do not fit. [`NarrowingCasts`] wraps such a cast in a
//! function that changes nothing, and that no rule looks into: `nullif(…, NULL)`, which every
//! worker knows.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, TryCast, lit};
use datafusion::optimizer::AnalyzerRule;
use volary_exec::instants::is_utc;
use volary_exec::rewrite::{has_part, rewrite_expressions};

/// Wraps casts that change values. It must run after the rule that makes the types of operands
/// agree.
#[derive(Debug)]
pub struct NarrowingCasts;

impl AnalyzerRule for NarrowingCasts {
    fn name(&self) -> &'static str {
        "narrowing_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut changed = false;
        let plan = plan.transform_up_with_subqueries(|node| {
            let mut node = Transformed::no(node);
            if has_part(&node.data, |part| {
                matches!(part, Expr::Cast(_) | Expr::TryCast(_))
            })? {
                node = rewrite_expressions(node.data, wrap_narrowing_cast)?;
                changed |= node.transformed;
            }
            // The wrapped expressions may be NULL, which changes the schemas of all operators
            // above, too.
            if changed {
                return node.map_data(LogicalPlan::recompute_schema);
            }
            Ok(node)
        })?;
        Ok(plan.data)
    }
}

fn wrap_narrowing_cast(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_narrowing = match &expression {
        Expr::Cast(Cast { expr, field }) if !matches!(**expr, Expr::Literal(..)) => {
            narrows(&expr.get_type(schema)?, field.data_type())
        }
        Expr::TryCast(TryCast { expr, field }) if !matches!(**expr, Expr::Literal(..)) => {
            may_not_fit(&expr.get_type(schema)?, field.data_type())
        }
        _ => false,
    };
    if !is_narrowing {
        return Ok(Transformed::no(expression));
    }
    let null = ScalarValue::try_from(expression.get_type(schema)?)?;
    Ok(Transformed::yes(nullif(expression, lit(null))))
}

/// Returns whether a cast changes some values, or maps different values to one.
fn narrows(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(zone))) if !is_utc(zone) => true,
        // With more digits, the cast keeps all values. But DataFusion cuts off the digits of the
        // other side of a comparison.
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => from != to,
        _ => scale(from).is_some_and(|digits| {
            let kept_digits = scale(to).or_else(|| to.is_integer().then_some(0));
            kept_digits.is_some_and(|kept| kept < digits)
        }),
    }
}

/// Returns whether TRY_CAST may return NULL, for types that DataFusion compares without the cast:
/// numbers and times.
fn may_not_fit(from: &DataType, to: &DataType) -> bool {
    let is_text = |side: &DataType| side.is_string() || side.is_binary();
    from != to && !is_text(from) && !is_text(to)
}

fn scale(decimal: &DataType) -> Option<i8> {
    match decimal {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn casts_that_keep_values_are_left_alone() {
        let naive = DataType::Timestamp(TimeUnit::Microsecond, None);
        let zoned = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        for (from, to, expected) in [
            (
                DataType::Decimal128(10, 2),
                DataType::Decimal128(10, 1),
                true,
            ),
            (
                DataType::Decimal128(10, 2),
                DataType::Decimal128(12, 2),
                false,
            ),
            (DataType::Decimal64(10, 2), DataType::Int64, true),
            (DataType::Decimal128(10, 0), DataType::Int32, false),
            (DataType::Decimal128(10, 2), DataType::Float64, false),
            (DataType::Int64, DataType::Decimal128(10, 2), false),
            (DataType::Int64, DataType::Int32, false),
            (
                naive.clone(),
                DataType::Timestamp(TimeUnit::Nanosecond, None),
                true,
            ),
            (
                naive.clone(),
                DataType::Timestamp(TimeUnit::Millisecond, None),
                true,
            ),
            (naive.clone(), zoned("+02:00"), true),
            (naive.clone(), zoned("Europe/Vienna"), true),
            (naive.clone(), zoned("UTC"), false),
            (zoned("+02:00"), naive, false),
        ] {
            assert_eq!(narrows(&from, &to), expected, "{from} to {to}");
        }
    }
}
