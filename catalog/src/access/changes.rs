//! Creating, changing and dropping users, roles and tokens; granting and revoking.

use std::collections::BTreeSet;
use std::sync::Arc;

use volary_flight_proto::{Error, ErrorCode, Result};

use super::limits::{LimitChanges, UserLimits};
use super::records::{PrincipalKind, PrincipalRecord, TokenRecord};
use super::rights::{Object, Privilege, Rights};
use super::{Access, PUBLIC_ROLE};
use crate::draft::Draft;
use crate::{Catalog, State, name, now_ms};

/// Names stand in headers, logs and tickets.
pub const MAX_NAME_BYTES: usize = 128;

/// A user or role to be created.
#[derive(Debug, Clone)]
pub struct NewPrincipal {
    /// Its name.
    pub name: String,
    /// Whether it can log in.
    pub kind: PrincipalKind,
    /// What a user's password is checked against: see [`PrincipalRecord`].
    pub password: Option<String>,
    /// Whether it may do everything.
    pub admin: bool,
    /// What it may take at once.
    pub limits: LimitChanges,
}

/// What becomes of a user or role; `None` leaves a thing as it is.
#[derive(Debug, Clone)]
pub struct PrincipalChange {
    /// Its name.
    pub name: String,
    /// Which of the two it must be.
    pub kind: PrincipalKind,
    /// What its password is checked against from now on.
    pub password: Option<String>,
    /// Whether it may do everything from now on.
    pub admin: Option<bool>,
    /// What it may take at once from now on.
    pub limits: LimitChanges,
}

/// What is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Privileges on something.
    On(Object, BTreeSet<Privilege>),
    /// A role, with all that it was granted.
    Role(String),
}

