use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr as SqlExpr, Statement as Ast, Value, VisitMut, VisitorMut,
};
use volary_catalog::{QueryParameter, format_parameters};
use volary_flight_proto::{Error, Result};

use crate::sql::headings::{Marked, name_columns};
use crate::sql::standard;
use crate::sql::syntax::{cast, parse_data_type, parse_query};

/// Maximum number of expression nodes of all arguments together. An argument counts as often as its
/// parameter occurs in the query.
const MAX_NODES: usize = 50_000;

/// A saved query that was planned for a statement.
#[derive(Debug)]
pub(crate) struct PlannedBody {
    /// The parameters of the saved query.
    pub(super) parameters: Vec<QueryParameter>,
    /// The plan of the query. Each parameter in it is a placeholder with the parameter's name,
    /// within a cast to the parameter's type.
    pub(crate) plan: LogicalPlan,
}

impl PlannedBody {
    /// Creates the planned query from the plan of a statement that [`parse_with_types`] returned.
    pub(crate) fn new(parameters: &[QueryParameter], plan: LogicalPlan) -> Self {
        Self {
            parameters: parameters.to_vec(),
            plan,
        }
    }

    /// Returns the plan with arguments in place of the parameters. `arguments` maps the name of a
    /// parameter to the expression and its number of nodes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the arguments are too large together. An argument counts as often as
    /// its parameter occurs in the query.
    pub(super) fn bind_arguments(
        &self,
        arguments: &HashMap<String, (Expr, usize)>,
    ) -> DfResult<LogicalPlan> {
        let added_nodes = Cell::new(0_usize);
        let plan = replace_parameters(self.plan.clone(), |name, _| {
            let (argument, nodes) = arguments.get(name)?;
            added_nodes.set(added_nodes.get().saturating_add(*nodes));
            // A plan that is already too large is not made even larger before it is refused.
            (added_nodes.get() <= MAX_NODES).then(|| argument.clone())
        })?;
        if added_nodes.get() > MAX_NODES {
            return Err(Error::invalid(format!(
                "the arguments are too large: in the places of their parameters, they add more than {MAX_NODES} expressions to the query; pass smaller arguments"
            ))
            .into());
        }
        Ok(plan)
    }
}

/// Returns the plan with NULL for each parameter. It has the same columns as every call.
///
/// # Errors
/// The errors of rewriting the plan.
pub(crate) fn bind_nulls(plan: LogicalPlan) -> Result<LogicalPlan> {
    let null = |_: &str, cast: &Cast| {
        let null = ScalarValue::try_from(cast.field.data_type()).ok()?;
        Some(Expr::Literal(null, None))
    };
    Ok(replace_parameters(plan, null)?)
}

/// Returns the plan with each parameter replaced by what `value` returns for its name and the cast
/// around it. A parameter stays if `value` returns `None`.
fn replace_parameters(
    plan: LogicalPlan,
    value: impl Fn(&str, &Cast) -> Option<Expr>,
) -> DfResult<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let replaced = expression.transform_up(|expression| {
                let Expr::Cast(cast) = &expression else {
                    return Ok(Transformed::no(expression));
                };
                let Expr::Placeholder(placeholder) = cast.expr.as_ref() else {
                    return Ok(Transformed::no(expression));
                };
                let name = placeholder.id.strip_prefix('$').unwrap_or_default();
                Ok(match value(name, cast) {
                    Some(value) => Transformed::yes(value),
                    None => Transformed::no(expression),
                })
            })?;
            Ok(replaced.update_data(|expression| name.restore(expression)))
        })
    })?;
    Ok(replaced.data)
}

