//! Which expressions cannot fail.

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr,
    Literal, UnKnownColumn,
};
use volary_node::key_set::KeySetExpr;

use super::Expr;

/// Whether an expression over rows of `schema` might fail for some of them: `10 / k` for the rows that a condition `k <> 0` is
/// to leave out. It must not be evaluated earlier than the query says.
pub(super) fn may_fail(expression: &Expr, schema: &Schema) -> bool {
    let is_known = expression.is::<Column>()
        || expression.is::<UnKnownColumn>()
        || expression.is::<Literal>()
        || expression.is::<InListExpr>()
        || expression.is::<KeySetExpr>()
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
        || expression.is::<DynamicFilterPhysicalExpr>();
    let is_safe = is_known
        || expression
            .downcast_ref::<BinaryExpr>()
            .is_some_and(|binary| is_safe_operator(binary, expression, schema))
        || expression
            .downcast_ref::<CastExpr>()
            .is_some_and(|cast| is_widening(cast, schema));
    !is_safe
        || expression
            .children()
            .into_iter()
            .any(|part| may_fail(part, schema))
}

const COMPARISONS: [Operator; 8] = [
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::IsDistinctFrom,
    Operator::IsNotDistinctFrom,
];

/// Comparisons, and arithmetic that wraps around.
fn is_safe_operator(binary: &BinaryExpr, expression: &Expr, schema: &Schema) -> bool {
    let op = *binary.op();
    if op.is_logic_operator() || COMPARISONS.contains(&op) {
        return true;
    }
    let data_type = expression.data_type(schema);
    let wraps = data_type.is_ok_and(|of| of.is_integer() || of.is_floating());
    let is_positive = |divisor: &Expr| {
        let literal = divisor.downcast_ref::<Literal>().map(Literal::value);
        let literal = literal.and_then(|value| value.cast_to(&DataType::Int64).ok());
        matches!(literal, Some(ScalarValue::Int64(Some(1..))))
    };
    match op {
        Operator::Plus | Operator::Minus | Operator::Multiply => wraps,
        Operator::Divide | Operator::Modulo => wraps && is_positive(binary.right()),
        _ => false,
    }
}

/// To a type that has all of the values.
fn is_widening(cast: &CastExpr, schema: &Schema) -> bool {
    let Ok(from) = cast.expr().data_type(schema) else {
        return false;
    };
    let to = cast.cast_type();
    let (from_bytes, to_bytes) = (from.primitive_width(), to.primitive_width());
    let is_as_wide = from_bytes.is_some() && from_bytes <= to_bytes;
    from == *to
        || (from.is_signed_integer() && to.is_signed_integer() && is_as_wide)
        || (from.is_unsigned_integer() && to.is_unsigned_integer() && is_as_wide)
        || (from.is_unsigned_integer() && to.is_signed_integer() && from_bytes < to_bytes)
        || (from.is_numeric() && to.is_floating())
        || ((from.is_numeric() || from.is_string()) && to.is_string())
}
