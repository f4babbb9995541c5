//! DataFusion 55 compares a subquery with one column only, and has no `ARRAY(SELECT …)`. Both are
//! rewritten to what it plans.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident,
    JoinConstraint, JoinOperator, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, TableWithJoins, Value,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::{identifier, name_in_public};
use super::syntax::{binary, call, nested, parse_expression, parse_query};
use super::visit::{QueryVisitor, visit_node};

/// The name of the derived table that has the rows of a subquery.
pub(crate) const ROWS: &str = "__rows";

/// The name of the column of an array's elements.
const ELEMENT: &str = "__element";

/// Maximum number of expressions that may be copied in one statement.
const MAX_COPIES: usize = 200_000;

/// Largest number of copies of an expression in what takes the place of a comparison.
const COPIES_OF_EACH: usize = 3;

/// Counts the expressions that are copied. Comparisons within each other multiply: each copy of the
/// outer one contains all copies of the inner one.
#[derive(Debug, Default)]
pub(super) struct CopyCount(usize);

impl CopyCount {
    fn add(&mut self, comparison: &Expr) -> Result<()> {
        visit_node(comparison, self)
    }
}

impl QueryVisitor for CopyCount {
    fn expression(&mut self, _: &Expr) -> Result<()> {
        self.0 += COPIES_OF_EACH;
        if self.0 > MAX_COPIES {
            return Err(Error::invalid(
                "the statement compares rows with subqueries too often, or within each other; join the subqueries",
            )
            .with_sqlstate(SqlState::StatementTooComplex));
        }
        Ok(())
    }
}

/// Rewrites `(a, b) IN (SELECT …)` in the conditions of a SELECT to EXISTS. A condition that is
/// NULL leaves out the same rows as one that is false, so the planner can make it a join.
///
/// # Errors
/// `INVALID_ARGUMENT` for a subquery with another number of columns, and for too many comparisons.
pub(super) fn rewrite_conditions(select: &mut Select, copies: &mut CopyCount) -> Result<()> {
    let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
    let of_joins = joins.filter_map(|join| condition_of(&mut join.join_operator));
    let conditions = of_joins
        .chain(&mut select.selection)
        .chain(&mut select.having)
        .chain(&mut select.qualify);
    for condition in conditions {
        rewrite_condition(condition, copies)?;
    }
    Ok(())
}

fn condition_of(operator: &mut JoinOperator) -> Option<&mut Expr> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => match constraint {
            JoinConstraint::On(condition) => Some(condition),
            _ => None,
        },
        _ => None,
    }
}

fn rewrite_condition(condition: &mut Expr, copies: &mut CopyCount) -> Result<()> {
    match condition {
        Expr::Nested(inner) => rewrite_condition(inner, copies),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => {
            rewrite_condition(left, copies)?;
            rewrite_condition(right, copies)
        }
        other => {
            if let Some(membership) = Membership::of(other)? {
                *other = if membership.is_negated {
                    copies.add(other)?;
                    not_exists(membership.equal_or_null_rows()?)
                } else {
                    exists(membership.equal_rows()?)
                };
            }
            Ok(())
        }
    }
}

/// Rewrites `(a, b) IN (SELECT …)` as a value, which is NULL if NULLs decide it, and
/// `ARRAY(SELECT …)`.
///
/// # Errors
/// `INVALID_ARGUMENT` for a subquery with another number of columns, for other comparisons of rows
/// with a subquery, for too many comparisons, and for an order of an array that is not known
/// outside of the subquery.
pub(super) fn rewrite(expression: &mut Expr, copies: &mut CopyCount) -> Result<()> {
    if let Some(membership) = Membership::of(expression)? {
        copies.add(expression)?;
        *expression = membership.value()?;
    } else if let Expr::Function(function) = expression
        && let FunctionArguments::Subquery(rows) = &function.args
        && name_in_public(&function.name).as_deref() == Some("array")
    {
        *expression = array_of(rows)?;
    }
    Ok(())
}

/// A test of whether a row is among the rows of a subquery.
struct Membership {
    fields: Vec<Expr>,
    rows: Query,
    is_negated: bool,
}

