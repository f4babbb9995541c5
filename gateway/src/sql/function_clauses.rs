//! DataFusion 55 ignores clauses in calls of functions that have no use for them:
//! `upper(DISTINCT s)` is `upper(s)`, and `corr(DISTINCT x, y)` is that of all rows. Such clauses
//! are refused here.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, NullTreatment,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::name_in_public;
use super::visit::{QueryVisitor, visit};

/// Aggregates that ignore DISTINCT although it changes their value.
const IGNORING_DISTINCT: [&str; 14] = [
    "approx_percentile_cont",
    "corr",
    "covar_pop",
    "covar_samp",
    "nth_value",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
];

/// Aggregates whose order is written behind them, in WITHIN GROUP. DataFusion takes an ORDER BY
/// among their arguments for it, and then takes another argument for the fraction.
const WITHIN_GROUP: [&str; 4] = [
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "percentile_cont",
];

/// Window functions for which NULLs can be left out.
const IGNORING_NULLS: [&str; 5] = ["first_value", "lag", "last_value", "lead", "nth_value"];

/// The kind of a function, with its main name. Calls may use another one of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A function of the values of one row.
    Scalar,
    /// An aggregate, which may also be used as a window function.
    Aggregate {
        name: &'a str,
        /// Says whether the aggregate takes IGNORE NULLS.
        may_ignore_nulls: bool,
    },
    /// A function that is only a window function.
    Window(&'a str),
}

/// Refuses clauses of functions that would be ignored. `kind_of` takes the name of a function, and
/// whether the call has an OVER. It returns `None` for an unknown function.
///
/// # Errors
/// `INVALID_ARGUMENT` with the name of the function.
pub(crate) fn check<'a>(
    statement: &DfStatement,
    kind_of: &dyn Fn(&str, bool) -> Option<Kind<'a>>,
) -> Result<()> {
    visit(statement, &mut ClauseCheck { kind_of })
}

struct ClauseCheck<'a, 'b> {
    kind_of: &'b dyn Fn(&str, bool) -> Option<Kind<'a>>,
}

impl QueryVisitor for ClauseCheck<'_, '_> {
    fn expression(&mut self, expression: &Expr) -> Result<()> {
        let Expr::Function(function) = expression else {
            return Ok(());
        };
        let FunctionArguments::List(arguments) = &function.args else {
            return Ok(());
        };
        let name = name_in_public(&function.name);
        let kind = name.and_then(|name| (self.kind_of)(&name, function.over.is_some()));
        let refused = match kind {
            None => None,
            Some(Kind::Scalar) => refuse_in_scalar(function, arguments),
            Some(Kind::Window(name)) => refuse_in_window(name, function, arguments),
            Some(Kind::Aggregate {
                name,
                may_ignore_nulls,
            }) => refuse_in_aggregate(name, may_ignore_nulls, function, arguments),
        };
        match refused {
            None => Ok(()),
            Some(clause) => Err(Error::unsupported(format!(
                "{}(…) does not take {clause}",
                function.name
            ))
            .with_sqlstate(SqlState::FeatureNotSupported)),
        }
    }
}

/// Returns the clause that a call must not have.
fn refuse_in_scalar(function: &Function, arguments: &FunctionArgumentList) -> Option<&'static str> {
    if is_distinct(arguments) {
        Some("DISTINCT")
    } else if has_order(arguments) {
        Some("ORDER BY")
    } else if function.filter.is_some() {
        Some("FILTER")
    } else if treats_nulls(function, arguments) {
        Some("IGNORE NULLS or RESPECT NULLS")
    } else if !function.within_group.is_empty() {
        Some("WITHIN GROUP")
    } else if function.over.is_some() {
        Some("OVER")
    } else {
        None
    }
}

fn refuse_in_window(
    name: &str,
    function: &Function,
    arguments: &FunctionArgumentList,
) -> Option<&'static str> {
    if is_distinct(arguments) {
        Some("DISTINCT")
    } else if treats_nulls(function, arguments) && !IGNORING_NULLS.contains(&name) {
        Some("IGNORE NULLS or RESPECT NULLS")
    } else {
        None
    }
}

fn refuse_in_aggregate(
    name: &str,
    may_ignore_nulls: bool,
    function: &Function,
    arguments: &FunctionArgumentList,
) -> Option<&'static str> {
    let is_wildcard = |argument: &FunctionArg| {
        matches!(
            argument,
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_))
        )
    };
    if is_distinct(arguments) {
        if IGNORING_DISTINCT.contains(&name) {
            return Some("DISTINCT");
        }
        if arguments.args.iter().any(is_wildcard) {
            return Some("DISTINCT with *; count the rows of SELECT DISTINCT *");
        }
        if name == "count" && arguments.args.len() > 1 {
            return Some(
                "DISTINCT with several arguments; count the rows of SELECT DISTINCT a, b WHERE a IS NOT NULL AND b IS NOT NULL",
            );
        }
    }
    if has_order(arguments) && WITHIN_GROUP.contains(&name) {
        return Some("ORDER BY among its arguments; write WITHIN GROUP (ORDER BY …) after them");
    }
    if treats_nulls(function, arguments) && !may_ignore_nulls {
        return Some("IGNORE NULLS or RESPECT NULLS");
    }
    None
}

fn is_distinct(arguments: &FunctionArgumentList) -> bool {
    arguments.duplicate_treatment == Some(DuplicateTreatment::Distinct)
}

fn has_order(arguments: &FunctionArgumentList) -> bool {
    let is_order =
        |clause: &FunctionArgumentClause| matches!(clause, FunctionArgumentClause::OrderBy(_));
    arguments.clauses.iter().any(is_order)
}

fn treats_nulls(function: &Function, arguments: &FunctionArgumentList) -> bool {
    let is_treatment = |clause: &FunctionArgumentClause| {
        matches!(
            clause,
            FunctionArgumentClause::IgnoreOrRespectNulls(
                NullTreatment::IgnoreNulls | NullTreatment::RespectNulls
            )
        )
    };
    function.null_treatment.is_some() || arguments.clauses.iter().any(is_treatment)
}
