use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    CastKind, Expr as SqlExpr, FunctionArg, FunctionArgExpr, TableFactor, TableFunctionArgs,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use parking_lot::Mutex;
use volary_catalog::{QueryParameter, RelationName, format_parameters};
use volary_flight_proto::{Error, Result, SqlState};

use super::argument::{check_planned, check_unplanned};
use super::body::PlannedBody;
use crate::sql::names::{WrittenName, identifier};
use crate::sql::search_path::schema_behind_temporary;
use crate::sql::syntax::{cast, parse_data_type, parse_expression};
use crate::sql::tokens::{is_keyword, is_meant};

/// Replaces `CALL name(…)` by `SELECT * FROM name(…)`, also within EXPLAIN and in the braces of
/// JDBC.
///
/// # Errors
/// `INVALID_ARGUMENT` for JDBC's `{? = call name(…)}`, because parameters have no way back.
/// `INVALID_ARGUMENT` for a CALL whose name is missing, or is not followed by a parenthesis.
pub(crate) fn rewrite_call(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    unwrap_call(tokens)?;
    let of_explain = [Keyword::EXPLAIN, Keyword::ANALYZE, Keyword::VERBOSE];
    let is_before = |token: &Token| {
        matches!(token, Token::Whitespace(_))
            || of_explain.iter().any(|keyword| is_keyword(token, *keyword))
    };
    let first = tokens.iter().position(|token| !is_before(&token.token));
    let Some(at) = first.filter(|at| is_keyword(&tokens[*at].token, Keyword::CALL)) else {
        return Ok(());
    };
    let is_of_name =
        |token: &Token| matches!(token, Token::Whitespace(_) | Token::Word(_) | Token::Period);
    let after_name = tokens[at + 1..]
        .iter()
        .find(|token| !is_of_name(&token.token));
    if after_name.is_none_or(|token| token.token != Token::LParen) {
        return Err(Error::invalid(
            "this CALL is not understood; write CALL name(argument, …), or CALL name() without arguments",
        )
        .with_sqlstate(SqlState::SyntaxError));
    }
    let span = tokens[at].span;
    let select = [
        Token::make_keyword("SELECT"),
        Token::Mul,
        Token::make_keyword("FROM"),
    ];
    let select = select.map(|token| TokenWithSpan::new(token, span));
    tokens.splice(at..=at, select);
    Ok(())
}

/// Removes the braces of a statement `{call …}`.
fn unwrap_call(tokens: &mut [TokenWithSpan]) -> Result<()> {
    let first = tokens.iter().find(|token| is_meant(token));
    if first.is_none_or(|token| token.token != Token::LBrace) {
        return Ok(());
    }
    let meant = (0..tokens.len()).filter(|at| is_meant(&tokens[*at]));
    let meant: Vec<_> = meant.collect();
    let [open, second, .., last] = meant.as_slice() else {
        return Ok(());
    };
    let (open, second, last) = (*open, *second, *last);
    if matches!(tokens[second].token, Token::Placeholder(_)) {
        return Err(Error::unsupported(
            "{? = call …} is not supported, because parameters are only read; write SELECT name(…) for a function, and {call name(…)} for a saved query",
        ));
    }
    if is_keyword(&tokens[second].token, Keyword::CALL) && tokens[last].token == Token::RBrace {
        let space = Token::Whitespace(Whitespace::Space);
        tokens[open].token = space.clone();
        tokens[last].token = space;
    }
    Ok(())
}

/// The planned saved queries that a statement calls, by name.
#[derive(Default)]
pub(crate) struct SavedQueries(Mutex<HashMap<RelationName, Arc<PlannedBody>>>);

impl fmt::Debug for SavedQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.lock().keys()).finish()
    }
}

impl SavedQueries {
    /// Returns the saved query of this name.
    pub(crate) fn get(&self, name: &RelationName) -> Option<Arc<PlannedBody>> {
        self.0.lock().get(name).cloned()
    }

    /// Adds a saved query.
    pub(crate) fn insert(&self, name: RelationName, body: PlannedBody) {
        self.0.lock().insert(name, Arc::new(body));
    }
}