impl Catalog {
    /// Creates a user or a role. Returns false if there is one of this name and `if_not_exists` is set. `by`: whose statement it is.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`; `ALREADY_EXISTS` for a name that is taken, `INVALID_ARGUMENT` for what cannot be one, and for a first user who could not create
    /// others; those of the store.
    pub async fn create_principal(
        &self,
        principal: NewPrincipal,
        if_not_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<bool> {
        check_name(&principal.name)?;
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            by.check_admin("create users and roles")?;
            let NewPrincipal {
                name,
                kind,
                password,
                admin,
                limits,
            } = principal.clone();
            if let Some(other) = draft.state().access.principals.get(&name) {
                if if_not_exists && other.kind == kind {
                    return Ok(false);
                }
                return Err(Error::new(
                    ErrorCode::AlreadyExists,
                    format!("there is a {} \"{name}\" already", other.kind.name()),
                ));
            }
            let generation = draft.next_generation();
            draft.put_principal(PrincipalRecord {
                name,
                kind,
                password,
                generation,
                admin,
                member_of: BTreeSet::new(),
                grants: Default::default(),
                limits: limits.apply(UserLimits::default()),
                created_at_ms: now_ms(),
            })?;
            if kind == PrincipalKind::User {
                draft.secure();
            }
            check_administered(draft.state())?;
            Ok(true)
        })
        .await
    }

    /// Changes a user or a role. Sessions of a user whose password changes are over. `by`: whose statement it is: everybody changes the own
    /// password.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`; `NOT_FOUND`; `INVALID_ARGUMENT` if nobody would be left to administer; those of the store.
    pub async fn change_principal(&self, change: PrincipalChange, by: &Arc<Rights>) -> Result<()> {
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            let is_own = change.admin.is_none()
                && change.limits.is_none()
                && change.kind == PrincipalKind::User
                && by.owner() == Some(change.name.as_str());
            if !is_own {
                by.check_admin("change users and roles")?;
            }
            let change = change.clone();
            let mut principal = known(draft.state(), change.kind, &change.name)?;
            if change.password.is_some() {
                principal.password = change.password;
                principal.generation = draft.next_generation();
            }
            if let Some(admin) = change.admin {
                principal.admin = admin;
            }
            principal.limits = change.limits.apply(principal.limits);
            draft.put_principal(principal)?;
            check_administered(draft.state())
        })
        .await
    }

    /// Forgets a user or role, with its tokens. Returns false if there is none and `if_exists` is set. `by`: whose statement it is.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`; `NOT_FOUND`; `INVALID_ARGUMENT` if it owns something, or if nobody would be left to administer; those of the store.
    pub async fn drop_principal(
        &self,
        kind: PrincipalKind,
        name: &str,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<bool> {
        let (name, by) = (name.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            by.check_admin("drop users and roles")?;
            if if_exists && !draft.state().access.principals.contains_key(&name) {
                return Ok(false);
            }
            known(draft.state(), kind, &name)?;
            let owned: Vec<_> = draft.state().owned_by(&name).collect();
            if !owned.is_empty() {
                return Err(Error::invalid(format!(
                    "{} \"{name}\" owns {}; drop them, or give them to another one: ALTER TABLE … OWNER TO …",
                    kind.name(),
                    owned.join(", ")
                )));
            }
            let access = Arc::clone(&draft.state().access);
            for token in access.tokens().filter(|token| token.user == name) {
                draft.remove_token(&token.name);
            }
            for other in access.principals() {
                if other.member_of.contains(&name) {
                    let mut other = other.as_ref().clone();
                    other.member_of.remove(&name);
                    draft.put_principal(other)?;
                }
            }
            draft.remove_principal(&name);
            check_administered(draft.state())?;
            Ok(true)
        })
        .await
    }

    /// Grants to users and roles, or revokes from them. `by`: whose statement it is.
    ///
    /// # Errors
    /// `NOT_FOUND` for a name that there is not, `PERMISSION_DENIED` if it is not theirs to give, `INVALID_ARGUMENT` for a role that
    /// would contain itself; those of the store.
    pub async fn grant(
        &self,
        grants: Vec<Grant>,
        to: Vec<String>,
        revoke: bool,
        by: &Arc<Rights>,
    ) -> Result<()> {
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            for grant in &grants {
                check_may_grant(draft.state(), grant, &by)?;
                for name in &to {
                    let mut principal = grantee(draft, name)?;
                    match grant {
                        Grant::On(object, privileges) if revoke => {
                            take_away(&mut principal, object, privileges);
                        }
                        Grant::On(object, privileges) => principal
                            .grants
                            .entry(object.clone())
                            .or_default()
                            .extend(privileges),
                        Grant::Role(role) if revoke => {
                            principal.member_of.remove(role);
                        }
                        Grant::Role(role) => {
                            check_no_cycle(&draft.state().access, role, name)?;
                            principal.member_of.insert(role.clone());
                        }
                    }
                    draft.put_principal(principal)?;
                }
            }
            check_administered(draft.state())
        })
        .await
    }

    /// Keeps a token. `by`: whose statement it is.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if it is for another user; `ALREADY_EXISTS` for a name that is taken, `NOT_FOUND` for a user that there is not;
    /// those of the store.
    pub async fn create_token(&self, token: TokenRecord, by: &Arc<Rights>) -> Result<()> {
        check_name(&token.name)?;
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            if !by.act_for(&token.user) {
                by.check_admin("create tokens for others")?;
            }
            let state = draft.state();
            if state.access.tokens.contains_key(&token.name) {
                return Err(Error::new(
                    ErrorCode::AlreadyExists,
                    format!(
                        "there is a token \"{}\" already; choose another name",
                        token.name
                    ),
                ));
            }
            known(state, PrincipalKind::User, &token.user)?;
            draft.put_token(token.clone())
        })
        .await
    }

    /// Forgets a token: who shows it is not let in any more. `by`: whose statement it is.
    ///
    /// # Errors
    /// `NOT_FOUND`; `PERMISSION_DENIED` if it is another one's; those of the store.
    pub async fn drop_token(&self, name: &str, if_exists: bool, by: &Arc<Rights>) -> Result<()> {
        let (name, by) = (name.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            let Some(token) = draft.state().access.tokens.get(&name) else {
                if if_exists {
                    return Ok(());
                }
                return Err(Error::not_found(format!(
                    "there is no token \"{name}\"; SELECT name FROM system.tokens"
                )));
            };
            if !by.act_for(&token.user) {
                by.check_admin("drop tokens of others")?;
            }
            draft.remove_token(&name);
            Ok(())
        })
        .await
    }

    /// Gives a table or view to another owner. `by`: whose statement it is.
    ///
    /// # Errors
    /// `NOT_FOUND`; `PERMISSION_DENIED` if it is not theirs to give; those of the store.
    pub async fn set_owner(&self, name: &str, owner: &str, by: &Arc<Rights>) -> Result<()> {
        let (name, owner, by) = (name.to_owned(), owner.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.now(&by)?;
            state.check_owner(&name, &by)?;
            if !by.owns(Some(&owner)) {
                // A view reads with its owner's rights: nobody is given one that does not want it.
                by.check_admin("give tables and views to others than the own roles")?;
            }
            if !state.access.principals.contains_key(&owner) {
                return Err(no_such("user or role", &owner));
            }
            draft.put_owner(&name, &owner)
        })
        .await
    }
}

