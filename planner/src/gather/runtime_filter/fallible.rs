use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr,
    Literal, UnKnownColumn,
};
use volary_exec::key_set::KeySetExpr;

use super::Expr;
use crate::value_list::ValueList;

/// Returns whether an expression over rows of `schema` might fail for some rows. For example,
/// `10 / k` fails for the rows that a condition `k <> 0` leaves out. Such an expression must not be
/// evaluated earlier than the query does.
pub(super) fn may_fail(expression: &Expr, schema: &Schema) -> bool {
    let is_known = expression.is::<Column>()
        || expression.is::<UnKnownColumn>()
        || expression.is::<Literal>()
        || expression.is::<InListExpr>()
        || expression.is::<KeySetExpr>()
        || ValueList::is_called_in(expression)
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
        || expression.is::<DynamicFilterPhysicalExpr>();
    let is_safe = is_known
        || expression
            .downcast_ref::<BinaryExpr>()
            .is_some_and(|binary| is_safe_operator(binary, schema))
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

/// Returns whether an operator cannot fail: comparisons, and arithmetic of floats. Arithmetic of
/// integers and decimals fails if the value is out of range.
fn is_safe_operator(binary: &BinaryExpr, schema: &Schema) -> bool {
    let op = *binary.op();
    if op.is_logic_operator() || COMPARISONS.contains(&op) {
        return true;
    }
    let data_type = binary.data_type(schema);
    let is_of = |of: fn(&DataType) -> bool| data_type.as_ref().is_ok_and(of);
    let is_positive = |divisor: &Expr| {
        let literal = divisor.downcast_ref::<Literal>().map(Literal::value);
        let literal = literal.and_then(|value| value.cast_to(&DataType::Int64).ok());
        matches!(literal, Some(ScalarValue::Int64(Some(1..))))
    };
    match op {
        Operator::Plus | Operator::Minus | Operator::Multiply => is_of(DataType::is_floating),
        Operator::Divide | Operator::Modulo => {
            let is_number = is_of(DataType::is_integer) || is_of(DataType::is_floating);
            is_number && is_positive(binary.right())
        }
        _ => false,
    }
}

/// Returns whether a cast has a result for each value. The result need not be exactly the same
/// value: floats lose digits.
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, cast, col, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("small", DataType::Int32, true),
            Field::new("large", DataType::Int64, true),
            Field::new("price", DataType::Decimal128(10, 2), true),
            Field::new("name", DataType::Utf8, true),
        ])
    }

    fn column(name: &str) -> Expr {
        col(name, &schema()).unwrap()
    }

    fn operator(left: Expr, op: Operator, right: Expr) -> Expr {
        binary(left, op, right, &schema()).unwrap()
    }

    fn cast_to(of: Expr, to: DataType) -> Expr {
        cast(of, &schema(), to).unwrap()
    }

    #[test]
    fn a_division_is_safe_by_a_positive_number_only() {
        let divide =
            |by: Expr| may_fail(&operator(column("large"), Operator::Divide, by), &schema());
        assert!(!divide(lit(3_i64)));
        assert!(divide(lit(0_i64)));
        // The smallest integer divided by -1 is out of range.
        assert!(divide(lit(-1_i64)));
        assert!(divide(column("large")));
    }

    #[test]
    fn sums_of_floats_have_a_value_and_others_may_be_out_of_range() {
        let sum = |of: Expr| operator(of.clone(), Operator::Plus, of);
        let float = cast_to(column("large"), DataType::Float64);
        assert!(!may_fail(&sum(float), &schema()));
        assert!(may_fail(&sum(column("large")), &schema()));
        assert!(may_fail(&sum(column("price")), &schema()));
    }

    #[test]
    fn casts_are_safe_to_types_that_have_room() {
        let schema = schema();
        assert!(!may_fail(
            &cast_to(column("small"), DataType::Int64),
            &schema
        ));
        assert!(!may_fail(
            &cast_to(column("large"), DataType::Float64),
            &schema
        ));
        assert!(!may_fail(
            &cast_to(column("large"), DataType::Utf8),
            &schema
        ));
        assert!(may_fail(
            &cast_to(column("large"), DataType::Int32),
            &schema
        ));
        assert!(may_fail(&cast_to(column("name"), DataType::Int64), &schema));
    }

    #[test]
    fn what_is_safe_around_something_that_fails_is_not() {
        let quotient = operator(column("large"), Operator::Modulo, column("large"));
        let compared = operator(quotient, Operator::Gt, lit(1_i64));
        assert!(may_fail(&compared, &schema()));
        let compared = operator(column("large"), Operator::Gt, lit(1_i64));
        assert!(!may_fail(&compared, &schema()));
    }
}