impl Membership {
    fn of(expression: &Expr) -> Result<Option<Self>> {
        let (row, rows, is_negated) = match expression {
            Expr::InSubquery {
                expr,
                subquery,
                negated,
            } => (expr, subquery, *negated),
            Expr::AnyOp {
                left,
                compare_op: BinaryOperator::Eq,
                right,
                ..
            } => match right.as_ref() {
                Expr::Subquery(rows) => (left, rows, false),
                _ => return Ok(None),
            },
            Expr::AllOp {
                left,
                compare_op: BinaryOperator::NotEq,
                right,
            } => match right.as_ref() {
                Expr::Subquery(rows) => (left, rows, true),
                _ => return Ok(None),
            },
            Expr::BinaryOp { left, op, right }
            | Expr::AnyOp {
                left,
                compare_op: op,
                right,
                ..
            }
            | Expr::AllOp {
                left,
                compare_op: op,
                right,
            } if is_row(left) && matches!(right.as_ref(), Expr::Subquery(_)) => {
                return Err(Error::unsupported(format!(
                    "a row is compared with a subquery only by IN and NOT IN, not by {op}; write (a, b) IN (SELECT …), or join the subquery"
                )));
            }
            _ => return Ok(None),
        };
        let Expr::Tuple(fields) = row.as_ref() else {
            return Ok(None);
        };
        if let Some(columns) = columns(rows)
            && columns != fields.len()
        {
            return Err(Error::invalid(format!(
                "a row of {} fields is compared with a subquery of {columns} columns; give both the same number",
                fields.len()
            ))
            .with_sqlstate(SqlState::SyntaxError));
        }
        Ok(Some(Self {
            fields: fields.clone(),
            rows: rows.as_ref().clone(),
            is_negated,
        }))
    }

    /// Returns TRUE, FALSE or NULL, as SQL defines the comparison.
    fn value(&self) -> Result<Expr> {
        let (is_in, is_not_in) = if self.is_negated {
            ("false", "true")
        } else {
            ("true", "false")
        };
        let mut value = parse_expression(&format!(
            "CASE WHEN true THEN {is_in} WHEN true THEN NULL ELSE {is_not_in} END"
        ))?;
        if let Expr::Case { conditions, .. } = &mut value
            && let [first, second] = conditions.as_mut_slice()
        {
            first.condition = exists(self.equal_rows()?);
            second.condition = exists(self.equal_or_null_rows()?);
        }
        Ok(value)
    }

    /// Returns the query of the rows that are equal to the row.
    fn equal_rows(&self) -> Result<Box<Query>> {
        self.rows_where(equal)
    }

    /// Returns the query of the rows that are equal to the row, or would be if NULLs had values.
    fn equal_or_null_rows(&self) -> Result<Box<Query>> {
        let is_null = |value: Expr| Expr::IsNull(Box::new(value));
        self.rows_where(|column, field| {
            let column_is_null = is_null(column.clone());
            let field_is_null = is_null(nested(field.clone()));
            let is_equal = equal(column, field);
            nested(or(or(is_equal, column_is_null), field_is_null))
        })
    }

    /// Returns the query of the rows for which a condition holds on each column and the field at
    /// the same position.
    fn rows_where(&self, condition: impl Fn(Expr, &Expr) -> Expr) -> Result<Box<Query>> {
        if let Some((select, columns)) = plain_columns(&self.rows, &self.fields) {
            let own = select.selection.iter().cloned().map(nested);
            let columns = columns.into_iter().cloned().zip(&self.fields);
            let conditions = columns.map(|(column, field)| condition(column, field));
            return select_one(select.from.clone(), own.chain(conditions));
        }
        let names: Vec<_> = (0..self.fields.len())
            .map(|number| format!("__column_{number}"))
            .collect();
        let from = derived_table(self.rows.clone(), &names)?;
        let columns = names.iter().zip(&self.fields);
        let conditions = columns.map(|(name, field)| condition(column_of_rows(name), field));
        select_one(from, conditions)
    }
}

fn exists(subquery: Box<Query>) -> Expr {
    Expr::Exists {
        subquery,
        negated: false,
    }
}

fn not_exists(subquery: Box<Query>) -> Expr {
    Expr::Exists {
        subquery,
        negated: true,
    }
}

fn equal(column: Expr, field: &Expr) -> Expr {
    binary(column, BinaryOperator::Eq, nested(field.clone()))
}

fn or(left: Expr, right: Expr) -> Expr {
    binary(left, BinaryOperator::Or, right)
}

/// Returns `SELECT 1 FROM … WHERE …`.
fn select_one(
    from: Vec<TableWithJoins>,
    conditions: impl Iterator<Item = Expr>,
) -> Result<Box<Query>> {
    let mut query = parse_query("SELECT 1")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = from;
        select.selection = conditions.reduce(|all, next| binary(all, BinaryOperator::And, next));
    }
    Ok(query)
}

