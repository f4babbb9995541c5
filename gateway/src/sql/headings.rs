//! A column of a result has the name that its expression has in the statement: `count(*)`, `1`,
//! `a + 1`. DataFusion would call the last two `Int64(1)` and `t.a + Int64(1)`.
//!
//! DataFusion refuses columns of equal names, which a result may have: `SELECT id, id`. So the
//! later ones get a mark, which [`heading`] takes off again.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr,
    Statement as Ast, VisitMut, VisitorMut,
};
use volary_flight_proto::{Error, Result, SqlState};
use volary_planner::explain::COLUMN_MARK as MARK;

use super::names::identifier;

/// Maximum length of the name of an expression, in bytes. A longer text is cut.
const MAX_BYTES: usize = 255;

/// Says which columns of a statement's result are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    /// The columns whose names are equal already in the text.
    EqualNames,
    /// In addition, all columns beside a `*`, which may have a column of the same name.
    BesideWildcards,
}

/// Names the expressions of all SELECT lists of a statement, and marks columns of its result.
///
/// # Errors
/// `INVALID_ARGUMENT` if the statement sorts or groups by the name of several columns.
pub(crate) fn name_columns(statement: &mut DfStatement, marked: Marked) -> Result<()> {
    match statement {
        DfStatement::Statement(ast) => {
            // The names come first, so that equal ones can be marked.
            let _: ControlFlow<()> = ast.visit(&mut Namer);
            match ast.as_mut() {
                Ast::Query(query) => mark_query(query, marked),
                // A view must not have such columns. They are marked for an error that says so.
                Ast::CreateView(view) if view.columns.is_empty() => {
                    mark_query(&mut view.query, marked)
                }
                _ => Ok(()),
            }
        }
        DfStatement::Explain(explain) => name_columns(&mut explain.statement, marked),
        _ => Ok(()),
    }
}

/// Returns whether a `*` stands beside other columns in the result of the statement.
pub(crate) fn has_columns_beside_wildcards(statement: &DfStatement) -> bool {
    match statement {
        DfStatement::Statement(ast) => match ast.as_ref() {
            Ast::Query(query) => has_selects(&query.body, &has_columns_beside_wildcard),
            Ast::CreateView(view) => has_selects(&view.query.body, &has_columns_beside_wildcard),
            _ => false,
        },
        DfStatement::Explain(explain) => has_columns_beside_wildcards(&explain.statement),
        _ => false,
    }
}

fn has_columns_beside_wildcard(select: &Select) -> bool {
    select.projection.len() > 1 && select.projection.iter().any(is_wildcard)
}

/// Returns the name of a result's column for clients: without its mark.
pub(crate) fn heading(column: &str) -> &str {
    match column.split_once(MARK) {
        Some((name, _)) => name,
        None => column,
    }
}

/// Returns whether the column has the same name as another one of its SELECT list.
pub(crate) fn is_marked(column: &str) -> bool {
    column.contains(MARK)
}

/// Names the expressions of each SELECT list.
struct Namer;

impl VisitorMut for Namer {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_ref()
            && select.distinct.is_some()
            && let Some(order_by) = &mut query.order_by
        {
            sort_by_names(order_by, &select.projection);
        }
        ControlFlow::Continue(())
    }

    // The subqueries in an expression are named after it, so that its name does not contain theirs.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expression) = item else {
                continue;
            };
            if names_itself(expression) {
                continue;
            }
            let mut name = text(expression);
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            if *count > 1 {
                mark(&mut name, *count);
            }
            set_alias(item, name);
        }
        ControlFlow::Continue(())
    }
}

/// Returns whether an expression has the name of a column. A call of `unnest` may stand for several
/// columns.
fn names_itself(expression: &Expr) -> bool {
    match expression {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Nested(inner) => names_itself(inner),
        Expr::Function(function) => function.name.to_string().eq_ignore_ascii_case("unnest"),
        _ => false,
    }
}

/// Replaces the expressions of an ORDER BY that the SELECT list has, too, by their names. After a
/// DISTINCT, DataFusion can sort by nothing else.
fn sort_by_names(order_by: &mut OrderBy, projection: &[SelectItem]) {
    let OrderByKind::Expressions(sorted) = &mut order_by.kind else {
        return;
    };
    for by in sorted {
        let named = projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if *expr == by.expr => Some(alias),
            _ => None,
        });
        if let Some(name) = named {
            by.expr = Expr::Identifier(name.clone());
        }
    }
}

