use std::collections::BTreeSet;
use std::sync::Arc;

use volary_flight_proto::ids::SessionId;
use volary_flight_proto::ticket::fingerprint;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Catalog;
use super::draft::Draft;
use super::relation_name::RelationName;
use super::state::CatalogState;
use super::table::{Table, View};

/// Number of users who reach the limits of all sessions together, if each has as much as one user
/// may have. As long as there are no users, each session counts as a user.
const USERS_AT_LIMIT: usize = 4;

/// Limits for the temporary tables and views of all sessions together. Also says how much of the
/// limits they use ([`CatalogState::temporary_usage`]).
#[derive(Debug, Clone, Copy)]
pub struct TemporaryLimits {
    /// Number of temporary tables and views. One user may have a quarter of the maximum.
    pub tables: usize,
    /// Size of the rows of temporary tables, in bytes. One user may have a quarter of the maximum.
    pub bytes: u64,
}

impl Default for TemporaryLimits {
    /// Returns limits that nothing exceeds.
    fn default() -> Self {
        Self {
            tables: usize::MAX,
            bytes: u64::MAX,
        }
    }
}

impl TemporaryLimits {
    /// Returns how many temporary tables and views one user may have.
    pub fn tables_of_user(self) -> usize {
        self.tables.div_ceil(USERS_AT_LIMIT)
    }

    /// Returns how many bytes the temporary tables of one user may take.
    pub fn bytes_of_user(self) -> u64 {
        self.bytes.div_ceil(USERS_AT_LIMIT as u64)
    }

    /// Refuses another temporary table or view if there are as many as there may be. Other tables
    /// have no such limit.
    pub(super) fn check_room(
        self,
        state: &CatalogState,
        name: &RelationName,
        owner: Option<&str>,
    ) -> Result<()> {
        if !name.is_temporary() {
            return Ok(());
        }
        if self.tables == 0 {
            return Err(Error::unsupported(format!(
                "\"{name}\" cannot be created: this gateway has no temporary tables (gateway.temporary_tables.max_tables = 0)"
            )));
        }
        let (mut all, mut own) = (0, 0);
        for (other, owner_of_other) in temporary_relations(state) {
            all += 1;
            own += usize::from(is_of_same_user((name, owner), (other, owner_of_other)));
        }
        let (count, whose, limit) = if own >= self.tables_of_user() {
            (own, "the user", self.tables_of_user())
        } else if all >= self.tables {
            (all, "all sessions together", self.tables)
        } else {
            return Ok(());
        };
        Err(exhausted(format!(
            "\"{name}\" cannot be created: {whose} may have {limit} temporary tables and views, and there are {count} (gateway.temporary_tables.max_tables); drop some, or close sessions that are no longer needed"
        )))
    }

    /// Refuses a write that makes the rows of temporary tables take more space than they may.
    /// `before` and `after` are the table that is written to.
    pub(super) fn check_bytes(
        self,
        state: &CatalogState,
        before: &Table,
        after: &Table,
    ) -> Result<()> {
        let name = after.name();
        if !name.is_temporary() {
            return Ok(());
        }
        let written = after.statistics().bytes;
        let (mut all, mut own) = (written, written);
        let tables = state
            .all_tables()
            .filter(|other| other.name().is_temporary());
        for other in tables.filter(|other| other.id() != before.id()) {
            let bytes = other.statistics().bytes;
            all = all.saturating_add(bytes);
            if is_of_same_user((name, after.owner()), (other.name(), other.owner())) {
                own = own.saturating_add(bytes);
            }
        }
        let (bytes, whose, limit) = if own > self.bytes_of_user() {
            (own, "the user", self.bytes_of_user())
        } else if all > self.bytes {
            (all, "all sessions together", self.bytes)
        } else {
            return Ok(());
        };
        Err(exhausted(format!(
            "table \"{name}\": temporary tables of {whose} may take {limit} bytes, and with these rows they would take {bytes} (gateway.temporary_tables.max_size); drop some, or close sessions that are no longer needed"
        )))
    }
}

impl Catalog {
    /// Returns the catalog with limits for temporary tables.
    #[must_use]
    pub fn with_temporary_limits(self, temporary_limits: TemporaryLimits) -> Self {
        Self {
            temporary_limits,
            ..self
        }
    }

