use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, LimitClause, Query, Select, SetExpr, Statement as Ast,
    TableFactor, Top, TopQuantity, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use volary_exec::instants::{EXPLICIT_UTC, is_utc};
use volary_exec::postgres::{
    LIKE_ESCAPE, SIMILAR_TO_ESCAPE, escape_char, like_pattern, similar_to_regex,
};
use volary_flight_proto::{Error, Result};

use super::row_subqueries::CopyCount;
use super::syntax::{binary, call, nested, parse_query};
use super::{
    foreign_functions, row_subqueries, session_statement, sort_by_columns, table_functions,
};

/// Rewrites FETCH and TOP to LIMIT, calls of functions of other databases to DataFusion's, SHOW of
/// what DataFusion does not know to queries, SIMILAR TO to `~`, ESCAPE to backslashes, comparisons
/// of rows with subqueries to EXISTS, and AT TIME ZONE 'UTC' to another name of UTC, because the
/// type of instants has the zone UTC in every session.
///
/// # Errors
/// `INVALID_ARGUMENT` for forms of FETCH that are not supported, and for wrong patterns and escape
/// characters.
pub(super) fn rewrite(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(ast) => {
            if let Some(query) = session_statement::query_of_show(ast)? {
                **ast = Ast::Query(parse_query(&query)?);
            }
            rewrite_ast(ast)
        }
        DfStatement::Explain(explain) => rewrite(&mut explain.statement),
        _ => Ok(()),
    }
}

