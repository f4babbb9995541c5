use std::sync::Arc;

use volary_catalog::access::Privilege;
use volary_catalog::{RelationName, Table};
use volary_flight_proto::{Error, Result, SqlState};

use crate::engine::context::StatementContext;
use crate::sql::names::is_cluster_schema;

/// Returns a table in which keys can be looked up, and the position of its shard key.
///
/// # Errors
/// `NOT_FOUND` if it does not exist, `PERMISSION_DENIED` if the user may not read it, and
/// `INVALID_ARGUMENT` if it has no shard key.
pub(super) fn find_table(
    context: &StatementContext,
    name: &RelationName,
) -> Result<(Arc<Table>, usize)> {
    let without_key = |what: &str| {
        Error::invalid(format!(
            "keys cannot be looked up in \"{name}\", because {what}; query it with SELECT"
        ))
    };
    if is_cluster_schema(name.schema()) {
        return Err(without_key("the tables of this schema have no shard key"));
    }
    let catalog = &context.catalog;
    catalog.check_privilege(Privilege::Select, name, &context.rights)?;
    let table = catalog
        .table(name)
        .ok_or_else(|| without_key("it is a view, which has no shard key"))?;
    match table.shard_key() {
        Some(key) => Ok((Arc::clone(table), key)),
        None if table.is_reference() => Err(without_key(
            "it is a reference table, which has no shard key",
        )),
        None => Err(without_key("the table has no shard key")),
    }
}

/// Returns the positions of the columns with these names, or of all columns if there are no names.
///
/// # Errors
/// `NOT_FOUND` for a column that does not exist. `INVALID_ARGUMENT` for one that is named twice.
pub(super) fn find_columns(table: &Table, names: &[String]) -> Result<Vec<usize>> {
    let columns = table.schema().fields();
    if names.is_empty() {
        return Ok((0..columns.len()).collect());
    }
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let Some((position, _)) = columns.find(name) else {
            let known: Vec<_> = columns
                .iter()
                .map(|column| column.name().as_str())
                .collect();
            return Err(Error::not_found(format!(
                "table \"{}\" has no column \"{name}\"; it has {}",
                table.name(),
                known.join(", ")
            ))
            .with_sqlstate(SqlState::UndefinedColumn));
        };
        if found.contains(&position) {
            return Err(Error::invalid(format!(
                "column \"{name}\" is asked for twice; name it once"
            ))
            .with_sqlstate(SqlState::DuplicateColumn));
        }
        found.push(position);
    }
    Ok(found)
}
