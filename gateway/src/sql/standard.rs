use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, LimitClause, Query, SetExpr, Statement as Ast, Top, TopQuantity,
    Value, VisitMut, VisitorMut,
};
use volary_exec::instants::{EXPLICIT_UTC, is_utc};
use volary_flight_proto::{Error, Result};

use super::syntax::parse_query;
use super::{foreign_functions, session_statement};

/// Rewrites FETCH and TOP to LIMIT, calls of functions of other databases to DataFusion's, SHOW of
/// what DataFusion does not know to queries, SIMILAR TO to `~`, ESCAPE to backslashes, and AT TIME
/// ZONE 'UTC' to another name of UTC, because the type of instants has the zone UTC in every
/// session.
///
/// # Errors
/// `INVALID_ARGUMENT` for forms of FETCH and SIMILAR TO that are not supported.
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
    match ast.visit(&mut Rewriter) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        to_control_flow(rewrite_query(query))
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if let Expr::AtTimeZone { time_zone, .. } = expression {
            rewrite_utc(time_zone);
        }
        rewrite_escape(expression);
        to_control_flow(
            foreign_functions::rewrite(expression).and_then(|()| rewrite_similar_to(expression)),
        )
    }
}

/// Makes the backslash the escape character of a LIKE with a constant pattern, because DataFusion
/// knows no other one.
fn rewrite_escape(expression: &mut Expr) {
    let (Expr::Like {
        pattern,
        escape_char,
        ..
    }
    | Expr::ILike {
        pattern,
        escape_char,
        ..
    }) = expression
    else {
        return;
    };
    let Some(Value::SingleQuotedString(escape)) = escape_char.as_ref().map(|char| &char.value)
    else {
        return;
    };
    let mut chars = escape.chars();
    let (Some(escape), None) = (chars.next(), chars.next()) else {
        return;
    };
    if escape != '\\'
        && let Expr::Value(pattern) = pattern.as_mut()
        && let Value::SingleQuotedString(text) = &mut pattern.value
        && let Some(escaped) = with_backslashes(text, escape)
    {
        *text = escaped;
        *escape_char = None;
    }
}

/// Returns the pattern with a backslash as its escape character, or `None` if the pattern ends with
/// an escape character.
fn with_backslashes(pattern: &str, escape: char) -> Option<String> {
    let mut escaped = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            char if char == escape => {
                escaped.push('\\');
                escaped.push(chars.next()?);
            }
            '\\' => escaped.push_str("\\\\"),
            char => escaped.push(char),
        }
    }
    Some(escaped)
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
/// pattern itself for a regular expression, and search for it anywhere in the text.
fn rewrite_similar_to(expression: &mut Expr) -> Result<()> {
    let Expr::SimilarTo {
        negated,
        expr,
        pattern,
        escape_char,
    } = expression
    else {
        return Ok(());
    };
    let Expr::Value(pattern) = pattern.as_ref() else {
        return Err(not_constant());
    };
    let regex = match &pattern.value {
        Value::SingleQuotedString(text) => {
            let escape = match escape_char.as_ref().map(|escape| &escape.value) {
                None => Some('\\'),
                Some(Value::SingleQuotedString(escape)) => {
                    let mut chars = escape.chars();
                    match (chars.next(), chars.next()) {
                        (escape, None) => escape,
                        _ => return Err(Error::invalid("ESCAPE takes one character")),
                    }
                }
                Some(_) => return Err(Error::invalid("ESCAPE takes one character")),
            };
            Value::SingleQuotedString(to_regex(text, escape)?)
        }
        Value::Null => Value::Null,
        _ => return Err(not_constant()),
    };
    let op = if *negated {
        BinaryOperator::PGRegexNotMatch
    } else {
        BinaryOperator::PGRegexMatch
    };
    *expression = Expr::Nested(Box::new(Expr::BinaryOp {
        left: expr.clone(),
        op,
        right: Box::new(Expr::value(regex)),
    }));
    Ok(())
}

fn not_constant() -> Error {
    Error::unsupported(
        "SIMILAR TO takes a constant pattern; write text ~ pattern with a regular expression",
    )
}

/// Translates a pattern of SIMILAR TO to a regular expression. `None` as escape character means
/// that there is none.
fn to_regex(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut regex = "(?s)^(?:".to_owned();
    let mut within_brackets = false;
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        if Some(char) == escape {
            let escaped = chars.next().ok_or_else(|| {
                Error::invalid("the pattern of SIMILAR TO ends with its escape character")
            })?;
            push_literal(&mut regex, escaped);
            continue;
        }
        match char {
            // The brackets of a class such as [:alpha:] are within those of the set.
            '[' if within_brackets && chars.peek() == Some(&':') => {
                regex.push('[');
                for char in chars.by_ref() {
                    regex.push(char);
                    if char == ']' {
                        break;
                    }
                }
            }
            '[' if !within_brackets => {
                within_brackets = true;
                regex.push('[');
                if let Some(not) = chars.next_if_eq(&'^') {
                    regex.push(not);
                }
            }
            ']' if within_brackets => {
                within_brackets = false;
                regex.push(']');
            }
            '-' if within_brackets => regex.push('-'),
            char if within_brackets => push_literal(&mut regex, char),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => regex.push(char),
            char => push_literal(&mut regex, char),
        }
    }
    regex.push_str(")$");
    Ok(regex)
}

fn push_literal(regex: &mut String, char: char) {
    // A backslash before `<` or `>` would make it a word boundary. The comma, as in `{2,3}`, and
    // `_` need none.
    if char.is_ascii_punctuation() && !matches!(char, ',' | '_' | '<' | '>') {
        regex.push('\\');
    }
    regex.push(char);
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
                r"SELECT a LIKE 'x\%y\!'",
            ),
            (
                r"SELECT a ILIKE '\x|_' ESCAPE '|'",
                r"SELECT a ILIKE '\\x\_'",
            ),
            (
                r"SELECT a LIKE 'x' ESCAPE '\'",
                r"SELECT a LIKE 'x' ESCAPE '\'",
            ),
            ("SELECT a LIKE b ESCAPE '!'", "SELECT a LIKE b ESCAPE '!'"),
            (
                "SELECT a LIKE 'x!' ESCAPE '!'",
                "SELECT a LIKE 'x!' ESCAPE '!'",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }

    #[test]
    fn a_pattern_of_similar_to_matches_the_whole_text() {
        for (pattern, expected) in [
            ("(a|b)%_", "(?s)^(?:(?:a|b).*.)$"),
            ("a.c^$", r"(?s)^(?:a\.c\^\$)$"),
            (r"a\%\_", r"(?s)^(?:a\%_)$"),
            ("[^a-c&&x_%]{2,3}", r"(?s)^(?:[^a-c\&\&x_\%]{2,3})$"),
            ("[[:alpha:]_]+", "(?s)^(?:[[:alpha:]_]+)$"),
        ] {
            assert_eq!(to_regex(pattern, Some('\\')).unwrap(), expected);
        }
        assert!(to_regex("a!", Some('!')).is_err());
    }
}
