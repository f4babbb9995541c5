//! An argument may be a constant or a parameter of the statement, and a default may be a constant.
//!
//! An argument is copied to each place where the query uses the parameter. There, a column in the
//! argument would mean another column, a subquery would run once for each place, and `random()`
//! would have another value at each place.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{CastKind, Expr as SqlExpr, Query};
use volary_catalog::QueryParameter;
use volary_flight_proto::{Error, Result};

use crate::sql::printing::printed;
use crate::sql::syntax::{cast, parse_data_type, parse_expression};
use crate::sql::visit::{QueryVisitor, visit_node};

/// Refuses an argument that contains a query, before it is planned.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn check_unplanned(argument: &SqlExpr) -> Result<()> {
    visit_node(argument, &mut NoQueries(argument))
}

struct NoQueries<'a>(&'a SqlExpr);

impl QueryVisitor for NoQueries<'_> {
    fn enter(&mut self, _: &Query) -> Result<()> {
        Err(not_constant(self.0))
    }
}

/// Refuses an argument that is neither a constant nor a parameter of the statement. Returns the
/// number of its nodes.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn check_planned(argument: &Expr) -> Result<usize> {
    let (mut nodes, mut is_constant) = (0, true);
    argument.apply(|node| {
        nodes += 1;
        is_constant &= matches!(
            node,
            Expr::Literal(_, _)
                | Expr::Placeholder(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::BinaryExpr(_)
                | Expr::Like(_)
                | Expr::SimilarTo(_)
                | Expr::Not(_)
                | Expr::IsNotNull(_)
                | Expr::IsNull(_)
                | Expr::IsTrue(_)
                | Expr::IsFalse(_)
                | Expr::IsUnknown(_)
                | Expr::IsNotTrue(_)
                | Expr::IsNotFalse(_)
                | Expr::IsNotUnknown(_)
                | Expr::Negative(_)
                | Expr::Between(_)
                | Expr::Case(_)
                | Expr::InList(_)
                | Expr::ScalarFunction(_)
        );
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !is_constant || argument.is_volatile() {
        return Err(not_constant(argument));
    }
    Ok(nodes)
}

/// Refuses defaults that would fail, or mean something else, in a call.
///
/// # Errors
/// `INVALID_ARGUMENT` with the name of the parameter.
pub(crate) fn check_defaults(state: &SessionState, parameters: &[QueryParameter]) -> Result<()> {
    for parameter in parameters {
        let Some(default) = &parameter.default else {
            continue;
        };
        check_default(state, default, &parameter.data_type).map_err(|error| {
            error.at(format!("default of the parameter \"{}\"", parameter.name))
        })?;
    }
    Ok(())
}

fn check_default(state: &SessionState, default: &str, wanted: &str) -> Result<()> {
    let default = parse_expression(default)?;
    check_unplanned(&default)?;
    let wanted = cast(CastKind::Cast, default, parse_data_type(wanted)?);
    let planned = state.create_logical_expr(&printed(&wanted), &DFSchema::empty());
    let planned = planned.map_err(|error: DataFusionError| Error::from(error))?;
    check_planned(&planned)?;
    let is_parameter = planned.exists(|node| Ok(matches!(node, Expr::Placeholder(_))))?;
    if is_parameter {
        return Err(not_constant(&planned));
    }
    Ok(())
}

fn not_constant(what: impl std::fmt::Display) -> Error {
    Error::invalid(format!(
        "{what} is not a constant: the arguments of a saved query must be constants or parameters of the statement, and its defaults must be constants"
    ))
}
