use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use volary_flight_proto::{Error, Result};

/// Name of the only catalog.
pub(crate) const CATALOG: &str = "volary";
/// Name of the schema of users' tables and views.
pub(crate) const PUBLIC: &str = "public";
/// Name of the schema of tables about the cluster.
pub(crate) const SYSTEM: &str = "system";
/// Name of DataFusion's own schema.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// Returns the name that an identifier stands for. A name without quotes becomes lower case.
pub(crate) fn identifier(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        // DataFusion folds names in the same way: letters that are not ASCII stay as they are.
        None => identifier.value.to_ascii_lowercase(),
    }
}

/// Returns the name of a table in the schema `public`.
///
/// # Errors
/// `INVALID_ARGUMENT` for another schema or catalog.
pub(crate) fn object_name(name: &ObjectName) -> Result<String> {
    let parts: Option<Vec<String>> = name
        .0
        .iter()
        .map(|part| part.as_ident().map(identifier))
        .collect();
    match parts.as_deref() {
        Some([table]) => Ok(table.clone()),
        Some([schema, table]) if schema == PUBLIC => Ok(table.clone()),
        Some([catalog, schema, table]) if catalog == CATALOG && schema == PUBLIC => {
            Ok(table.clone())
        }
        _ => Err(Error::invalid(format!(
            "{name}: tables can be only in the schema {PUBLIC}; write the name without a schema"
        ))),
    }
}
