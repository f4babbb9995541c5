//! DataFusion reads a number that is no 64-bit integer as a double, which keeps 15 to 17 digits. A
//! number with more digits is a decimal here, and one that is stored or cast as a decimal keeps all
//! of its digits.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator, Value, VisitMut, VisitorMut,
};

use super::syntax::cast;

/// Every number with this many digits differs from all others as a double.
const EXACT_DIGITS: usize = 15;

/// No double needs more digits than these to be told from all others, so that programs do not write
/// more of them.
const MOST_DIGITS_OF_A_DOUBLE: usize = 17;

/// Maximum number of digits of a decimal.
const MAX_DECIMAL_DIGITS: usize = 76;

/// Makes numbers that a double would round decimals, and reads the numbers of
/// `CAST(number AS DECIMAL(…))` as texts.
pub(crate) fn rewrite(statement: &mut DfStatement) {
    match statement {
        DfStatement::Statement(ast) => rewrite_node(ast.as_mut()),
        DfStatement::Explain(explain) => rewrite(&mut explain.statement),
        _ => {}
    }
}

fn rewrite_node(node: &mut impl VisitMut) {
    let _: ControlFlow<()> = node.visit(&mut Rewriter);
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Cast {
            expr, data_type, ..
        } = expression
            && is_decimal(data_type)
            && let Some(text) = inexact_number(expr)
        {
            **expr = Expr::value(Value::SingleQuotedString(text));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Some(decimal) = decimal(expression) {
            *expression = decimal;
        }
        ControlFlow::Continue(())
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal(_) | DataType::Dec(_) | DataType::Numeric(_)
    )
}

/// Returns the text of a number, with its sign, if a double may round it. Returns `None` for other
/// expressions.
pub(crate) fn inexact_number(expression: &Expr) -> Option<String> {
    text_of_number(expression, &|digits| digits.significant > EXACT_DIGITS)
}

/// Returns the text of a number, with its sign, if it has at most so many digits before the point.
/// Returns `None` for other expressions.
pub(crate) fn number_below(expression: &Expr, integer_digits: usize) -> Option<String> {
    text_of_number(expression, &|digits| {
        digits.all - digits.fraction <= integer_digits
    })
}

fn text_of_number(expression: &Expr, is_wanted: &dyn Fn(&Digits) -> bool) -> Option<String> {
    match expression {
        Expr::Nested(inner) => text_of_number(inner, is_wanted),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } if matches!(**expr, Expr::Value(_)) => {
            Some(format!("-{}", text_of_number(expr, is_wanted)?))
        }
        Expr::Value(value) => {
            let digits = Digits::of(&value.value)?;
            is_wanted(&digits).then(|| digits.text.to_owned())
        }
        _ => None,
    }
}

/// Returns a cast to a decimal for a number that no double could stand for.
fn decimal(expression: &Expr) -> Option<Expr> {
    let Expr::Value(value) = expression else {
        return None;
    };
    let digits = Digits::of(&value.value)?;
    let is_integer = digits.fraction == 0 && digits.text.parse::<u64>().is_ok();
    let is_double = digits.fraction > 0 && digits.significant <= MOST_DIGITS_OF_A_DOUBLE;
    if is_integer || is_double || digits.all > MAX_DECIMAL_DIGITS {
        return None;
    }
    // The number is not zero, so it has digits.
    let (precision, scale) = (digits.all as u64, digits.fraction as i64);
    let data_type = DataType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, scale));
    let text = Expr::value(Value::SingleQuotedString(digits.text.to_owned()));
    Some(cast(CastKind::Cast, text, data_type))
}

/// The digits of a number without an exponent.
struct Digits<'a> {
    text: &'a str,
    /// Number of digits from the first one that is not zero to the last one.
    significant: usize,
    /// Number of digits after the point.
    fraction: usize,
    /// Number of digits that a decimal needs.
    all: usize,
}

impl<'a> Digits<'a> {
    /// Returns `None` for values that are no numbers, and for numbers that are written otherwise.
    fn of(value: &'a Value) -> Option<Self> {
        let Value::Number(text, false) = value else {
            return None;
        };
        let (integer, fraction) = text.split_once('.').unwrap_or((text, ""));
        let mut bytes = integer.bytes().chain(fraction.bytes());
        if !bytes.all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let integer = integer.trim_start_matches('0');
        // Zeros at the end of a fraction do not need a decimal.
        let needed = fraction.trim_end_matches('0');
        let significant = match integer {
            "" => needed.trim_start_matches('0').len(),
            _ => integer.len() + needed.len(),
        };
        Some(Self {
            text,
            significant,
            fraction: fraction.len(),
            all: integer.len() + fraction.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::syntax::parse_expression;

    #[test]
    fn numbers_with_more_digits_than_doubles_are_decimals() {
        for (text, expected) in [
            ("1.5", "1.5"),
            ("18446744073709551615", "18446744073709551615"),
            (
                "18446744073709551616",
                "CAST('18446744073709551616' AS DECIMAL(20,0))",
            ),
            ("0.30000000000000004", "0.30000000000000004"),
            ("1.500000000000000000000", "1.500000000000000000000"),
            ("1e30", "1e30"),
            ("0.0000000000000000000001", "0.0000000000000000000001"),
            (
                "-(3.14159265358979323846)",
                "-(CAST('3.14159265358979323846' AS DECIMAL(21,20)))",
            ),
            (
                "a + 0123456789012345678.25",
                "a + CAST('0123456789012345678.25' AS DECIMAL(20,2))",
            ),
            (
                "CAST(-9007199254740993.5 AS DECIMAL(20, 2))",
                "CAST('-9007199254740993.5' AS DECIMAL(20,2))",
            ),
            ("CAST(1.5 AS DECIMAL(20, 2))", "CAST(1.5 AS DECIMAL(20,2))"),
            (
                "CAST(0.30000000000000004 AS DOUBLE)",
                "CAST(0.30000000000000004 AS DOUBLE)",
            ),
        ] {
            let mut expression = parse_expression(text).unwrap();
            rewrite_node(&mut expression);
            assert_eq!(expression.to_string(), expected);
        }
        let mut long = parse_expression(&"9".repeat(77)).unwrap();
        rewrite_node(&mut long);
        assert_eq!(long.to_string(), "9".repeat(77));
    }
}
