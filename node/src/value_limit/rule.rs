//! Puts functions with limits in the place of those without.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use super::string_concat;

/// The parser's own functions and operators are not looked up by their names: `a || b` for lists and texts, `[a, b]`.
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

    fn bounded(&self, expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(match expression {
            Expr::ScalarFunction(ScalarFunction { func, args }) => match self.0.get(func.name()) {
                Some(bounded) if *bounded != func => {
                    let func = Arc::clone(bounded);
                    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
                }
                _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            },
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::StringConcat,
                right,
            }) => {
                let types = [left.get_type(schema)?, right.get_type(schema)?];
                match self.0.get(string_concat::NAME) {
                    Some(bounded) if types[0] == types[1] && is_text(&types[0]) => {
                        let call = ScalarFunction::new_udf(Arc::clone(bounded), vec![*left, *right]);
                        Transformed::yes(Expr::ScalarFunction(call))
                    }
                    _ => Transformed::no(Expr::BinaryExpr(BinaryExpr::new(
                        left,
                        Operator::StringConcat,
                        right,
                    ))),
                }
            }
            other => Transformed::no(other),
        })
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

impl AnalyzerRule for BoundedFunctions {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let analyzed = plan.transform_up_with_subqueries(|plan| {
            let mut schema = merge_schema(&plan.inputs());
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&scan.projected_schema);
            }
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let bounded =
                    expression.transform_up(|expression| self.bounded(expression, &schema))?;
                Ok(bounded.update_data(|expression| name.restore(expression)))
            })?
            .map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(analyzed.data)
    }

    fn name(&self) -> &str {
        "bounded_functions"
    }
}
