//! DataFusion 55 compares a subquery with one column only, and has no `ARRAY(SELECT …)`. Both are
//! rewritten to what it plans.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator,
    OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, Value,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::{identifier, name_in_public};
use super::syntax::parse_expression;

/// The name of the derived table that has the rows of a subquery.
pub(crate) const ROWS: &str = "__rows";

/// Rewrites `(a, b) IN (SELECT …)` in the conditions of a SELECT to EXISTS. A condition that is
/// NULL leaves out the same rows as one that is false, so the planner can make it a join.
///
/// # Errors
/// `INVALID_ARGUMENT` for a subquery with another number of columns.
pub(super) fn rewrite_conditions(select: &mut Select) -> Result<()> {
    let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
    let of_joins = joins.filter_map(|join| condition_of(&mut join.join_operator));
    let conditions = of_joins
        .chain(&mut select.selection)
        .chain(&mut select.having)
        .chain(&mut select.qualify);
    for condition in conditions {
        rewrite_condition(condition)?;
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

fn rewrite_condition(condition: &mut Expr) -> Result<()> {
    match condition {
        Expr::Nested(inner) => rewrite_condition(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => {
            rewrite_condition(left)?;
            rewrite_condition(right)
        }
        other => {
            if let Some(membership) = Membership::of(other)? {
                *other = if membership.is_negated {
                    parse_expression(&format!("NOT {}", membership.may_exist()))?
                } else {
                    parse_expression(&membership.exists())?
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
/// with a subquery, and for an order of an array that is not known outside of the subquery.
pub(super) fn rewrite(expression: &mut Expr) -> Result<()> {
    if let Some(membership) = Membership::of(expression)? {
        let (is_in, is_not_in) = if membership.is_negated {
            ("false", "true")
        } else {
            ("true", "false")
        };
        *expression = parse_expression(&format!(
            "CASE WHEN {} THEN {is_in} WHEN {} THEN NULL ELSE {is_not_in} END",
            membership.exists(),
            membership.may_exist()
        ))?;
    } else if let Expr::Function(function) = expression
        && let FunctionArguments::Subquery(rows) = &function.args
        && name_in_public(&function.name).as_deref() == Some("array")
    {
        *expression = parse_expression(&array_of(rows)?)?;
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

    /// Returns the test of whether the row is equal to one of the subquery.
    fn exists(&self) -> String {
        self.exists_where(|field, column| format!("{column} = ({field})"))
    }

    /// Returns the test of whether the row is equal to one of the subquery, or would be if NULLs
    /// had values.
    fn may_exist(&self) -> String {
        self.exists_where(|field, column| {
            format!("({column} = ({field}) OR {column} IS NULL OR ({field}) IS NULL)")
        })
    }

    fn exists_where(&self, condition: impl Fn(&Expr, &str) -> String) -> String {
        if let Some((select, columns)) = plain_columns(&self.rows, &self.fields) {
            let conditions = self.fields.iter().zip(columns);
            let conditions =
                conditions.map(|(field, column)| condition(field, &column.to_string()));
            let own = select.selection.iter().map(|own| format!("({own})"));
            let conditions: Vec<_> = own.chain(conditions).collect();
            let from: Vec<_> = select.from.iter().map(ToString::to_string).collect();
            return format!(
                "EXISTS (SELECT 1 FROM {} WHERE {})",
                from.join(", "),
                conditions.join(" AND ")
            );
        }
        let columns: Vec<_> = (0..self.fields.len())
            .map(|number| format!("\"__column_{number}\""))
            .collect();
        let conditions = self.fields.iter().zip(&columns);
        let conditions: Vec<_> = conditions
            .map(|(field, column)| condition(field, &format!("\"{ROWS}\".{column}")))
            .collect();
        format!(
            "EXISTS (SELECT 1 FROM ({}) AS \"{ROWS}\" ({}) WHERE {})",
            self.rows,
            columns.join(", "),
            conditions.join(" AND ")
        )
    }
}

/// Returns the columns and the FROM of a query that is only a filter of tables. Its conditions may
/// then be joined by those of the rows. If the query reads columns of the outer one, the planner
/// finds a join for conditions in it, but not for conditions around it. Returns `None` if a field
/// of the row could mean a column of the query.
fn plain_columns<'a>(rows: &'a Query, fields: &[Expr]) -> Option<(&'a Select, Vec<&'a Expr>)> {
    let SetExpr::Select(select) = rows.body.as_ref() else {
        return None;
    };
    if !is_filter(rows, select) {
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

/// Returns whether a query has only a FROM, a WHERE and a list of columns, beside an ORDER BY.
fn is_filter(query: &Query, select: &Select) -> bool {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    query.with.is_none()
        && query.limit_clause.is_none()
        && select.distinct.is_none()
        && !is_grouped
        && select.having.is_none()
        && select.qualify.is_none()
}

fn is_column(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
    )
}

fn is_row(expression: &Expr) -> bool {
    matches!(expression, Expr::Tuple(_))
}

/// Returns the number of columns of a query, unless it has a wildcard.
fn columns(query: &Query) -> Option<usize> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => {
                let is_plain = |item: &SelectItem| {
                    matches!(
                        item,
                        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
                    )
                };
                let items = &select.projection;
                return items.iter().all(is_plain).then_some(items.len());
            }
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return None,
        }
    }
}

/// Returns the text of an expression that makes an array of the only column of a query, in the
/// order of the query.
fn array_of(rows: &Query) -> Result<String> {
    if columns(rows).is_some_and(|columns| columns != 1) {
        return Err(
            Error::invalid("the subquery of ARRAY(SELECT …) must have one column")
                .with_sqlstate(SqlState::SyntaxError),
        );
    }
    if let Some(array) = array_in_place(rows) {
        return Ok(array);
    }
    let mut rows = rows.clone();
    let mut columns = vec!["\"__element\"".to_owned()];
    let mut order = Vec::new();
    if let Some(order_by) = &rows.order_by {
        let OrderByKind::Expressions(keys) = &order_by.kind else {
            return Err(unknown_order());
        };
        for key in keys.clone() {
            order.push(order_key(&mut rows, key, &mut columns)?.to_string());
        }
    }
    let order = if order.is_empty() {
        String::new()
    } else {
        format!(" ORDER BY {}", order.join(", "))
    };
    Ok(format!(
        "coalesce((SELECT array_agg(\"{ROWS}\".\"__element\"{order}) FROM ({rows}) AS \"{ROWS}\" ({})), make_array())",
        columns.join(", ")
    ))
}

/// Returns the text of an expression that makes the array within the query itself, without another
/// query around it. The planner finds a join for such a query if it reads columns of the outer one.
/// Returns `None` if the query must be evaluated before.
fn array_in_place(rows: &Query) -> Option<String> {
    let SetExpr::Select(select) = rows.body.as_ref() else {
        return None;
    };
    let [SelectItem::UnnamedExpr(element) | SelectItem::ExprWithAlias { expr: element, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    if !is_filter(rows, select) || !is_column(element) {
        return None;
    }
    let mut keys = Vec::new();
    if let Some(order_by) = &rows.order_by {
        let OrderByKind::Expressions(by) = &order_by.kind else {
            return None;
        };
        for key in by {
            let mut key = key.clone();
            let is_element = match (&key.expr, &select.projection[0]) {
                (Expr::Value(number), _) => is_one(&number.value),
                (Expr::Identifier(name), SelectItem::ExprWithAlias { alias, .. }) => {
                    name.value == alias.value
                }
                _ => false,
            };
            if is_element {
                key.expr = element.clone();
            } else if !is_column(&key.expr) {
                return None;
            }
            keys.push(key.to_string());
        }
    }
    let order = if keys.is_empty() {
        String::new()
    } else {
        format!(" ORDER BY {}", keys.join(", "))
    };
    let aggregate = parse_expression(&format!("array_agg({element}{order})")).ok()?;
    let mut rows = rows.clone();
    rows.order_by = None;
    if let SetExpr::Select(select) = rows.body.as_mut() {
        select.projection = vec![SelectItem::UnnamedExpr(aggregate)];
    }
    Some(format!("coalesce(({rows}), make_array())"))
}

/// Returns the key as it is known outside of the query. A key that is no column of the query
/// becomes one.
fn order_key(
    rows: &mut Query,
    mut key: OrderByExpr,
    columns: &mut Vec<String>,
) -> Result<OrderByExpr> {
    let SetExpr::Select(select) = rows.body.as_mut() else {
        return match &key.expr {
            Expr::Value(number) if is_one(&number.value) => {
                key.expr = parse_expression(&format!("\"{ROWS}\".\"__element\""))?;
                Ok(key)
            }
            _ => Err(unknown_order()),
        };
    };
    let is_element = match (&key.expr, select.projection.first()) {
        (Expr::Value(number), _) if is_one(&number.value) => true,
        (by, Some(SelectItem::UnnamedExpr(element))) => by == element,
        (Expr::Identifier(name), Some(SelectItem::ExprWithAlias { alias, .. })) => {
            name.value == alias.value
        }
        (by, Some(SelectItem::ExprWithAlias { expr, .. })) => by == expr,
        _ => false,
    };
    let column = if is_element {
        "\"__element\"".to_owned()
    } else {
        let is_grouped =
            !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
        if select.distinct.is_some() || is_grouped || matches!(key.expr, Expr::Value(_)) {
            return Err(unknown_order());
        }
        let column = format!("\"__order_{}\"", columns.len());
        let by = SelectItem::UnnamedExpr(key.expr.clone());
        if !select.projection.contains(&by) {
            select.projection.push(by);
            columns.push(column.clone());
        }
        column
    };
    key.expr = parse_expression(&format!("\"{ROWS}\".{column}"))?;
    Ok(key)
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
        ] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
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
                "SELECT x AS z FROM u ORDER BY z DESC LIMIT 2",
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__element" DESC) FROM (SELECT x AS z FROM u ORDER BY z DESC LIMIT 2) AS "__rows" ("__element")"#,
            ),
            (
                "SELECT x + 1 FROM u ORDER BY y, x + 1",
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__order_1", "__rows"."__element") FROM (SELECT x + 1, y FROM u ORDER BY y, x + 1) AS "__rows" ("__element", "__order_1")"#,
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