/// Returns the FROM of a derived table that has the rows of a query, and columns of these names.
fn derived_table(rows: Query, names: &[String]) -> Result<Vec<TableWithJoins>> {
    // The names are Volary's own. What a user has written must not become text: sqlparser does not
    // print all of it as it was.
    let names = names.join("\", \"");
    let mut query = parse_query(&format!(
        "SELECT 1 FROM (SELECT 1) AS \"{ROWS}\" (\"{names}\")"
    ))?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::internal("a SELECT is not read as one"));
    };
    let mut from = std::mem::take(&mut select.from);
    if let Some(table) = from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut table.relation
    {
        **subquery = rows;
    }
    Ok(from)
}

/// Returns a column of the derived table.
fn column_of_rows(name: &str) -> Expr {
    let parts = [ROWS, name].map(|part| Ident::with_quote('"', part));
    Expr::CompoundIdentifier(parts.to_vec())
}

/// Returns the columns and the FROM of a query that is only a filter of tables. Its conditions may
/// then be joined by those of the rows. If the query reads columns of the outer one, the planner
/// finds a join for conditions in it, but not for conditions around it. Returns `None` if a field
/// of the row could mean a column of the query.
fn plain_columns<'a>(rows: &'a Query, fields: &[Expr]) -> Option<(&'a Select, Vec<&'a Expr>)> {
    let SetExpr::Select(select) = rows.body.as_ref() else {
        return None;
    };
    if !is_filter(rows, select) || select.from.is_empty() {
        return None;
    }
    let mut tables = Vec::new();
    for from in &select.from {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            let TableFactor::Table { name, alias, .. } = factor else {
                return None;
            };
            tables.push(match alias {
                Some(alias) => identifier(&alias.name),
                None => identifier(name.0.last()?.as_ident()?),
            });
        }
    }
    let is_outer = |field: &Expr| match field {
        Expr::Value(_) => true,
        Expr::CompoundIdentifier(parts) => parts
            .first()
            .is_some_and(|table| parts.len() == 2 && !tables.contains(&identifier(table))),
        _ => false,
    };
    if !fields.iter().all(is_outer) {
        return None;
    }
    let columns = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. } => {
            is_column(column).then_some(column)
        }
        _ => None,
    });
    Some((select, columns.collect::<Option<_>>()?))
}

/// Returns whether a query has only a FROM, a WHERE and a list of columns, beside an ORDER BY. Its
/// FETCH and TOP may not be rewritten to LIMIT yet.
fn is_filter(query: &Query, select: &Select) -> bool {
    query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.pipe_operators.is_empty()
        && select.distinct.is_none()
        && select.top.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && !is_grouped(select)
        && select.having.is_none()
        && select.qualify.is_none()
}

fn is_grouped(select: &Select) -> bool {
    !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
}

fn is_column(expression: &Expr) -> bool {
    is_name(expression) || matches!(expression, Expr::Value(_))
}

fn is_name(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_) | Expr::CompoundIdentifier(_)
    )
}

fn is_row(expression: &Expr) -> bool {
    matches!(expression, Expr::Tuple(_))
}

/// Returns the SELECT that names the columns of a query.
fn first_select(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return None,
        }
    }
}

/// Returns the number of columns of a query, unless it has a wildcard, or operators that change its
/// columns.
fn columns(query: &Query) -> Option<usize> {
    let select = first_select(query)?;
    let is_plain = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    let items = &select.projection;
    let is_counted = query.pipe_operators.is_empty() && items.iter().all(is_plain);
    is_counted.then_some(items.len())
}

/// Returns an expression that makes an array of the only column of a query, in the order of the
/// query.
fn array_of(rows: &Query) -> Result<Expr> {
    if columns(rows).is_some_and(|columns| columns != 1) {
        return Err(
            Error::invalid("the subquery of ARRAY(SELECT …) must have one column")
                .with_sqlstate(SqlState::SyntaxError),
        );
    }
    let array = match array_in_place(rows) {
        Some(array) => array,
        None => array_of_rows(rows.clone())?,
    };
    let empty = call("make_array", Vec::new());
    let array = Expr::Subquery(Box::new(array));
    Ok(call("coalesce", vec![array, empty]))
}