impl Access {
    /// Whether there is a user who may do everything and who can log in.
    fn is_administered(&self) -> bool {
        self.users().any(|user| {
            let rights = self.rights(&user.name);
            user.password.is_some() && rights.is_some_and(|rights| rights.is_unrestricted())
        })
    }
}

/// Without a user everybody may do everything; from the first one on, there is always one who may.
fn check_administered(state: &State) -> Result<()> {
    if !state.cluster.secured || state.access.is_administered() {
        return Ok(());
    }
    Err(Error::invalid(
        "nobody would be left to administer the cluster: one user at least has a password and is ADMIN; begin with CREATE USER name PASSWORD '…' ADMIN",
    ))
}

fn check_name(name: &str) -> Result<()> {
    name::check(name)?;
    // Basic credentials are "name:password".
    if name.len() > MAX_NAME_BYTES || name.contains(':') {
        return Err(Error::invalid(format!(
            "{name:?} is no name of a user, a role or a token: it has 1 to {MAX_NAME_BYTES} bytes, and no colons"
        )));
    }
    if name == PUBLIC_ROLE {
        return Err(Error::invalid(format!(
            "\"{PUBLIC_ROLE}\" is the role that everybody has; choose another name"
        )));
    }
    Ok(())
}

fn no_such(what: &str, name: &str) -> Error {
    Error::not_found(format!(
        "there is no {what} \"{name}\"; SELECT name FROM system.users"
    ))
}

fn known(state: &State, kind: PrincipalKind, name: &str) -> Result<PrincipalRecord> {
    match state.access.principals.get(name) {
        Some(principal) if principal.kind == kind => Ok(principal.as_ref().clone()),
        Some(other) => Err(Error::invalid(format!(
            "\"{name}\" is a {}, not a {}",
            other.kind.name(),
            kind.name()
        ))),
        None => Err(no_such(kind.name(), name)),
    }
}

/// The role that everybody has is there as soon as it is granted something.
fn grantee(draft: &Draft, name: &str) -> Result<PrincipalRecord> {
    let known = draft.state().access.principals.get(name);
    match known {
        Some(principal) => Ok(principal.as_ref().clone()),
        None if name == PUBLIC_ROLE => Ok(PrincipalRecord {
            name: name.to_owned(),
            kind: PrincipalKind::Role,
            password: None,
            generation: 0,
            admin: false,
            member_of: BTreeSet::new(),
            grants: Default::default(),
            limits: UserLimits::default(),
            created_at_ms: now_ms(),
        }),
        None => Err(no_such("user or role", name)),
    }
}

/// Tables are given by their owners, all else by administrators.
fn check_may_grant(state: &State, grant: &Grant, by: &Rights) -> Result<()> {
    match grant {
        Grant::On(Object::Table(name), _) => state.check_owner(name, by),
        Grant::On(Object::Cluster | Object::AllTables, _) => {
            by.check_admin("grant or revoke what is not one table's")
        }
        Grant::Role(role) => {
            by.check_admin("grant or revoke roles")?;
            known(state, PrincipalKind::Role, role).map(|_| ())
        }
    }
}

fn take_away(principal: &mut PrincipalRecord, object: &Object, privileges: &BTreeSet<Privilege>) {
    if let Some(granted) = principal.grants.get_mut(object) {
        granted.retain(|privilege| !privileges.contains(privilege));
        if granted.is_empty() {
            principal.grants.remove(object);
        }
    }
}

fn check_no_cycle(access: &Access, role: &str, to: &str) -> Result<()> {
    if role == to || access.granted_roles_of(role).contains(to) {
        return Err(Error::invalid(format!(
            "role \"{role}\" cannot be granted to \"{to}\", which is part of it"
        )));
    }
    Ok(())
}