    /// Drops all temporary tables and views of these sessions. Returns the dropped tables.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn drop_temporary(&self, sessions: BTreeSet<SessionId>) -> Result<Vec<Arc<Table>>> {
        self.change_with_ballast(move |draft| {
            Ok(drop_if(draft, |name, _| {
                name.session()
                    .is_some_and(|session| sessions.contains(&session))
            }))
        })
        .await
    }
}

impl CatalogState {
    /// Returns the temporary tables of a session, ordered by name, without those that are still
    /// being created.
    pub fn temporary_tables(&self, session: SessionId) -> impl Iterator<Item = &Arc<Table>> {
        let first = RelationName::temporary(session, "");
        let names = self.table_names.range(first..).map(|(name, _)| name);
        names
            .take_while(move |name| name.session() == Some(session))
            .filter_map(|name| self.table(name))
    }

    /// Returns the temporary views of a session, ordered by name.
    pub fn temporary_views(&self, session: SessionId) -> impl Iterator<Item = &Arc<View>> {
        let first = RelationName::temporary(session, "");
        let views = self.views.range(first..).map(|(_, view)| view);
        views.take_while(move |view| view.name().session() == Some(session))
    }

    /// Returns whether a session has temporary tables or views.
    pub fn has_temporary(&self, session: SessionId) -> bool {
        self.temporary_tables(session).next().is_some()
            || self.temporary_views(session).next().is_some()
    }

    /// Returns a number that distinguishes sets of names of a session's temporary tables and views.
    /// Returns `None` if the session has none. Names mean something else when the set changes.
    pub fn temporary_names(&self, session: SessionId) -> Option<u64> {
        let tables = self.temporary_tables(session).map(|it| it.name().name());
        let views = self.temporary_views(session).map(|it| it.name().name());
        // No name has a line break.
        let names: Vec<_> = tables.chain(views).collect();
        (!names.is_empty()).then(|| fingerprint(&format!("{session}\n{}", names.join("\n"))))
    }

    /// Returns what the temporary tables and views of all sessions take.
    pub fn temporary_usage(&self) -> TemporaryLimits {
        let tables = self.all_tables().filter(|it| it.name().is_temporary());
        TemporaryLimits {
            tables: temporary_relations(self).count(),
            bytes: tables.map(|table| table.statistics().bytes).sum(),
        }
    }

    /// Returns the sessions that have temporary tables or views, including tables that are still
    /// being created.
    pub fn sessions_with_temporary(&self) -> BTreeSet<SessionId> {
        let names = temporary_relations(self).map(|(name, _)| name);
        names.filter_map(RelationName::session).collect()
    }
}

/// Drops all temporary tables and views.
pub(super) fn drop_all(draft: &mut Draft) {
    drop_if(draft, |_, _| true);
}

/// Drops the temporary tables and views of a user who is dropped.
pub(super) fn drop_owned(draft: &mut Draft, owner: &str) {
    drop_if(draft, |_, other| other == Some(owner));
}

fn drop_if(
    draft: &mut Draft,
    is_dropped: impl Fn(&RelationName, Option<&str>) -> bool,
) -> Vec<Arc<Table>> {
    let is_dropped = |name: &RelationName, owner| name.is_temporary() && is_dropped(name, owner);
    let tables = draft.state().all_tables();
    let tables: Vec<_> = tables
        .filter(|table| is_dropped(table.name(), table.owner()))
        .cloned()
        .collect();
    let views = draft.state().views.values();
    let views: Vec<_> = views
        .filter(|view| is_dropped(view.name(), view.owner()))
        .map(|view| view.name().clone())
        .collect();
    for table in &tables {
        draft.remove_table(table);
    }
    for view in views {
        draft.remove_view(&view);
    }
    tables
}

/// Returns the names and owners of all temporary tables and views.
fn temporary_relations(
    state: &CatalogState,
) -> impl Iterator<Item = (&RelationName, Option<&str>)> {
    let tables = state.all_tables().map(|it| (it.name(), it.owner()));
    let views = state.views.values().map(|it| (it.name(), it.owner()));
    tables.chain(views).filter(|(name, _)| name.is_temporary())
}

fn is_of_same_user(
    (name, owner): (&RelationName, Option<&str>),
    (other, owner_of_other): (&RelationName, Option<&str>),
) -> bool {
    match owner {
        Some(_) => owner == owner_of_other,
        None => owner_of_other.is_none() && name.session() == other.session(),
    }
}

fn exhausted(what: String) -> Error {
    Error::new(ErrorCode::ResourceExhausted, what)
}