fn set_alias(item: &mut SelectItem, name: String) {
    let alias = Ident::with_quote('"', name);
    match item {
        SelectItem::UnnamedExpr(expression) => {
            let expr = std::mem::replace(expression, Expr::Identifier(Ident::new("")));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
        SelectItem::ExprWithAlias { alias: old, .. } => *old = alias,
        _ => {}
    }
}

/// Marks the name of a column, so that it differs from other names. `number` is the number of the
/// column in its SELECT list.
pub(super) fn mark(name: &mut String, number: usize) {
    name.push(MARK);
    name.push_str(&number.to_string());
}

/// Returns the text of an expression, cut where it becomes too long for a name.
fn text(expression: &Expr) -> String {
    let mut text = Cut(String::new());
    // The error only says that the text is cut.
    let _ = write!(text, "{expression}");
    text.0
}

/// A text that takes no more than [`MAX_BYTES`].
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let left = MAX_BYTES - self.0.len();
        if part.len() <= left {
            self.0.push_str(part);
            return Ok(());
        }
        let end = (0..=left)
            .rev()
            .find(|end| part.is_char_boundary(*end))
            .unwrap_or(0);
        self.0.push_str(&part[..end]);
        Err(fmt::Error)
    }
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(_, _)
    )
}

fn has_selects(body: &SetExpr, is_wanted: &dyn Fn(&Select) -> bool) -> bool {
    match body {
        SetExpr::Select(select) => is_wanted(select),
        SetExpr::Query(query) => has_selects(&query.body, is_wanted),
        SetExpr::SetOperation { left, right, .. } => {
            has_selects(left, is_wanted) || has_selects(right, is_wanted)
        }
        _ => false,
    }
}

/// Marks the columns of the SELECTs that make the result of a query.
fn mark_query(query: &mut Query, marked: Marked) -> Result<()> {
    mark_body(&mut query.body, query.order_by.as_ref(), marked)
}

fn mark_body(body: &mut SetExpr, order_by: Option<&OrderBy>, marked: Marked) -> Result<()> {
    match body {
        SetExpr::Select(select) => mark_select(select, order_by, marked),
        SetExpr::Query(query) => mark_query(query, marked),
        SetExpr::SetOperation { left, right, .. } => {
            mark_body(left, order_by, marked)?;
            mark_body(right, None, marked)
        }
        _ => Ok(()),
    }
}

fn mark_select(select: &mut Select, order_by: Option<&OrderBy>, marked: Marked) -> Result<()> {
    let beside_wildcard =
        marked == Marked::BesideWildcards && select.projection.iter().any(is_wildcard);
    let mut first: HashMap<String, Expr> = HashMap::new();
    let mut ambiguous = Vec::new();
    for (number, item) in (1..).zip(&mut select.projection) {
        let (name, expression) = match &*item {
            SelectItem::ExprWithAlias { expr, alias } => (identifier(alias), expr),
            SelectItem::UnnamedExpr(expression) => match name_of(expression) {
                Some(name) => (name, expression),
                None => continue,
            },
            _ => continue,
        };
        if is_marked(&name) {
            continue;
        }
        let is_same = match first.get(&name) {
            None if beside_wildcard => name_of(expression).as_ref() == Some(&name),
            None => {
                first.insert(name, expression.clone());
                continue;
            }
            Some(earlier) if are_of_two_tables(earlier, expression) => continue,
            Some(earlier) => {
                let is_column = |expression| name_of(expression).as_ref() == Some(&name);
                earlier == expression || (is_column(earlier) && is_column(expression))
            }
        };
        if !is_same {
            ambiguous.push(name.clone());
        }
        let mut marked = name;
        mark(&mut marked, number);
        set_alias(item, marked);
    }
    let used = ambiguous
        .iter()
        .find(|name| is_sorted_by(order_by, name) || is_grouped_by(&select.group_by, name));
    match used {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "several columns of the result are called {name}; give them other names with AS to sort or group by one of them"
        ))
        .with_sqlstate(SqlState::AmbiguousColumn)),
    }
}

/// Returns the name of a column in the SELECT list.
fn name_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(name) => Some(identifier(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(identifier),
        Expr::Nested(inner) => name_of(inner),
        _ => None,
    }
}

