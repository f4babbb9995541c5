//! Puts functions with limits in the place of those without.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use super::string_concat;
use crate::rewrite::rewrite_expressions;
use crate::runtimes::check_awaited;

/// Operators, and what the planner makes of them, are not looked up by a name: `a || b` of texts and of lists. To be applied
/// after the rule that makes the types of operands agree.
#[derive(Debug)]
pub struct BoundedFunctions(HashMap<String, Arc<ScalarUDF>>);

impl BoundedFunctions {
    /// These take the place of those of the same names.
    pub fn new(functions: &[Arc<ScalarUDF>]) -> Self {
        let by_name = functions
            .iter()
            .map(|function| (function.name().to_owned(), Arc::clone(function)));
        Self(by_name.collect())
    }

    /// What takes the expression's place, if it is one of a node with these columns and has no limit.
    fn bounded(&self, expression: &Expr, schema: &DFSchema) -> Option<Arc<ScalarUDF>> {
        let (name, unbounded) = match expression {
            Expr::ScalarFunction(ScalarFunction { func, .. }) => (func.name(), Some(func)),
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::StringConcat,
                right,
            }) => {
                let left = left.get_type(schema).ok()?;
                let right = right.get_type(schema).ok()?;
                (left == right && is_text(&left)).then_some((string_concat::NAME, None))?
            }
            _ => return None,
        };
        let bounded = self.0.get(name)?;
        (unbounded != Some(bounded)).then(|| Arc::clone(bounded))
    }

    fn bound(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        rewrite_expressions(node, |part, schema| {
            Ok(match self.bounded(&part, schema) {
                Some(function) => Transformed::yes(called(part, function)),
                None => Transformed::no(part),
            })
        })
    }

    fn may_concern(&self, expression: &Expr) -> bool {
        match expression {
            Expr::ScalarFunction(ScalarFunction { func, .. }) => self
                .0
                .get(func.name())
                .is_some_and(|bounded| bounded != func),
            Expr::BinaryExpr(binary) => binary.op == Operator::StringConcat,
            _ => false,
        }
    }

    fn may_concern_any(&self, node: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| Ok(self.may_concern(part)))?;
            Ok(if found {
                TreeNodeRecursion::Stop
            } else {
                TreeNodeRecursion::Continue
            })
        })?;
        Ok(found)
    }
}

/// The function, called with the operands of the expression.
fn called(expression: Expr, function: Arc<ScalarUDF>) -> Expr {
    let arguments = match expression {
        Expr::ScalarFunction(ScalarFunction { args, .. }) => args,
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        other => return other,
    };
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
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
        check_awaited()?;
        let plan = plan.transform_up_with_subqueries(|node| {
            if self.may_concern_any(&node)? {
                self.bound(node)
            } else {
                Ok(Transformed::no(node))
            }
        })?;
        Ok(plan.data)
    }
}
