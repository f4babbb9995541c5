use datafusion::sql::sqlparser::ast::Statement as Ast;
use volary_flight_proto::{Error, Result};

use super::names::WrittenName;

/// Returns the table of an OPTIMIZE, or `None` if the statement is not an OPTIMIZE.
///
/// # Errors
/// `INVALID_ARGUMENT` for clauses of other systems.
pub(super) fn convert(statement: &Ast) -> Result<Option<WrittenName>> {
    let Ast::OptimizeTable {
        name,
        has_table_keyword: _,
        // ClickHouse's FINAL asks for what is done here anyway.
        include_final: _,
        on_cluster,
        partition,
        deduplicate,
        predicate,
        zorder,
    } = statement
    else {
        return Ok(None);
    };
    let clauses = [
        ("ON CLUSTER", on_cluster.is_some()),
        ("PARTITION", partition.is_some()),
        ("DEDUPLICATE", deduplicate.is_some()),
        ("WHERE", predicate.is_some()),
        ("ZORDER BY", zorder.is_some()),
    ];
    if let Some((clause, _)) = clauses.iter().find(|(_, is_there)| *is_there) {
        return Err(Error::unsupported(format!(
            "OPTIMIZE with {clause} is not supported; write OPTIMIZE and the name of a table"
        )));
    }
    WrittenName::of_object(name).map(Some)
}
