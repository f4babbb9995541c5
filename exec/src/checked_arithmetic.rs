//! Operators of integers wrap around in DataFusion 55: `9223372036854775807 + 1` is a negative
//! number. So `+`, `-` and `*` become functions that fail instead, in two places:
//!
//! - [`check_plan`] replaces them in the plan that has been optimized. Before that, rules of the
//!   optimizer need the operators: `sum(x + 1)` becomes `sum(x) + count(x)`.
//! - [`check_constants`] replaces those of constants before the optimizer computes them.
//!
//! Workers find the functions by their names. In the conditions of filters, the functions become
//! operators again, because DataFusion estimates those. These operators are told to fail where they
//! would wrap around ([`with_operators`], [`checked_operator`]).

use std::borrow::Cow;
use std::sync::Arc;

use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::{Interval, apply_operator};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::physical_expr::expressions::BinaryExpr as PhysicalBinaryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::datum::apply;

use crate::rewrite::{has_part, rewrite_expressions};

/// Returns the functions that stand for operators of integers.
pub(crate) fn functions() -> [Arc<ScalarUDF>; 3] {
    [Operator::Plus, Operator::Minus, Operator::Multiply].map(function)
}

/// Replaces all operators of integers in a plan and its subqueries.
///
/// # Errors
/// Fails if the type of an expression cannot be told.
pub fn check_plan(plan: Cow<'_, LogicalPlan>) -> Result<Cow<'_, LogicalPlan>> {
    let mut has_operators = false;
    plan.apply_with_subqueries(|node| {
        has_operators |= has_part(node, may_overflow)?;
        Ok(if has_operators {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    if !has_operators {
        return Ok(plan);
    }
    let checked = plan.into_owned().transform_up_with_subqueries(|node| {
        if has_part(&node, may_overflow)? {
            rewrite_expressions(node, check)
        } else {
            Ok(Transformed::no(node))
        }
    })?;
    Ok(Cow::Owned(checked.data))
}

/// Replaces the operators of integers in an expression.
///
/// # Errors
/// Fails if the type of an expression cannot be told.
pub fn check_expression(expression: Expr, columns: &DFSchema) -> Result<Expr> {
    let checked = expression.transform_up(|part| check(part, columns))?;
    Ok(checked.data)
}

/// Replaces the functions in an expression by operators that fail where the functions do.
///
/// # Errors
/// Fails if the expression cannot be rebuilt.
pub fn with_operators(
    expression: Arc<dyn PhysicalExpr>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_up(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        let function = call.and_then(|call| call.fun().inner().downcast_ref::<CheckedArithmetic>());
        Ok(match (function, part.children().as_slice()) {
            (Some(function), [left, right]) => {
                let (left, right) = (Arc::clone(left), Arc::clone(right));
                let operator = PhysicalBinaryExpr::new(left, function.operator, right);
                Transformed::yes(Arc::new(operator.with_fail_on_overflow(true)) as _)
            }
            _ => Transformed::no(part),
        })
    })
}

/// Makes an operator of integers fail where it would wrap around. Other expressions stay as they
/// are. A worker needs this for each operator, because an encoded plan does not say whether it
/// fails.
///
/// # Errors
/// Fails if the type of an operand cannot be told.
pub fn checked_operator(
    expression: Arc<dyn PhysicalExpr>,
    columns: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    match expression.downcast_ref::<PhysicalBinaryExpr>() {
        Some(binary)
            if is_arithmetic(*binary.op()) && binary.left().data_type(columns)?.is_integer() =>
        {
            let checked = binary.clone().with_fail_on_overflow(true);
            Ok(Arc::new(checked))
        }
        _ => Ok(expression),
    }
}

/// Replaces the operators of constant integers in the expressions of a node.
///
/// # Errors
/// Fails if the type of an expression cannot be told.
pub(crate) fn check_constants(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_checked = |part: &Expr| may_overflow(part) && is_constant(part);
    if !has_part(&node, is_checked)? {
        return Ok(Transformed::no(node));
    }
    rewrite_expressions(node, |part, columns| {
        if is_checked(&part) {
            check(part, columns)
        } else {
            Ok(Transformed::no(part))
        }
    })
}

/// Returns whether an expression is an operator that wraps around, if its operands are integers.
fn may_overflow(part: &Expr) -> bool {
    match part {
        Expr::Negative(_) => true,
        Expr::BinaryExpr(binary) => is_arithmetic(binary.op),
        _ => false,
    }
}

fn is_arithmetic(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Plus | Operator::Minus | Operator::Multiply
    )
}

/// Returns whether an expression is computed from literals alone.
fn is_constant(expression: &Expr) -> bool {
    let varies = expression.exists(|part| {
        Ok(!matches!(
            part,
            Expr::Literal(..)
                | Expr::BinaryExpr(_)
                | Expr::Negative(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::ScalarFunction(_)
                | Expr::Case(_)
                | Expr::Alias(_)
        ))
    });
    !varies.unwrap_or(true)
}

fn check(part: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_arithmetic(op)
                && is_integer_pair(&left.get_type(columns)?, &right.get_type(columns)?) =>
        {
            Ok(Transformed::yes(called(op, *left, *right)))
        }
        Expr::Negative(negated) if negated.get_type(columns)?.is_signed_integer() => {
            let zero = ScalarValue::new_zero(&negated.get_type(columns)?)?;
            Ok(Transformed::yes(called(
                Operator::Minus,
                lit(zero),
                *negated,
            )))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_integer_pair(left: &DataType, right: &DataType) -> bool {
    left == right && left.is_integer()
}

fn called(operator: Operator, left: Expr, right: Expr) -> Expr {
    let arguments = vec![left, right];
    Expr::ScalarFunction(ScalarFunction::new_udf(function(operator), arguments))
}

fn function(operator: Operator) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(CheckedArithmetic {
        operator,
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// An operator of two integers of the same type that fails if its value does not fit the type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedArithmetic {
    operator: Operator,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedArithmetic {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            _ => "checked_multiply",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [left, right] if is_integer_pair(left, right) => Ok(arg_types.to_vec()),
            _ => plan_err!(
                "{} takes two integers of the same type; write {} instead",
                self.name(),
                self.operator
            ),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, _] => Ok(left.clone()),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone());
        let data_type = self.return_type(&types.collect::<Vec<_>>())?;
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match inputs {
            [left, right] => apply_operator(&self.operator, left, right),
            _ => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let [left, right] = inputs else {
            return internal_err!("{} takes two arguments", self.name());
        };
        let (left, right) = (&left.sort_properties, &right.sort_properties);
        Ok(match self.operator {
            Operator::Plus => left.add(right),
            Operator::Minus => left.sub(right),
            _ if [left, right]
                .iter()
                .all(|it| **it == SortProperties::Singleton) =>
            {
                SortProperties::Singleton
            }
            _ => SortProperties::Unordered,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return internal_err!("{} takes two arguments", self.name());
        };
        match self.operator {
            Operator::Plus => apply(left, right, add),
            Operator::Minus => apply(left, right, sub),
            _ => apply(left, right, mul),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn checked(sql: &str) -> LogicalPlan {
        let plan = SessionContext::new().sql(sql).await.unwrap();
        let plan = Cow::Owned(plan.into_unoptimized_plan());
        check_plan(plan).unwrap().into_owned()
    }

    #[tokio::test]
    async fn operators_of_integers_are_replaced_wherever_they_are() {
        for sql in [
            "SELECT a + 1 FROM (VALUES (1)) t(a)",
            "SELECT sum(a * 2) FROM (VALUES (1)) t(a) GROUP BY a - 1 HAVING max(-a) > 0 ORDER BY a - 1",
            "SELECT sum(a + 1) OVER (PARTITION BY a - 1 ORDER BY -a) FROM (VALUES (1)) t(a)",
            "SELECT 1 FROM (VALUES (1)) t(a) WHERE a IN (SELECT b + 1 FROM (VALUES (1)) u(b))",
            "SELECT 1 FROM (VALUES (1)) t(a) JOIN (VALUES (1)) u(b) ON a + 1 = b",
        ] {
            let plan = checked(sql).await;
            let mut operators = 0;
            plan.apply_with_subqueries(|node| {
                operators += usize::from(has_part(node, may_overflow)?);
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
            assert_eq!(operators, 0, "{}", plan.display_indent());
            assert!(
                plan.display_indent().to_string().contains("checked_"),
                "{sql}"
            );
        }
    }

    #[tokio::test]
    async fn other_operators_stay() {
        let plan = checked(
            "SELECT a + 1.5, b - INTERVAL '1 day', -c FROM (VALUES (1, now(), 1.5)) t(a, b, c)",
        )
        .await;
        assert!(!plan.display_indent().to_string().contains("checked_"));
    }
}
