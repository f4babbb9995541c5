/// Creates, changes and drops users, roles and tokens, and grants and revokes privileges.
mod changes;
/// Defines the limits of what a user may use at once.
mod limits;
/// Defines the records of users, roles and tokens in the catalog.
mod records;
/// Represents the rights of a user.
mod rights;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use changes::{Grant, MAX_NAME_BYTES, NewPrincipal, PrincipalChange};
pub use limits::{LimitChange, LimitChanges, UserLimits};
pub use records::{PrincipalKind, PrincipalRecord, TokenRecord};
pub use rights::{GrantObject, Privilege, Rights};

use volary_flight_proto::{Error, ErrorCode, Result};

/// Name of the role that everybody has.
pub(crate) const PUBLIC_ROLE: &str = "public";

/// Users, roles and tokens as of one state of the catalog. If two states share one `Access`, every
/// user has the same rights in both.
#[derive(Debug, Clone, Default)]
pub struct Access {
    principals: BTreeMap<String, Arc<PrincipalRecord>>,
    tokens: BTreeMap<String, Arc<TokenRecord>>,
    /// The tokens by the hash of their text.
    tokens_by_hash: HashMap<String, Arc<TokenRecord>>,
    /// The owner of each schema that has one.
    schema_owners: BTreeMap<String, String>,
    /// The rights of each user and role, by name.
    rights: HashMap<String, Arc<Rights>>,
}

impl Access {
    pub(super) fn new(
        principals: impl IntoIterator<Item = PrincipalRecord>,
        tokens: impl IntoIterator<Item = TokenRecord>,
        schema_owners: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let mut access = Self {
            principals: principals
                .into_iter()
                .map(|principal| (principal.name.clone(), Arc::new(principal)))
                .collect(),
            tokens: tokens
                .into_iter()
                .map(|token| (token.name.clone(), Arc::new(token)))
                .collect(),
            schema_owners: schema_owners.into_iter().collect(),
            ..Self::default()
        };
        access.refresh();
        access
    }

    /// Returns whether the cluster has users, in which case callers must log in.
    pub fn has_users(&self) -> bool {
        self.users().next().is_some()
    }

    /// Returns all users and roles, ordered by name.
    pub fn principals(&self) -> impl Iterator<Item = &Arc<PrincipalRecord>> {
        self.principals.values()
    }

    /// Returns all users, ordered by name.
    pub fn users(&self) -> impl Iterator<Item = &Arc<PrincipalRecord>> {
        let is_user = |it: &&Arc<PrincipalRecord>| it.kind == PrincipalKind::User;
        self.principals.values().filter(is_user)
    }

    /// Returns a user by name.
    pub fn user(&self, name: &str) -> Option<&Arc<PrincipalRecord>> {
        let principal = self.principals.get(name)?;
        (principal.kind == PrincipalKind::User).then_some(principal)
    }

    /// Returns all tokens, ordered by name.
    pub fn tokens(&self) -> impl Iterator<Item = &Arc<TokenRecord>> {
        self.tokens.values()
    }

    /// Returns a token by the hash of the text that the client sent.
    pub fn token_by_hash(&self, hash: &str) -> Option<&Arc<TokenRecord>> {
        self.tokens_by_hash.get(hash)
    }

    /// Returns the rights of a user or role, or `None` if it does not exist.
    pub fn rights(&self, name: &str) -> Option<&Arc<Rights>> {
        self.rights.get(name)
    }

