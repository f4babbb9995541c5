//! DataFusion 55 compares a decimal with a double as decimals that have 15 digits after the point.
//! A written number such as `-9999999999.99` is a double, and becomes
//! -9999999999.990000074620928, which equals no decimal of two digits. [`DecimalOperands`] reads a
//! number that is written beside decimals as the decimal that was written.

use datafusion::arrow::datatypes::{DataType, i256};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite_parts::rewrite_parts;
use crate::text_casts::text_of_decimal;
use crate::time_units::{is_comparison, operands_of};

/// Maximum number of digits of a `Decimal128`.
const MAX_DIGITS: u8 = 38;

/// Replaces the doubles that comparisons compare with decimals. It must run before the rules that
/// make the types of operands agree.
#[derive(Debug)]
pub(crate) struct DecimalOperands;

impl AnalyzerRule for DecimalOperands {
    fn name(&self) -> &'static str {
        "decimal_operands"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let may_change = |part: &Expr| written_double(part).is_some();
        rewrite_parts(plan, may_change, |part, schema| {
            Ok(compare_decimals(part, schema))
        })
    }
}

/// A decimal without its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WrittenDecimal {
    unscaled: i128,
    /// Number of digits before the point.
    whole_digits: u8,
    /// Number of digits after the point.
    scale: u8,
}

fn compare_decimals(mut part: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if !is_comparison(&part) {
        return Transformed::no(part);
    }
    let mut operands = operands_of(&mut part);
    let mut has_decimal = false;
    let mut whole_digits = 0;
    let mut scale = 0;
    let mut written = Vec::new();
    for (index, operand) in operands.iter().enumerate() {
        if let Some(double) = written_double(operand) {
            let Some(decimal) = WrittenDecimal::of(double) else {
                return Transformed::no(part);
            };
            whole_digits = decimal.whole_digits.max(whole_digits);
            scale = decimal.scale.max(scale);
            written.push((index, decimal));
            continue;
        }
        let Ok(data_type) = operand.get_type(schema) else {
            return Transformed::no(part);
        };
        if data_type.is_floating() {
            return Transformed::no(part);
        }
        if let Some((digits, digits_after_point)) = digits(&data_type) {
            // Beside doubles alone, a written number of many digits is read as a double.
            has_decimal |= text_of_decimal(operand).is_none();
            whole_digits = digits.saturating_sub(digits_after_point).max(whole_digits);
            scale = digits_after_point.max(scale);
        }
    }
    if !has_decimal || written.is_empty() {
        return Transformed::no(part);
    }
    let is_long = whole_digits.saturating_add(scale) > MAX_DIGITS;
    for (index, decimal) in written {
        *operands[index] = Expr::Literal(decimal.to_scalar(is_long), None);
    }
    Transformed::yes(part)
}

fn written_double(expression: &Expr) -> Option<f64> {
    match expression {
        Expr::Literal(ScalarValue::Float64(value), _) => *value,
        Expr::Negative(negated) => match negated.as_ref() {
            Expr::Literal(ScalarValue::Float64(value), _) => value.map(|value| -value),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the number of digits of a decimal type, and how many of them are after the point.
fn digits(data_type: &DataType) -> Option<(u8, u8)> {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            Some((*precision, u8::try_from(*scale).unwrap_or_default()))
        }
        _ => None,
    }
}

impl WrittenDecimal {
    /// Returns the shortest decimal that is read as this double. Up to 15 digits, it is the number
    /// that was written. Returns `None` for a number with too many digits, and for infinity.
    fn of(double: f64) -> Option<Self> {
        if !double.is_finite() {
            return None;
        }
        let text = double.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let whole_digits = whole.trim_start_matches('-').trim_start_matches('0').len();
        let (whole_digits, scale) = (
            u8::try_from(whole_digits).ok()?,
            u8::try_from(fraction.len()).ok()?,
        );
        if whole_digits.saturating_add(scale) > MAX_DIGITS {
            return None;
        }
        let unscaled = format!("{whole}{fraction}").parse().ok()?;
        Some(Self {
            unscaled,
            whole_digits,
            scale,
        })
    }

    fn to_scalar(self, is_long: bool) -> ScalarValue {
        let precision = (self.whole_digits + self.scale).max(1);
        let scale = self.scale.cast_signed();
        if is_long {
            ScalarValue::Decimal256(Some(i256::from_i128(self.unscaled)), precision, scale)
        } else {
            ScalarValue::Decimal128(Some(self.unscaled), precision, scale)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_read_as_the_number_that_was_written() {
        let decimal =
            |double| WrittenDecimal::of(double).map(|it| (it.unscaled, it.whole_digits, it.scale));
        assert_eq!(decimal(-9_999_999_999.99), Some((-999_999_999_999, 10, 2)));
        assert_eq!(decimal(0.05), Some((5, 0, 2)));
        assert_eq!(decimal(-0.0), Some((0, 0, 0)));
        assert_eq!(decimal(100.0), Some((100, 3, 0)));
        assert_eq!(decimal(1e37), Some((10_i128.pow(37), 38, 0)));
        assert_eq!(decimal(1e38), None);
        assert_eq!(decimal(1e-38), Some((1, 0, 38)));
        assert_eq!(decimal(1e-39), None);
        assert_eq!(decimal(f64::NAN), None);
        assert_eq!(decimal(f64::INFINITY), None);
    }

    #[test]
    fn decimals_that_have_no_common_type_of_38_digits_get_a_longer_one() {
        let decimal = WrittenDecimal::of(1.5).unwrap();
        let short = ScalarValue::Decimal128(Some(15), 2, 1);
        assert_eq!(decimal.to_scalar(false), short);
        let long = ScalarValue::Decimal256(Some(i256::from_i128(15)), 2, 1);
        assert_eq!(decimal.to_scalar(true), long);
        let zero = WrittenDecimal::of(0.0).unwrap();
        assert_eq!(
            zero.to_scalar(false),
            ScalarValue::Decimal128(Some(0), 1, 0)
        );
    }
}
