use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SetExpr, TableFactor, TableWithJoins};
use volary_flight_proto::{Error, Result};

use crate::sql::syntax::parse_query;

/// The name of the derived table that has the rows of a subquery.
pub(crate) const ROWS: &str = "__rows";

/// Returns the FROM of a derived table that has the rows of a query, and columns of these names.
///
/// # Errors
/// `INTERNAL` if the names cannot be parsed.
pub(super) fn derived_table(rows: Query, names: &[String]) -> Result<Vec<TableWithJoins>> {
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
pub(super) fn column_of_rows(name: &str) -> Expr {
    let parts = [ROWS, name].map(|part| Ident::with_quote('"', part));
    Expr::CompoundIdentifier(parts.to_vec())
}
