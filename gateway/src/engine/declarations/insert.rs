use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Insert, ObjectName, Query, SetExpr, TableObject, Value, Values,
};
use volary_catalog::{CatalogState, Table};
use volary_flight_proto::Result;

use crate::sql::names::{WrittenName, identifier};
use crate::sql::search_path::SearchPath;
use crate::sql::syntax::{parse_expression, parse_query};

/// Adds the columns that the INSERT leaves out and that have defaults. Replaces DEFAULT within
/// VALUES, and DEFAULT VALUES, by the defaults. `path` says where the table is looked up. If the
/// rows come from a query, returns the expressions that have to be selected behind the columns of
/// the query.
///
/// # Errors
/// `DATA_LOSS` if a default in the catalog cannot be parsed.
pub(in crate::engine) fn fill_in(
    catalog: &CatalogState,
    path: &SearchPath,
    insert: &mut Insert,
) -> Result<Vec<Expr>> {
    let Some(table) = target(catalog, path, insert) else {
        return Ok(Vec::new());
    };
    if insert.source.is_none() && insert.columns.is_empty() && insert.assignments.is_empty() {
        // INSERT INTO t DEFAULT VALUES.
        insert.source = Some(parse_query("VALUES (DEFAULT)")?);
        insert.columns = vec![column_name(table, 0)];
    }
    let listed = listed_columns(table, insert);
    let mut added = Vec::new();
    if !insert.columns.is_empty() {
        for column in table.declarations().defaults.keys() {
            if !listed.contains(&Some(*column)) {
                insert.columns.push(column_name(table, *column));
                added.push(default_of(table, Some(*column))?);
            }
        }
    }
    let Some(rows) = insert.source.as_mut().and_then(values_of) else {
        return Ok(added);
    };
    for row in &mut rows.rows {
        for (item, column) in row.content.iter_mut().zip(&listed) {
            if is_default(item) {
                *item = default_of(table, *column)?;
            }
        }
        // A row of another length stays wrong, so that the planner refuses it.
        row.content.extend(added.iter().cloned());
    }
    Ok(Vec::new())
}

fn target<'a>(catalog: &'a CatalogState, path: &SearchPath, insert: &Insert) -> Option<&'a Table> {
    let TableObject::TableName(name) = &insert.table else {
        return None;
    };
    let name = path.find(catalog, &WrittenName::of_object(name).ok()?);
    let table = catalog.table(&name)?;
    Some(table.as_ref())
}

/// Returns the positions of the columns that get the items of a row. `None` for a column that the
/// table does not have; the planner refuses it.
fn listed_columns(table: &Table, insert: &Insert) -> Vec<Option<usize>> {
    if insert.columns.is_empty() {
        return (0..table.schema().fields().len()).map(Some).collect();
    }
    let position = |name: &ObjectName| {
        let name = identifier(name.0.last()?.as_ident()?);
        table.schema().index_of(&name).ok()
    };
    insert.columns.iter().map(position).collect()
}

fn column_name(table: &Table, column: usize) -> ObjectName {
    let name = table.schema().field(column).name();
    ObjectName::from(Ident::with_quote('"', name))
}

/// Returns the default of a column, or NULL if it has none.
fn default_of(table: &Table, column: Option<usize>) -> Result<Expr> {
    match column.and_then(|column| table.declarations().defaults.get(&column)) {
        Some(text) => Ok(Expr::Nested(Box::new(parse_expression(text)?))),
        None => Ok(Expr::Value(Value::Null.into())),
    }
}

fn values_of(query: &mut Box<Query>) -> Option<&mut Values> {
    match query.body.as_mut() {
        SetExpr::Values(values) => Some(values),
        _ => None,
    }
}

fn is_default(item: &Expr) -> bool {
    matches!(item, Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}