/// Returns a query that makes the array within the query itself, without another query around it.
/// The planner finds a join for such a query if it reads columns of the outer one. Returns `None`
/// if the query must be evaluated before.
fn array_in_place(rows: &Query) -> Option<Query> {
    let SetExpr::Select(select) = rows.body.as_ref() else {
        return None;
    };
    let [item] = select.projection.as_slice() else {
        return None;
    };
    let (SelectItem::UnnamedExpr(element) | SelectItem::ExprWithAlias { expr: element, .. }) = item
    else {
        return None;
    };
    if !is_filter(rows, select) || !is_column(element) {
        return None;
    }
    let mut order = Vec::new();
    if let Some(order_by) = &rows.order_by {
        let OrderByKind::Expressions(keys) = &order_by.kind else {
            return None;
        };
        for key in keys {
            let mut key = key.clone();
            if sorts_by(&key.expr, item) {
                key.expr = element.clone();
            } else if !is_name(&key.expr) {
                return None;
            }
            order.push(key);
        }
    }
    let array = SelectItem::UnnamedExpr(array_agg(element.clone(), order));
    let mut rows = rows.clone();
    rows.order_by = None;
    if let SetExpr::Select(select) = rows.body.as_mut() {
        select.projection = vec![array];
    }
    Some(rows)
}

/// Returns a query that makes the array of the rows of another one.
fn array_of_rows(mut rows: Query) -> Result<Query> {
    let mut names = vec![ELEMENT.to_owned()];
    let mut order = Vec::new();
    if let Some(order_by) = &rows.order_by {
        let OrderByKind::Expressions(keys) = &order_by.kind else {
            return Err(unknown_order());
        };
        for mut key in keys.clone() {
            let name = name_of_key(&mut rows, &key.expr, &mut names)?;
            key.expr = column_of_rows(&name);
            order.push(key);
        }
    }
    let array = SelectItem::UnnamedExpr(array_agg(column_of_rows(ELEMENT), order));
    let mut query = *parse_query("SELECT 1")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![array];
        select.from = derived_table(rows, &names)?;
    }
    Ok(query)
}

fn array_agg(element: Expr, order: Vec<OrderByExpr>) -> Expr {
    let mut array = call("array_agg", vec![element]);
    if !order.is_empty()
        && let Expr::Function(function) = &mut array
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
    array
}

/// Returns the name that a key of the ORDER BY has outside of the query. A key that is no column of
/// the query becomes one. `names` has the names of the query's columns.
fn name_of_key(rows: &mut Query, key: &Expr, names: &mut Vec<String>) -> Result<String> {
    let element = first_select(rows).and_then(|select| select.projection.first());
    if element.is_some_and(|element| sorts_by(key, element)) {
        return Ok(ELEMENT.to_owned());
    }
    let SetExpr::Select(select) = rows.body.as_mut() else {
        return Err(unknown_order());
    };
    if select.distinct.is_some() || is_grouped(select) || matches!(key, Expr::Value(_)) {
        return Err(unknown_order());
    }
    let item = SelectItem::UnnamedExpr(key.clone());
    // An earlier key may be the same expression.
    if let Some(position) = select.projection.iter().position(|other| *other == item) {
        return names.get(position).cloned().ok_or_else(unknown_order);
    }
    let name = format!("__order_{}", names.len());
    select.projection.push(item);
    names.push(name.clone());
    Ok(name)
}

/// Returns whether a key of an ORDER BY is the only item of the SELECT list: its position, its name
/// or its expression.
fn sorts_by(key: &Expr, item: &SelectItem) -> bool {
    let is_called = |name: &Ident, column: &Ident| identifier(name) == identifier(column);
    match (key, item) {
        (Expr::Value(number), _) if is_one(&number.value) => true,
        (Expr::Identifier(name), SelectItem::ExprWithAlias { alias, .. })
            if is_called(name, alias) =>
        {
            true
        }
        (Expr::Identifier(name), SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))) => {
            parts.last().is_some_and(|column| is_called(name, column))
        }
        (
            key,
            SelectItem::UnnamedExpr(element) | SelectItem::ExprWithAlias { expr: element, .. },
        ) => key == element,
        _ => false,
    }
}

fn is_one(number: &Value) -> bool {
    matches!(number, Value::Number(digits, _) if digits == "1")
}