/// Parses a saved query's text into a statement, with a cast to its type around each parameter.
///
/// # Errors
/// `INVALID_ARGUMENT` for a parameter that the saved query does not have, for a parameter that
/// occurs nowhere in the query, and for text that cannot be parsed.
pub(crate) fn parse_with_types(sql: &str, parameters: &[QueryParameter]) -> Result<DfStatement> {
    let mut types = HashMap::new();
    for parameter in parameters {
        types.insert(
            parameter.name.as_str(),
            parse_data_type(&parameter.data_type)?,
        );
    }
    let mut ast = Ast::Query(parse_query(sql)?);
    standard::rewrite_ast(&mut ast)?;
    // The columns are named before the casts are there, which the user has not written.
    let mut statement = DfStatement::Statement(Box::new(ast));
    name_columns(&mut statement, Marked::EqualNames)?;
    let mut typing = ParameterTyper {
        types,
        parameters,
        used: HashSet::new(),
    };
    if let DfStatement::Statement(ast) = &mut statement
        && let ControlFlow::Break(error) = ast.visit(&mut typing)
    {
        return Err(error);
    }
    let is_unused = |parameter: &&QueryParameter| !typing.used.contains(&parameter.name);
    if let Some(unused) = parameters.iter().find(is_unused) {
        // If a call passed a parameter of its own statement as this argument, that parameter would
        // vanish, and the values after it would go to the wrong parameters.
        return Err(Error::invalid(format!(
            "the query does not use the parameter \"{0}\"; write ${0} in it, or leave the parameter out",
            unused.name
        )));
    }
    Ok(statement)
}

struct ParameterTyper<'a> {
    types: HashMap<&'a str, DataType>,
    parameters: &'a [QueryParameter],
    used: HashSet<String>,
}

impl VisitorMut for ParameterTyper<'_> {
    type Break = Error;

    /// Puts the cast around a parameter. This happens after the visit of the parameter, so that the
    /// cast itself is not visited.
    fn post_visit_expr(&mut self, expression: &mut SqlExpr) -> ControlFlow<Self::Break> {
        let SqlExpr::Value(value) = expression else {
            return ControlFlow::Continue(());
        };
        let Value::Placeholder(text) = &mut value.value else {
            return ControlFlow::Continue(());
        };
        let name = text.strip_prefix('$').unwrap_or(text).to_lowercase();
        let Some(data_type) = self.types.get(name.as_str()) else {
            return ControlFlow::Break(Error::invalid(format!(
                "there is no parameter {text}; the query has {}",
                format_parameters(self.parameters)
            )));
        };
        *text = format!("${name}");
        self.used.insert(name);
        let placeholder = expression.clone();
        *expression = cast(CastKind::Cast, placeholder, data_type.clone());
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, data_type: &str) -> QueryParameter {
        QueryParameter {
            name: name.to_owned(),
            data_type: data_type.to_owned(),
            default: None,
        }
    }

    #[test]
    fn parameters_have_types_wherever_they_stand() {
        let parameters = [parameter("k", "BIGINT"), parameter("name", "VARCHAR")];
        let sql = "WITH c AS (SELECT $K AS k) SELECT * FROM t WHERE a IN ($k, 2) AND '$k' = $name AND EXISTS (SELECT 1 FROM c WHERE k = $k) LIMIT $k";
        assert_eq!(
            parse_with_types(sql, &parameters).unwrap().to_string(),
            "WITH c AS (SELECT CAST($k AS BIGINT) AS k) SELECT * FROM t WHERE a IN (CAST($k AS BIGINT), 2) AND '$k' = CAST($name AS VARCHAR) AND EXISTS (SELECT 1 AS \"1\" FROM c WHERE k = CAST($k AS BIGINT)) LIMIT CAST($k AS BIGINT)"
        );
        let error = parse_with_types("SELECT $k", &parameters).unwrap_err();
        let unused = "the query does not use the parameter \"name\"; write $name in it, or leave the parameter out";
        assert_eq!(error.message(), unused);
        let error = parse_with_types("SELECT $price", &parameters).unwrap_err();
        assert_eq!(
            error.message(),
            "there is no parameter $price; the query has (k BIGINT, name VARCHAR)"
        );
    }
}
