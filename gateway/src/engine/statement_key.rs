//! What is kept of a statement, such as its generic plan, is found again by the statement's text
//! and by everything else that decides how it is planned.

use std::sync::Arc;

use volary_catalog::CatalogState;
use volary_catalog::access::Rights;

use super::Session;
use super::context::StatementContext;

/// A statement, with the settings and rights that it is planned with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StatementKey {
    sql: String,
    scope: Arc<PlanningScope>,
}

/// The settings and rights that a statement is planned with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PlanningScope {
    /// The user of the statement. `None` for users who may do everything.
    user: Option<String>,
    settings: Vec<(String, String)>,
    /// The limit for the memory of each query of the user, in bytes, if the user has one.
    query_memory: Option<u64>,
    /// The [number](CatalogState::temporary_names) of the temporary tables that the session has.
    temporary_names: Option<u64>,
}

impl StatementKey {
    /// Creates the key of a statement of this session, whose user has these rights.
    pub(super) fn new(
        session: &Session,
        catalog: &CatalogState,
        rights: &Rights,
        sql: &str,
    ) -> Self {
        Self {
            sql: sql.to_owned(),
            scope: Arc::new(PlanningScope::new(session, catalog, rights)),
        }
    }

    /// Returns the text of the statement.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the size of the key's text and settings, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let settings = self.scope.settings.iter();
        let settings: usize = settings.map(|(name, value)| name.len() + value.len()).sum();
        self.sql.len() + settings
    }

    /// Returns whether the statement has this key in a context that was created after the key.
    /// Another call of the session may have changed settings or temporary tables meanwhile.
    pub(super) fn is_of(&self, session: &Session, context: &StatementContext) -> bool {
        *self.scope == PlanningScope::new(session, &context.catalog, &context.rights)
    }

    /// Returns the key of another statement with the same settings and rights.
    pub(super) fn of_other(&self, sql: String) -> Self {
        Self {
            sql,
            scope: Arc::clone(&self.scope),
        }
    }
}

impl PlanningScope {
    fn new(session: &Session, catalog: &CatalogState, rights: &Rights) -> Self {
        let mut settings: Vec<_> = session.settings().into_iter().collect();
        settings.sort_unstable();
        Self {
            user: (!rights.is_unrestricted()).then(|| rights.user().to_owned()),
            settings,
            query_memory: rights.limits().query_memory,
            temporary_names: session
                .temporary_session()
                .and_then(|session| catalog.temporary_names(session)),
        }
    }
}
