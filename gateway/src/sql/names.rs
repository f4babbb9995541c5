use std::fmt;

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use volary_catalog::{PUBLIC_SCHEMA, RelationName};
use volary_flight_proto::{Error, Result, SqlState};

/// Name of the only catalog.
pub(crate) const CATALOG: &str = "volary";
/// Name of the schema that users' tables and views are in if neither the statement nor the session
/// names another one.
pub(crate) const PUBLIC: &str = PUBLIC_SCHEMA;
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

/// Returns whether the schema belongs to the cluster, so that users create nothing in it.
pub(crate) fn is_cluster_schema(schema: &str) -> bool {
    [SYSTEM, INFORMATION_SCHEMA].contains(&schema)
}

/// The name of a table, a view or a saved query as a statement writes it: with or without its
/// schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenName {
    schema: Option<String>,
    name: String,
}

impl WrittenName {
    /// Creates a name. `None` as schema stands for the current schema of the session.
    pub(crate) fn new(schema: Option<String>, name: String) -> Self {
        Self { schema, name }
    }

    /// Reads a name from a statement.
    ///
    /// # Errors
    /// `NOT_FOUND` for another catalog. `INVALID_ARGUMENT` for a name with too many parts.
    pub(crate) fn of_object(name: &ObjectName) -> Result<Self> {
        match parts(name).as_deref() {
            Some([table]) => Ok(Self::new(None, table.clone())),
            Some([schema, table]) => Ok(Self::new(Some(schema.clone()), table.clone())),
            Some([catalog, schema, table]) => {
                check_catalog(catalog)?;
                Ok(Self::new(Some(schema.clone()), table.clone()))
            }
            _ => Err(Error::invalid(format!(
                "{name} is no name of a table; write table, schema.table or {CATALOG}.schema.table"
            ))),
        }
    }

    /// Reads a name that DataFusion has read from a statement.
    ///
    /// # Errors
    /// `NOT_FOUND` for another catalog.
    pub(crate) fn of_reference(reference: &TableReference) -> Result<Self> {
        if let Some(catalog) = reference.catalog() {
            check_catalog(catalog)?;
        }
        let schema = reference.schema().map(str::to_owned);
        Ok(Self::new(schema, reference.table().to_owned()))
    }

    /// Returns the name within the schema.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the schema, if the statement writes one.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the full name. `current` is the schema of names that are written without one.
    pub(crate) fn in_schema(&self, current: &str) -> RelationName {
        let schema = self.schema.as_deref().unwrap_or(current);
        RelationName::new(schema, self.name.as_str())
    }

    /// Returns the name as a reference for DataFusion.
    pub(crate) fn to_reference(&self) -> TableReference {
        match &self.schema {
            Some(schema) => TableReference::partial(schema.as_str(), self.name.as_str()),
            None => TableReference::bare(self.name.as_str()),
        }
    }
}

impl fmt::Display for WrittenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        f.write_str(&self.name)
    }
}

/// Returns the name of a schema, which may have the name of the catalog before it.
///
/// # Errors
/// `NOT_FOUND` for another catalog. `INVALID_ARGUMENT` for a name with too many parts.
pub(crate) fn schema_name(name: &ObjectName) -> Result<String> {
    match parts(name).as_deref() {
        Some([schema]) => Ok(schema.clone()),
        Some([catalog, schema]) => {
            check_catalog(catalog)?;
            Ok(schema.clone())
        }
        _ => Err(Error::invalid(format!(
            "{name} is no name of a schema; write schema or {CATALOG}.schema"
        ))),
    }
}

/// Returns the name of a function or a variable. Functions count as functions of the schema
/// `public`. Returns `None` for a name in another schema.
pub(crate) fn name_in_public(name: &ObjectName) -> Option<String> {
    match parts(name)?.as_slice() {
        [function] => Some(function.clone()),
        [schema, function] if schema == PUBLIC => Some(function.clone()),
        [catalog, schema, function] if catalog == CATALOG && schema == PUBLIC => {
            Some(function.clone())
        }
        _ => None,
    }
}

/// Returns the name that a CTE must have so that it is meant. Returns `None` for a name that is
/// written with a schema, which is never a CTE.
pub(crate) fn cte_name(name: &ObjectName) -> Option<String> {
    match parts(name)?.as_slice() {
        [name] => Some(name.clone()),
        _ => None,
    }
}

/// Refuses a catalog that does not exist.
///
/// # Errors
/// `NOT_FOUND`.
pub(crate) fn check_catalog(catalog: &str) -> Result<()> {
    if catalog == CATALOG {
        return Ok(());
    }
    Err(Error::not_found(format!(
        "there is no catalog {catalog}; the only one is {CATALOG}"
    ))
    .with_sqlstate(SqlState::InvalidCatalogName))
}

/// Returns the parts of a name. Returns `None` if a part is no identifier.
fn parts(name: &ObjectName) -> Option<Vec<String>> {
    let parts = name.0.iter();
    parts.map(|part| part.as_ident().map(identifier)).collect()
}
