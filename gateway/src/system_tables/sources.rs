use std::collections::BTreeSet;
use std::sync::Arc;

use volary_catalog::access::{PrincipalRecord, Rights};
use volary_catalog::{CatalogState, Table};
use volary_flight_proto::ids::SessionId;

use super::LimitUsageSources;
use crate::cluster::Cluster;
use crate::load::LoadRegistry;
use crate::statements::Statements;

/// The sources of the rows of all tables, and the rights of the user who reads the tables. A table
/// shows only what these rights allow.
#[derive(Debug)]
pub(super) struct SystemTableSources {
    pub(super) cluster: Arc<Cluster>,
    pub(super) loads: LoadRegistry,
    pub(super) statements: Arc<Statements>,
    pub(super) usage: Arc<LimitUsageSources>,
    /// The catalog as of the start of the statement.
    pub(super) catalog: Arc<CatalogState>,
    pub(super) rights: Arc<Rights>,
    /// The session whose temporary tables are shown.
    pub(super) session: Option<SessionId>,
}

impl SystemTableSources {
    /// Returns the tables that the user may see.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let temporary = self.session.map(|it| self.catalog.temporary_tables(it));
        let tables = self.catalog.tables();
        let tables = tables.chain(temporary.into_iter().flatten());
        tables.filter(move |table| self.rights.may_see(table.name(), table.owner()))
    }

    /// Returns the users and roles that the user may see: all of them for an administrator,
    /// otherwise the user itself and its roles.
    pub(super) fn principals(&self) -> impl Iterator<Item = &Arc<PrincipalRecord>> {
        let (access, rights) = (self.catalog.access(), &self.rights);
        let mut own: BTreeSet<&str> = access.roles_of(rights.user());
        if let Some(user) = access.user(rights.user()) {
            own.insert(&user.name);
        }
        let is_shown = move |principal: &&Arc<PrincipalRecord>| {
            rights.is_unrestricted() || own.contains(principal.name.as_str())
        };
        access.principals().filter(is_shown)
    }
}
