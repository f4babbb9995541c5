use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArgumentClause, FunctionArguments, Ident, OrderByExpr, OrderByKind, Query,
    SelectItem, SetExpr, Value,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::derived_rows::{column_of_rows, derived_table};
use super::query_shape::{count_columns, first_select, is_column, is_filter, is_grouped, is_name};
use crate::sql::names::identifier;
use crate::sql::syntax::{call, parse_query};

/// The name of the column of an array's elements.
const ELEMENT: &str = "__element";

/// Returns an expression that makes an array of the only column of a query, in the order of the
/// query.
///
/// # Errors
/// `INVALID_ARGUMENT` for another number of columns, and for an order that is not known outside of
/// the query.
pub(super) fn array_of(rows: &Query) -> Result<Expr> {
    if count_columns(rows).is_some_and(|columns| columns != 1) {
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
