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

/// Maximum number of digits of a `Decimal128`, which all decimals of tables are.
const MAX_DIGITS: u8 = 38;
/// Maximum number of digits of a `Decimal256`.
const MAX_LONG_DIGITS: u8 = 76;

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
    /// Says whether another decimal stands for this number, which all decimals of tables are
    /// compared with alike.
    is_substitute: bool,
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
    let digits = whole_digits.saturating_add(scale);
    // Two substitutes may be equal, although the numbers that were written are not.
    let compares_written = written.len() > 1 && matches!(written.first(), Some((0, _)));
    let has_substitute = written.iter().any(|(_, decimal)| decimal.is_substitute);
    if digits > MAX_LONG_DIGITS || compares_written && has_substitute {
        return Transformed::no(part);
    }
    let is_long = digits > MAX_DIGITS;
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
    /// that was written. A number that is larger than all decimals of tables, or nearer to zero, is
    /// represented by the next power of ten that is so, too. Returns `None` for infinity.
    fn of(double: f64) -> Option<Self> {
        if !double.is_finite() {
            return None;
        }
        let sign = if double < 0.0 { -1 } else { 1 };
        let largest = 10_i128.pow(u32::from(MAX_DIGITS));
        if double.abs() >= 1e38 {
            return Some(Self {
                unscaled: sign * largest,
                whole_digits: MAX_DIGITS + 1,
                scale: 0,
                is_substitute: true,
            });
        }
        if double != 0.0 && double.abs() < 1e-38 {
            return Some(Self {
                unscaled: sign,
                whole_digits: 0,
                scale: MAX_DIGITS + 1,
                is_substitute: true,
            });
        }
        let text = double.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let whole_digits = whole.trim_start_matches('-').trim_start_matches('0').len();
        let (whole_digits, scale) = (
            u8::try_from(whole_digits).ok()?,
            u8::try_from(fraction.len()).ok()?,
        );
        let unscaled = format!("{whole}{fraction}").parse().ok()?;
        Some(Self {
            unscaled,
            whole_digits,
            scale,
            is_substitute: false,
        })
    }

    fn to_scalar(self, is_long: bool) -> ScalarValue {
        let precision = (self.whole_digits + self.scale).max(1);
        let scale = self.scale.cast_signed();
        if is_long || precision > MAX_DIGITS {
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
        assert_eq!(decimal(-1e38), Some((-10_i128.pow(38), 39, 0)));
        assert_eq!(decimal(1e300), Some((10_i128.pow(38), 39, 0)));
        assert_eq!(decimal(1e-38), Some((1, 0, 38)));
        let digits = Some((12_345_678_901_234_567, 0, 46));
        assert_eq!(decimal(1.234_567_890_123_456_7e-30), digits);
        assert_eq!(decimal(-1e-300), Some((-1, 0, 39)));
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
