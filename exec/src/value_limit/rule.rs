use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Like, LogicalPlan, Operator, ScalarUDF, not,
};
use datafusion::optimizer::AnalyzerRule;

use super::pattern::Pattern;
use super::{string_concat, text_match};
use crate::rewrite::{has_part, rewrite_expressions};

/// A rule that replaces functions by functions with limits. Calls by name already find the latter.
/// The rule is needed for operators, such as `a || b` of texts and of lists, and for the calls that
/// the planner makes from operators: DataFusion does not look these up by name. Apply this rule
/// after the rule that makes the types of operands agree.
#[derive(Debug)]
pub struct BoundedFunctions(HashMap<String, Arc<ScalarUDF>>);

impl BoundedFunctions {
    /// Creates the rule. Each of the functions replaces functions of its name.
    pub fn new(functions: &[Arc<ScalarUDF>]) -> Self {
        let by_name = functions
            .iter()
            .map(|function| (function.name().to_owned(), Arc::clone(function)));
        Self(by_name.collect())
    }

    /// Returns the function that replaces an expression of a node with this schema, if the
    /// expression has no limit yet. Also returns whether the function's result must be negated.
    fn bounded(&self, expression: &Expr, schema: &DFSchema) -> Option<(Arc<ScalarUDF>, bool)> {
        if let Expr::ScalarFunction(ScalarFunction { func, .. }) = expression {
            let bounded = self.0.get(func.name()).filter(|bounded| *bounded != func)?;
            return Some((Arc::clone(bounded), false));
        }
        let operation = Operation::of(expression)?;
        let [left, right] = operation
            .operands
            .map(|operand| operand.get_type(schema).ok());
        if left != right || !left.as_ref().is_some_and(is_text) {
            return None;
        }
        let bounded = self.0.get(operation.function)?;
        Some((Arc::clone(bounded), operation.is_negated))
    }

    fn replace_calls(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        rewrite_expressions(node, |part, schema| {
            Ok(match self.bounded(&part, schema) {
                Some((function, false)) => Transformed::yes(call(part, function)),
                Some((function, true)) => Transformed::yes(not(call(part, function))),
                None => Transformed::no(part),
            })
        })
    }

    fn may_replace(&self, expression: &Expr) -> bool {
        match expression {
            Expr::ScalarFunction(ScalarFunction { func, .. }) => self
                .0
                .get(func.name())
                .is_some_and(|bounded| bounded != func),
            other => Operation::of(other).is_some(),
        }
    }
}

/// Calls the function with the operands of the expression.
fn call(expression: Expr, function: Arc<ScalarUDF>) -> Expr {
    let arguments = match expression {
        Expr::ScalarFunction(ScalarFunction { args, .. }) => args,
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Like(Like { expr, pattern, .. }) | Expr::SimilarTo(Like { expr, pattern, .. }) => {
            vec![*expr, *pattern]
        }
        other => return other,
    };
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

/// An operator that a function must replace, because it makes large texts or may search for long.
struct Operation<'a> {
    /// Name of the function.
    function: &'static str,
    /// Says whether the function's result must be negated.
    is_negated: bool,
    operands: [&'a Expr; 2],
}

impl<'a> Operation<'a> {
    /// Returns the operation of an expression. Returns `None` for other expressions, and for a
    /// search for a plain pattern, because DataFusion optimizes its operator but would not optimize
    /// a function.
    fn of(expression: &'a Expr) -> Option<Self> {
        let (operator, is_negated, operands) = match expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let negated = op.negate();
                let negated = negated.filter(|op| text_match::name(*op).is_some());
                let operands = [&**left, &**right];
                (negated.unwrap_or(*op), negated.is_some(), operands)
            }
            // The planner refuses any other escape character later.
            Expr::Like(like) if like.escape_char.is_none_or(|escape| escape == '\\') => {
                let operator = if like.case_insensitive {
                    Operator::ILikeMatch
                } else {
                    Operator::LikeMatch
                };
                (operator, like.negated, [&*like.expr, &*like.pattern])
            }
            Expr::SimilarTo(similar) if similar.escape_char.is_none() => {
                let operator = if similar.case_insensitive {
                    Operator::RegexIMatch
                } else {
                    Operator::RegexMatch
                };
                let operands = [&*similar.expr, &*similar.pattern];
                (operator, similar.negated, operands)
            }
            _ => return None,
        };
        let (function, is_plain) = match operator {
            Operator::StringConcat => (string_concat::NAME, false),
            Operator::LikeMatch | Operator::ILikeMatch => (
                text_match::name(operator)?,
                is_plain(operands[1], Pattern::like),
            ),
            // Other operators have no function, and their operands are no patterns.
            _ => (
                text_match::name(operator)?,
                is_plain_expression(operands[1]),
            ),
        };
        (!is_plain).then_some(Self {
            function,
            is_negated,
            operands,
        })
    }
}

/// Returns whether an expression is a regular expression that takes one step for each byte.
pub(super) fn is_plain_expression(expression: &Expr) -> bool {
    is_plain(expression, Pattern::regex)
}

/// Returns the operator LIKE for a call of its function whose pattern has become a plain constant,
/// because DataFusion optimizes the operator. Returns `None` for other calls.
pub(super) fn plain_like(function: &str, arguments: &[Expr]) -> Option<Expr> {
    let case_insensitive = function == text_match::name(Operator::ILikeMatch)?;
    if !case_insensitive && function != text_match::name(Operator::LikeMatch)? {
        return None;
    }
    let [text, pattern] = arguments else {
        return None;
    };
    is_plain(pattern, Pattern::like).then(|| {
        let (text, pattern) = (Box::new(text.clone()), Box::new(pattern.clone()));
        Expr::Like(Like::new(false, text, pattern, None, case_insensitive))
    })
}

fn is_plain(expression: &Expr, read: fn(&str) -> Pattern) -> bool {
    match expression {
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(text) => text.is_none_or(|text| read(text).is_plain()),
            None => false,
        },
        // The rule that makes types agree wraps the text in a cast.
        Expr::Cast(cast) => is_plain(&cast.expr, read),
        _ => false,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

impl AnalyzerRule for BoundedFunctions {
    fn name(&self) -> &'static str {
        "bounded_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| {
            if has_part(&node, |part| self.may_replace(part))? {
                self.replace_calls(node)
            } else {
                Ok(Transformed::no(node))
            }
        })?;
        Ok(plan.data)
    }
}
