use std::borrow::Cow;

use volary_catalog::{CatalogState, RelationName, TEMPORARY_SCHEMA};
use volary_flight_proto::ids::SessionId;

use super::names::WrittenName;

/// Begins the name that stands for a search path where DataFusion wants the name of a schema. Users
/// cannot create a schema with such a name.
const BEFORE_SCHEMA: &str = "pg_temp, ";

/// Says in which schemas names are looked up: first among the temporary tables of a session, as in
/// PostgreSQL, and then in the current schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchPath {
    schema: String,
    session: Option<SessionId>,
}

impl SearchPath {
    /// Creates a search path. `schema` is the current schema. `session` is the session whose
    /// temporary tables are found, or `None` if none are.
    pub(crate) fn new(schema: impl Into<String>, session: Option<SessionId>) -> Self {
        Self {
            schema: schema.into(),
            session,
        }
    }

    /// Returns the current schema, in which names without a schema are created.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the session whose temporary tables are found.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns the full name of the table or view that is meant.
    pub(crate) fn find(&self, catalog: &CatalogState, name: &WrittenName) -> RelationName {
        let elsewhere = || name.in_schema(&self.schema);
        let Some(session) = self.session else {
            return elsewhere();
        };
        let temporary = RelationName::temporary(session, name.name());
        match name.schema() {
            Some(TEMPORARY_SCHEMA) => temporary,
            None if catalog.version_of(&temporary).is_some() => temporary,
            _ => elsewhere(),
        }
    }

    /// Returns the full name that a table or view gets that is created under this name.
    pub(crate) fn place(&self, name: &WrittenName) -> RelationName {
        match (self.session, name.schema()) {
            (Some(session), Some(TEMPORARY_SCHEMA)) => {
                RelationName::temporary(session, name.name())
            }
            _ => name.in_schema(&self.schema),
        }
    }

    /// Returns what DataFusion takes for the name of the current schema. It differs from the
    /// current schema only if the session has temporary tables.
    pub(crate) fn planned_schema(&self, catalog: &CatalogState) -> Cow<'_, str> {
        match self.session {
            Some(session) if catalog.has_temporary(session) => {
                Cow::Owned(format!("{BEFORE_SCHEMA}{}", self.schema))
            }
            _ => Cow::Borrowed(&self.schema),
        }
    }
}

/// Returns the current schema of a search path that is written as the name of a schema. Returns
/// `None` if this is the name of a schema.
pub(crate) fn schema_behind_temporary(planned_schema: &str) -> Option<&str> {
    planned_schema.strip_prefix(BEFORE_SCHEMA)
}

/// Returns a message of DataFusion in which each search path is only the current schema.
pub(crate) fn with_current_schema(message: &str) -> String {
    message.replace(BEFORE_SCHEMA, "")
}