/// Rewrites a statement: see [`rewrite`].
///
/// # Errors
/// Returns the errors of [`rewrite`].
pub(super) fn rewrite_ast(ast: &mut Ast) -> Result<()> {
    match ast.visit(&mut Rewriter::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Rewriter {
    copies: CopyCount,
}

impl VisitorMut for Rewriter {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        sort_by_columns::rewrite(query);
        to_control_flow(rewrite_query(query))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        table_functions::rewrite(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        to_control_flow(row_subqueries::rewrite_conditions(select, &mut self.copies))
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if let Expr::AtTimeZone { time_zone, .. } = expression {
            rewrite_utc(time_zone);
        }
        to_control_flow(
            foreign_functions::rewrite(expression)
                .and_then(|()| row_subqueries::rewrite(expression, &mut self.copies))
                .and_then(|()| rewrite_escape(expression))
                .and_then(|()| rewrite_similar_to(expression)),
        )
    }
}

/// Turns the pattern of a LIKE with ESCAPE into one with a backslash, because DataFusion knows no
/// other escape character. A constant pattern is turned here, and the function `like_escape` turns
/// other ones.
fn rewrite_escape(expression: &mut Expr) -> Result<()> {
    let (Expr::Like {
        pattern,
        escape_char: escape,
        ..
    }
    | Expr::ILike {
        pattern,
        escape_char: escape,
        ..
    }) = expression
    else {
        return Ok(());
    };
    let Some(ValueWithSpan { value: written, .. }) = escape.as_ref() else {
        return Ok(());
    };
    if let Value::SingleQuotedString(char) = written {
        let char = escape_char(char)?;
        if let Expr::Value(pattern) = pattern.as_mut()
            && let Value::SingleQuotedString(text) = &mut pattern.value
        {
            *text = like_pattern(text, char)?;
            *escape = None;
            return Ok(());
        }
        if char == Some('\\') {
            *escape = None;
            return Ok(());
        }
    }
    let arguments = vec![pattern.as_ref().clone(), Expr::value(written.clone())];
    **pattern = call(LIKE_ESCAPE, arguments);
    *escape = None;
    Ok(())
}

fn rewrite_utc(zone: &mut Expr) {
    if let Expr::Value(zone) = zone
        && let Value::SingleQuotedString(name) = &mut zone.value
        && is_utc(name)
    {
        EXPLICIT_UTC.clone_into(name);
    }
}

fn to_control_flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn rewrite_query(query: &mut Query) -> Result<()> {
    if let Some(fetch) = query.fetch.take() {
        rewrite_fetch(query, fetch)?;
    }
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(top) = select.top.take()
    {
        rewrite_fetch(query, fetch_of(top))?;
    }
    Ok(())
}

/// Returns the FETCH that means the same as a TOP.
fn fetch_of(top: Top) -> Fetch {
    let quantity = top.quantity.map(|quantity| match quantity {
        TopQuantity::Expr(rows) => rows,
        TopQuantity::Constant(rows) => Expr::value(Value::Number(rows.to_string(), false)),
    });
    Fetch {
        with_ties: top.with_ties,
        percent: top.percent,
        quantity,
    }
}

/// Makes a FETCH the LIMIT of its query.
fn rewrite_fetch(query: &mut Query, fetch: Fetch) -> Result<()> {
    if fetch.with_ties || fetch.percent {
        return Err(Error::unsupported(
            "FETCH … WITH TIES and PERCENT are not supported; write FETCH FIRST n ROWS ONLY, or filter by rank() OVER (…)",
        ));
    }
    let one = || Expr::value(Value::Number("1".to_owned(), false));
    let rows = fetch.quantity.unwrap_or_else(one);
    match &mut query.limit_clause {
        none @ None => {
            *none = Some(LimitClause::LimitOffset {
                limit: Some(rows),
                offset: None,
                limit_by: Vec::new(),
            });
        }
        Some(LimitClause::LimitOffset {
            limit: limit @ None,
            limit_by,
            ..
        }) if limit_by.is_empty() => *limit = Some(rows),
        Some(_) => {
            return Err(Error::invalid(
                "the query has two limits of LIMIT, FETCH and TOP; leave one out",
            ));
        }
    }
    Ok(())
}

/// Makes SIMILAR TO a regular expression that matches the whole text. DataFusion would take the
/// pattern itself for a regular expression, and search for it anywhere in the text. The function
/// `similar_to_escape` turns patterns that are no constants.
fn rewrite_similar_to(expression: &mut Expr) -> Result<()> {
    let Expr::SimilarTo {
        negated,
        expr,
        pattern,
        escape_char: escape,
    } = expression
    else {
        return Ok(());
    };
    let escape = match escape.take() {
        None => Value::SingleQuotedString("\\".to_owned()),
        Some(escape) => escape.value,
    };
    let constant = match pattern.as_ref() {
        Expr::Value(pattern) => Some(&pattern.value),
        _ => None,
    };
    let regex = match (constant, &escape) {
        (Some(Value::Null), _) => Expr::value(Value::Null),
        (Some(Value::SingleQuotedString(text)), Value::SingleQuotedString(escape)) => {
            let regex = similar_to_regex(text, escape_char(escape)?)?;
            Expr::value(Value::SingleQuotedString(regex))
        }
        _ => call(
            SIMILAR_TO_ESCAPE,
            vec![pattern.as_ref().clone(), Expr::value(escape)],
        ),
    };
    let op = if *negated {
        BinaryOperator::PGRegexNotMatch
    } else {
        BinaryOperator::PGRegexMatch
    };
    *expression = nested(binary(expr.as_ref().clone(), op, regex));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse::{Statement, parse};

    fn rewritten(sql: &str) -> Result<String> {
        match parse(sql)? {
            Statement::Planned(statement) => Ok(statement.to_string()),
            other => panic!("another statement: {other:?}"),
        }
    }

    #[test]
    fn fetch_is_limit() {
        for (sql, expected) in [
            ("SELECT 1 FETCH FIRST ROW ONLY", "SELECT 1 LIMIT 1"),
            (
                "SELECT k FROM t OFFSET ? ROWS FETCH NEXT ? ROWS ONLY",
                "SELECT k FROM t LIMIT $2 OFFSET $1 ROWS",
            ),
            ("SELECT TOP 2 k FROM t", "SELECT k FROM t LIMIT 2"),
            ("SELECT TOP (?) k FROM t", "SELECT k FROM t LIMIT $1"),
            (
                "SELECT * FROM (SELECT 1 FETCH FIRST 2 ROWS ONLY) AS t",
                "SELECT * FROM (SELECT 1 LIMIT 2) AS t",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in [
            "SELECT 1 FETCH FIRST 1 ROWS WITH TIES",
            "SELECT 1 FETCH FIRST 10 PERCENT ROWS ONLY",
            "SELECT 1 LIMIT 1 FETCH FIRST 1 ROWS ONLY",
        ] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn the_escape_character_of_like_is_a_backslash() {
        for (sql, expected) in [
            (
                "SELECT a LIKE 'x!%y!!' ESCAPE '!'",
                r"SELECT a LIKE 'x\%y!'",
            ),
            (
                r"SELECT a ILIKE '\x|_' ESCAPE '|'",
                r"SELECT a ILIKE '\\x\_'",
            ),
            (r"SELECT a LIKE 'x\y' ESCAPE '\'", "SELECT a LIKE 'xy'"),
            (r"SELECT a LIKE b ESCAPE '\'", "SELECT a LIKE b"),
            (r"SELECT a LIKE 'x\%' ESCAPE ''", r"SELECT a LIKE 'x\\%'"),
            (
                "SELECT a NOT LIKE b ESCAPE '!'",
                "SELECT a NOT LIKE like_escape(b, '!')",
            ),
            (
                "SELECT a ILIKE '%' || ? ESCAPE ?",
                "SELECT a ILIKE like_escape('%' || $1, $2)",
            ),
            (
                "SELECT a SIMILAR TO ?",
                r"SELECT (a ~ similar_to_escape($1, '\'))",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in [
            "SELECT a LIKE 'x!' ESCAPE '!'",
            "SELECT a LIKE 'x' ESCAPE '!!'",
            "SELECT a SIMILAR TO 'x!' ESCAPE '!'",
        ] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
    }
}