fn unknown_order() -> Error {
    Error::unsupported(
        "ARRAY(SELECT …) orders by its column, or by columns of the FROM if it has no DISTINCT, GROUP BY or UNION; write array_agg(x ORDER BY …)",
    )
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
    fn rows_among_those_of_a_subquery_exist() {
        let rows = r#"(SELECT x, y FROM u) AS "__rows" ("__column_0", "__column_1")"#;
        let exists = format!(
            r#"EXISTS (SELECT 1 FROM {rows} WHERE "__rows"."__column_0" = (a) AND "__rows"."__column_1" = (b))"#
        );
        let condition = rewritten("SELECT 1 FROM t WHERE c AND (a, b) IN (SELECT x, y FROM u)");
        assert_eq!(
            condition.unwrap(),
            format!("SELECT 1 FROM t WHERE c AND {exists}")
        );
        let value = rewritten("SELECT (a, b) NOT IN (SELECT x, y FROM u) FROM t").unwrap();
        assert!(
            value.starts_with(&format!(
                "SELECT CASE WHEN {exists} THEN false WHEN EXISTS ("
            )),
            "{value}"
        );
        assert!(
            value.ends_with(" THEN NULL ELSE true END FROM t"),
            "{value}"
        );
        for rows in [
            "SELECT x, y FROM u FETCH FIRST 1 ROW ONLY",
            "SELECT TOP 1 x, y FROM u",
            "SELECT 1, 2",
        ] {
            let whole = rewritten(&format!("SELECT 1 FROM t WHERE (t.a, t.b) IN ({rows})"));
            let whole = whole.unwrap();
            let is_limited = whole.contains("LIMIT 1) AS \"__rows\"");
            assert!(is_limited || whole.contains("(SELECT 1, 2) AS"), "{whole}");
        }
        let plain = "SELECT 1 FROM t WHERE (t.a, t.b) IN (SELECT x, u.y FROM u WHERE u.z = t.c)";
        let exists = "EXISTS (SELECT 1 FROM u WHERE (u.z = t.c) AND x = (t.a) AND u.y = (t.b))";
        assert_eq!(
            rewritten(plain).unwrap(),
            format!("SELECT 1 FROM t WHERE {exists}")
        );
        for sql in [
            "SELECT 1 FROM t WHERE (a, b) IN (SELECT x FROM u)",
            "SELECT 1 FROM t WHERE (a, b) = (SELECT x, y FROM u)",
            "SELECT 1 FROM t WHERE (a, b) > ANY (SELECT x, y FROM u)",
            "SELECT ARRAY(SELECT x, y FROM u)",
            "SELECT ARRAY(SELECT DISTINCT x FROM u ORDER BY y)",
            "SELECT ARRAY(SELECT x FROM u ORDER BY 2)",
        ] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn comparisons_within_each_other_are_limited() {
        let nested = |depth: usize| {
            let inner = (0..depth).fold("a".to_owned(), |field, _| {
                format!("({field}, 1) IN (SELECT x, 1 FROM u)")
            });
            rewritten(&format!("SELECT {inner} FROM t"))
        };
        assert!(nested(3).is_ok());
        assert!(nested(20).is_err());
    }

    #[test]
    fn texts_stay_texts() {
        let sql = r"SELECT ARRAY(SELECT x FROM u WHERE s = '\'') UNION SELECT 1 --')";
        let Statement::Planned(statement) = parse(sql).unwrap() else {
            panic!("another statement");
        };
        let visited = format!("{statement:?}");
        assert!(visited.contains(r"\\') UNION SELECT 1 --"), "{visited}");
        assert!(!visited.contains("SetOperation"), "{visited}");
    }

    #[test]
    fn an_array_has_the_order_of_its_query() {
        for (rows, expected) in [
            (
                "SELECT x FROM u WHERE y = z",
                "array_agg(x) FROM u WHERE y = z",
            ),
            (
                "SELECT u.x AS w FROM u ORDER BY w DESC, y",
                "array_agg(u.x ORDER BY u.x DESC, y) FROM u",
            ),
            (
                "SELECT u.x AS W FROM u ORDER BY w",
                "array_agg(u.x ORDER BY u.x) FROM u",
            ),
            (
                "SELECT u.x FROM u ORDER BY x",
                "array_agg(u.x ORDER BY u.x) FROM u",
            ),
            (
                "SELECT x AS z FROM u ORDER BY z DESC LIMIT 2",
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__element" DESC) FROM (SELECT x AS z FROM u ORDER BY z DESC LIMIT 2) AS "__rows" ("__element")"#,
            ),
            (
                "SELECT x + 1 FROM u ORDER BY y, x + 1",
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__order_1", "__rows"."__element") FROM (SELECT x + 1, y FROM u ORDER BY y, x + 1) AS "__rows" ("__element", "__order_1")"#,
            ),
            (
                "SELECT x + 1 FROM u ORDER BY y, y DESC",
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__order_1", "__rows"."__order_1" DESC) FROM (SELECT x + 1, y FROM u ORDER BY y, y DESC) AS "__rows" ("__element", "__order_1")"#,
            ),
            (
                "SELECT x FROM u UNION SELECT x FROM v ORDER BY x",
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__element") FROM (SELECT x FROM u UNION SELECT x FROM v ORDER BY x) AS "__rows" ("__element")"#,
            ),
        ] {
            let array = rewritten(&format!("SELECT ARRAY({rows})")).unwrap();
            assert_eq!(
                array,
                format!("SELECT coalesce((SELECT {expected}), make_array())")
            );
        }
    }
}
