//! Holds what the rows of system tables are made from.

use std::collections::BTreeSet;
use std::sync::Arc;

use volary_catalog::access::{PrincipalRecord, Rights};
use volary_catalog::{State, Table};

use super::Usage;
use crate::cluster::Cluster;
use crate::load::Loads;
use crate::statements::Statements;

/// The sources of rows, and the rights of the user who reads them. A table shows only what these
/// rights allow.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) cluster: Arc<Cluster>,
    pub(super) loads: Loads,
    pub(super) statements: Arc<Statements>,
    pub(super) usage: Arc<Usage>,
    /// The catalog as of the start of the statement.
    pub(super) catalog: Arc<State>,
    pub(super) rights: Arc<Rights>,
}

impl Sources {
    /// Returns the tables that the user may see.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let tables = self.catalog.tables();
        tables.filter(move |table| self.rights.sees(table.name(), table.owner()))
    }

    /// Returns the users and roles that the user may see: all of them for an administrator, and
    /// else the user itself and its roles.
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