    /// Returns the current rights of the user who had the rights `then` when the call began. A long
    /// call must not keep rights that were revoked since it began.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the user was dropped, if its password changed, or if the cluster got
    /// its first users after the call began.
    pub fn current_rights(&self, then: &Arc<Rights>) -> Result<Arc<Rights>> {
        if then.is_of_gateway() || (then.is_of_open_cluster() && !self.has_users()) {
            return Ok(Arc::clone(then));
        }
        let rights = self.rights(then.user());
        rights
            .filter(|rights| !then.is_of_open_cluster() && rights.generation() == then.generation())
            .cloned()
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::Unauthenticated,
                    "since the call began, its user was dropped or got a new password, or the cluster got its first user; log in again",
                )
            })
    }

    /// Returns all roles of a user or role, direct and indirect, including the role that everybody
    /// has.
    pub fn roles_of<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        self.collect_roles([name, PUBLIC_ROLE], name)
    }

    /// Returns the roles that were granted to a user or role, directly or through another role.
    fn granted_roles_of<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        self.collect_roles([name], name)
    }

    fn collect_roles<'a>(
        &'a self,
        begin: impl IntoIterator<Item = &'a str>,
        name: &str,
    ) -> BTreeSet<&'a str> {
        let mut roles = BTreeSet::new();
        let mut pending: Vec<&str> = begin.into_iter().collect();
        while let Some(next) = pending.pop() {
            let Some(principal) = self.principals.get(next) else {
                continue;
            };
            if roles.insert(principal.name.as_str()) {
                pending.extend(principal.member_of.iter().map(String::as_str));
            }
        }
        roles.remove(name);
        roles
    }

    /// Returns the users and roles that have a grant on a dropped object, without these grants.
    pub(super) fn principals_without_grants_on(
        &self,
        is_dropped: impl Fn(&GrantObject) -> bool,
    ) -> Vec<PrincipalRecord> {
        let granted = |it: &&Arc<PrincipalRecord>| it.grants.keys().any(&is_dropped);
        let without = |principal: &Arc<PrincipalRecord>| {
            let mut principal = principal.as_ref().clone();
            principal.grants.retain(|object, _| !is_dropped(object));
            principal
        };
        self.principals
            .values()
            .filter(granted)
            .map(without)
            .collect()
    }

    pub(super) fn put_principal(&mut self, principal: Arc<PrincipalRecord>) {
        self.principals.insert(principal.name.clone(), principal);
        self.refresh();
    }

    pub(super) fn remove_principal(&mut self, name: &str) {
        self.principals.remove(name);
        self.refresh();
    }

    /// Sets the owner of a schema. `None` means that it has no owner, or was dropped.
    pub(super) fn set_schema_owner(&mut self, schema: &str, owner: Option<&str>) {
        match owner {
            Some(owner) => self
                .schema_owners
                .insert(schema.to_owned(), owner.to_owned()),
            None => self.schema_owners.remove(schema),
        };
        self.refresh();
    }

    pub(super) fn put_token(&mut self, token: Arc<TokenRecord>) {
        self.tokens.insert(token.name.clone(), token);
        self.refresh();
    }

    pub(super) fn remove_token(&mut self, name: &str) {
        self.tokens.remove(name);
        self.refresh();
    }

    fn refresh(&mut self) {
        let rights = self.principals.keys().map(|name| {
            let rights = self.compute_rights(name);
            (name.clone(), Arc::new(rights))
        });
        self.rights = rights.collect();
        let tokens = self.tokens.values();
        self.tokens_by_hash = tokens
            .map(|token| (token.hash.clone(), Arc::clone(token)))
            .collect();
    }

    fn compute_rights(&self, name: &str) -> Rights {
        let generation = self.principals.get(name).map_or(0, |it| it.generation);
        let mut names = self.roles_of(name);
        names.insert(name);
        let owned_schemas = self.schema_owners.iter();
        let owned_schemas: BTreeSet<_> = owned_schemas
            .filter(|(_, owner)| names.contains(owner.as_str()))
            .map(|(schema, _)| schema.clone())
            .collect();
        let principals: Vec<_> = names
            .into_iter()
            .filter_map(|name| self.principals.get(name))
            .collect();
        let limits = self.principals.get(name).map(|it| it.limits);
        let limits = limits.unwrap_or_default();
        if principals.iter().any(|principal| principal.admin) {
            return Rights::of_admin(name, generation).with_limits(limits);
        }
        let mut rights = Rights::without_grants(name, generation);
        for principal in principals {
            rights.add_grants(&principal.name, principal.grants.iter());
        }
        rights.set_owned_schemas(owned_schemas);
        rights.with_limits(limits)
    }
}
