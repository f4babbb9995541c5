//! DataFusion 55 compares a subquery with one column only, and has no `ARRAY(SELECT …)`. Both are
//! rewritten to what it plans.

/// Makes arrays of the rows of a subquery.
mod array;
/// Makes derived tables of the rows of a subquery.
mod derived_rows;
/// Tells what the query of a subquery consists of.
mod query_shape;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, JoinConstraint, JoinOperator, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::{identifier, name_in_public};
use super::syntax::{binary, nested, parse_expression, parse_query};
use super::visit::{QueryVisitor, visit_node};
use array::array_of;
pub(crate) use derived_rows::ROWS;
use derived_rows::{column_of_rows, derived_table};
use query_shape::{count_columns, is_column, is_filter};

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
        if let Some(columns) = count_columns(rows)
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

fn is_row(expression: &Expr) -> bool {
    matches!(expression, Expr::Tuple(_))
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
                r#"array_agg("__rows"."__element" ORDER BY "__rows"."__order_1", "__rows"."__element") FROM (SELECT x + 1, y FROM u ORDER BY y, 1) AS "__rows" ("__element", "__order_1")"#,
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