impl RelationPlanner for SavedQueries {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<RelationPlanning> {
        let original = |relation| Ok(RelationPlanning::Original(Box::new(relation)));
        let TableFactor::Table {
            name,
            alias,
            args: Some(arguments),
            ..
        } = &relation
        else {
            return original(relation);
        };
        let Ok(written) = WrittenName::of_object(name) else {
            return original(relation);
        };
        let catalog = &context.context_provider().options().catalog;
        let schema = catalog.default_schema.as_str();
        let name = written.in_schema(schema_behind_temporary(schema).unwrap_or(schema));
        let Some(body) = self.get(&name) else {
            return original(relation);
        };
        let at = |error: Error| DataFusionError::from(error.at(format!("query {name}")));
        let arguments = match_arguments(&body.parameters, arguments).map_err(at)?;
        let plan = plan_call(&body, arguments, context)?;
        let plan = LogicalPlanBuilder::from(plan)
            .alias(written.to_reference())?
            .build()?;
        let planned = PlannedRelation::new(plan, alias.clone());
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

fn plan_call(
    body: &PlannedBody,
    arguments: Vec<(&QueryParameter, SqlExpr)>,
    context: &mut dyn RelationPlannerContext,
) -> DfResult<LogicalPlan> {
    let mut values = HashMap::new();
    for (parameter, argument) in arguments {
        let wanted = parse_data_type(&parameter.data_type)?;
        check_unplanned(&argument)?;
        let argument =
            context.sql_to_expr(cast(CastKind::Cast, argument, wanted), &DFSchema::empty())?;
        let nodes = check_planned(&argument)?;
        values.insert(parameter.name.clone(), (with_type(argument), nodes));
    }
    body.bind_arguments(&values)
}

/// If the argument is a parameter of the statement, gives it the type that the saved query wants,
/// so that clients learn this type. The cast around it stays, as it would around a literal.
fn with_type(argument: Expr) -> Expr {
    match argument {
        Expr::Cast(Cast { expr, field }) => {
            let expr = match *expr {
                Expr::Placeholder(Placeholder { id, field: None }) => {
                    let wanted = Field::new(id.clone(), field.data_type().clone(), true);
                    Expr::Placeholder(Placeholder::new_with_field(id, Some(Arc::new(wanted))))
                }
                other => other,
            };
            Expr::Cast(Cast {
                expr: Box::new(expr),
                field,
            })
        }
        other => other,
    }
}

/// Returns an argument for each parameter. Arguments come by position or by name, and the other
/// parameters get their defaults.
fn match_arguments<'a>(
    parameters: &'a [QueryParameter],
    given: &TableFunctionArgs,
) -> Result<Vec<(&'a QueryParameter, SqlExpr)>> {
    let takes = || format!("it takes {}", format_parameters(parameters));
    let mut arguments: HashMap<&str, SqlExpr> = HashMap::new();
    let mut has_names = false;
    for (position, argument) in given.args.iter().enumerate() {
        let (parameter, value) = match argument {
            FunctionArg::Unnamed(value) if !has_names => {
                let parameter = parameters.get(position).ok_or_else(|| {
                    Error::invalid(format!(
                        "{} arguments were given, but {}",
                        given.args.len(),
                        takes()
                    ))
                })?;
                (parameter, value)
            }
            FunctionArg::Unnamed(_) => {
                return Err(Error::invalid(
                    "an argument without a name follows one with a name; put the arguments without names first",
                ));
            }
            FunctionArg::Named { name, arg, .. } => {
                has_names = true;
                (find_parameter(parameters, &identifier(name))?, arg)
            }
            FunctionArg::ExprNamed {
                name: SqlExpr::Identifier(name),
                arg,
                ..
            } => {
                has_names = true;
                (find_parameter(parameters, &identifier(name))?, arg)
            }
            FunctionArg::ExprNamed { name, .. } => {
                return Err(Error::invalid(format!(
                    "{name} is not the name of a parameter; {}",
                    takes()
                )));
            }
        };
        let FunctionArgExpr::Expr(value) = value else {
            return Err(Error::invalid(format!(
                "{value} is not an argument; {}",
                takes()
            )));
        };
        let former = arguments.insert(&parameter.name, value.clone());
        if former.is_some() {
            return Err(Error::invalid(format!(
                "the parameter \"{}\" was given twice",
                parameter.name
            )));
        }
    }
    let mut all = Vec::with_capacity(parameters.len());
    for parameter in parameters {
        let given = arguments.remove(parameter.name.as_str());
        let argument = match (given, &parameter.default) {
            (Some(given), _) => given,
            (None, Some(default)) => parse_expression(default)?,
            (None, None) => {
                return Err(Error::invalid(format!(
                    "the parameter \"{}\" was not given, and has no default; {}",
                    parameter.name,
                    takes()
                )));
            }
        };
        all.push((parameter, argument));
    }
    Ok(all)
}

fn find_parameter<'a>(parameters: &'a [QueryParameter], name: &str) -> Result<&'a QueryParameter> {
    let mut all = parameters.iter();
    all.find(|parameter| parameter.name == name).ok_or_else(|| {
        Error::invalid(format!(
            "there is no parameter \"{name}\"; it takes {}",
            format_parameters(parameters)
        ))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{SetExpr, Statement as Ast};
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn parameters() -> Vec<QueryParameter> {
        let parameter = |name: &str, default: Option<&str>| QueryParameter {
            name: name.to_owned(),
            data_type: "BIGINT".to_owned(),
            default: default.map(str::to_owned),
        };
        vec![
            parameter("a", None),
            parameter("b", Some("7")),
            parameter("c", Some("NULL")),
        ]
    }

    fn arguments(call: &str) -> Result<Vec<String>> {
        let sql = format!("SELECT * FROM {call}");
        let Ok([Ast::Query(query)]) =
            <[Ast; 1]>::try_from(Parser::parse_sql(&GenericDialect {}, &sql).unwrap())
        else {
            panic!("{sql}");
        };
        let SetExpr::Select(select) = *query.body else {
            panic!("{sql}");
        };
        let TableFactor::Table {
            args: Some(args), ..
        } = &select.from[0].relation
        else {
            panic!("{sql}");
        };
        let parameters = parameters();
        let arguments = match_arguments(&parameters, args)?;
        let shown = arguments.iter().map(|(_, value)| value.to_string());
        Ok(shown.collect())
    }

    #[test]
    fn arguments_come_by_position_by_name_and_by_default() {
        for (call, expected) in [
            ("q(1)", ["1", "7", "NULL"]),
            ("q(1, 2, 3)", ["1", "2", "3"]),
            ("q(1, c => 3)", ["1", "7", "3"]),
            ("q(C => 3, a => $1)", ["$1", "7", "3"]),
            ("q(b => 1 + 1, a => 0)", ["0", "1 + 1", "NULL"]),
        ] {
            assert_eq!(arguments(call).unwrap(), expected, "{call}");
        }
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        for (call, part) in [
            (
                "q()",
                "the parameter \"a\" was not given, and has no default; it takes (a BIGINT, b BIGINT DEFAULT 7, c BIGINT DEFAULT NULL)",
            ),
            (
                "q(1, 2, 3, 4)",
                "4 arguments were given, but it takes (a BIGINT",
            ),
            ("q(1, a => 2)", "\"a\" was given twice"),
            ("q(a => 1, a => 2)", "\"a\" was given twice"),
            ("q(a => 1, 2)", "put the arguments without names first"),
            ("q(1, d => 2)", "there is no parameter \"d\"; it takes"),
            ("q(*)", "* is not an argument"),
        ] {
            let error = arguments(call).unwrap_err();
            assert!(error.message().contains(part), "{call}: {error}");
        }
    }

    #[test]
    fn a_call_is_a_select() {
        use datafusion::sql::sqlparser::tokenizer::Tokenizer;
        for (sql, expected) in [
            ("CALL q(1)", "SELECT*FROM q(1)"),
            (" -- so\n call q(1)", " -- so\n SELECT*FROM q(1)"),
            (
                "EXPLAIN ANALYZE CALL q()",
                "EXPLAIN ANALYZE SELECT*FROM q()",
            ),
            ("SELECT call FROM t", "SELECT call FROM t"),
            ("", ""),
        ] {
            let dialect = GenericDialect {};
            let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
            let mut tokens = tokens.unwrap();
            rewrite_call(&mut tokens).unwrap();
            let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
            assert_eq!(text, expected);
        }
        for sql in [
            "CALL",
            "CALL t",
            "EXPLAIN CALL public.t ORDER BY k",
            "CALL 'q'(1)",
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
            let error = rewrite_call(&mut tokens.unwrap()).unwrap_err();
            assert!(
                error.message().contains("write CALL name("),
                "{sql}: {error}"
            );
        }
    }
}