/// Returns whether both are columns with the names of different tables. DataFusion tells these
/// apart.
fn are_of_two_tables(one: &Expr, other: &Expr) -> bool {
    match (one, other) {
        (Expr::CompoundIdentifier(one), Expr::CompoundIdentifier(other)) => {
            let table = |parts: &[Ident]| {
                let table = parts.iter().rev().nth(1);
                table.map(identifier)
            };
            table(one) != table(other)
        }
        _ => false,
    }
}

fn is_sorted_by(order_by: Option<&OrderBy>, name: &str) -> bool {
    match order_by.map(|order_by| &order_by.kind) {
        Some(OrderByKind::Expressions(sorted)) => {
            sorted.iter().any(|by| is_identifier(&by.expr, name))
        }
        _ => false,
    }
}

fn is_grouped_by(group_by: &GroupByExpr, name: &str) -> bool {
    match group_by {
        GroupByExpr::Expressions(expressions, _) => expressions
            .iter()
            .any(|expression| is_identifier(expression, name)),
        GroupByExpr::All(_) => false,
    }
}

fn is_identifier(expression: &Expr, name: &str) -> bool {
    matches!(expression, Expr::Identifier(found) if identifier(found) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse::{Statement, parse};

    fn named(sql: &str, marked: Marked) -> Result<String> {
        let Statement::Planned(mut statement) = parse(sql)? else {
            panic!("another statement: {sql}");
        };
        name_columns(&mut statement, marked)?;
        Ok(statement.to_string().replace(MARK, ":"))
    }

    #[test]
    fn expressions_have_their_text_as_name() {
        for (sql, expected) in [
            (
                "SELECT a, t.a, (a), count(*), 1, 'x' FROM t",
                r#"SELECT a, t.a AS "a:2", (a) AS "a:3", count(*) AS "count(*)", 1 AS "1", 'x' AS "'x'" FROM t"#,
            ),
            (
                "SELECT * FROM (SELECT a + 1, unnest(l) FROM t) AS s",
                r#"SELECT * FROM (SELECT a + 1 AS "a + 1", unnest(l) FROM t) AS s"#,
            ),
            (
                "SELECT (SELECT max(a) FROM t)",
                r#"SELECT (SELECT max(a) AS "max(a)" FROM t) AS "(SELECT max(a) FROM t)""#,
            ),
            (
                "INSERT INTO t SELECT 1, 1",
                r#"INSERT INTO t SELECT 1 AS "1", 1 AS "1:2""#,
            ),
            (
                "SELECT 1, 1 UNION ALL (SELECT a, a FROM t)",
                r#"SELECT 1 AS "1", 1 AS "1:2" UNION ALL (SELECT a, a AS "a:2" FROM t)"#,
            ),
            (
                "SELECT x.a, y.a FROM x JOIN y ON true ORDER BY 1",
                "SELECT x.a, y.a FROM x JOIN y ON true ORDER BY 1",
            ),
            (
                "SELECT id, id FROM t ORDER BY id",
                r#"SELECT id, id AS "id:2" FROM t ORDER BY id"#,
            ),
            ("SELECT p.*, p.year FROM p", "SELECT p.*, p.year FROM p"),
            (
                "SELECT DISTINCT a % 2, b AS c FROM t ORDER BY a % 2, b",
                r#"SELECT DISTINCT a % 2 AS "a % 2", b AS c FROM t ORDER BY 1, c"#,
            ),
        ] {
            assert_eq!(named(sql, Marked::EqualNames).unwrap(), expected);
        }
        assert_eq!(
            named("SELECT p.*, p.year FROM p", Marked::BesideWildcards).unwrap(),
            r#"SELECT p.*, p.year AS "year:2" FROM p"#
        );
    }

    #[test]
    fn nothing_is_sorted_by_one_of_several_columns() {
        for sql in [
            "SELECT a AS x, b AS x FROM t ORDER BY x",
            "SELECT a AS x, b AS x FROM t GROUP BY x",
        ] {
            let error = named(sql, Marked::EqualNames).unwrap_err();
            assert!(error.message().contains("called x"), "{error}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let sql = format!("SELECT '{}'", "ä".repeat(1000));
        let Statement::Planned(mut statement) = parse(&sql).unwrap() else {
            panic!("another statement");
        };
        name_columns(&mut statement, Marked::EqualNames).unwrap();
        let name = format!("\"'{}\"", "ä".repeat(127));
        assert!(statement.to_string().ends_with(&name));
    }
}
