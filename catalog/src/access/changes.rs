use std::collections::BTreeSet;
use std::sync::Arc;

use volary_flight_proto::{Error, ErrorCode, Result};

use super::limits::{LimitChanges, UserLimits};
use super::records::{PrincipalKind, PrincipalRecord, TokenRecord};
use super::rights::{GrantObject, Privilege, Rights};
use super::{Access, PUBLIC_ROLE};
use crate::draft::Draft;
use crate::relation_name::RelationName;
use crate::{Catalog, CatalogState, name, now_ms, temporary};

/// Maximum length of the name of a user, role or token, in bytes. Names appear in headers, logs and
/// tickets.
pub const MAX_NAME_BYTES: usize = 128;

/// A user or a role that is to be created.
#[derive(Debug, Clone)]
pub struct NewPrincipal {
    /// The name of the user or role.
    pub name: String,
    /// Says whether this is a user, who can log in, or a role.
    pub kind: PrincipalKind,
    /// The hash that a user's password is checked against: see [`PrincipalRecord`].
    pub password: Option<String>,
    /// Says whether the user or role has all rights.
    pub admin: bool,
    /// The limits of what the user may use at once.
    pub limits: LimitChanges,
}

/// A change to a user or role. A field that is `None` leaves its property unchanged.
#[derive(Debug, Clone)]
pub struct PrincipalChange {
    /// The name of the user or role.
    pub name: String,
    /// Says whether the name must be that of a user or that of a role.
    pub kind: PrincipalKind,
    /// The new hash that the user's password is checked against.
    pub password: Option<String>,
    /// Says whether the user or role has all rights from now on.
    pub admin: Option<bool>,
    /// The changes to the limits of what the user may use at once.
    pub limits: LimitChanges,
}

/// What a `GRANT` or `REVOKE` statement gives or takes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Privileges on an object.
    Privileges(GrantObject, BTreeSet<Privilege>),
    /// A role, with everything that was granted to the role.
    Role(String),
}

impl Catalog {
    /// Creates a user or a role. Returns false if `if_not_exists` is set and the user or role
    /// exists. `by` holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the user is not an administrator, `ALREADY_EXISTS` if the name is
    /// taken, `INVALID_ARGUMENT` for an invalid name and for a first user who could not create
    /// others, and the errors of the store.
    pub async fn create_principal(
        &self,
        principal: NewPrincipal,
        if_not_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<bool> {
        check_principal_name(&principal.name)?;
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
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
                    format!(
                        "{} \"{name}\" exists already; choose another name",
                        other.kind.name()
                    ),
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
                draft.mark_secured();
            }
            check_administered(draft.state())?;
            Ok(true)
        })
        .await
    }

    /// Changes a user or a role. A new password ends all sessions of the user. `by` holds the
    /// rights of the user who runs the statement. Every user may change their own password.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` without the right to change the user, `NOT_FOUND` if the user or role
    /// does not exist, `INVALID_ARGUMENT` if no administrator would be left, and the errors of the
    /// store.
    pub async fn change_principal(&self, change: PrincipalChange, by: &Arc<Rights>) -> Result<()> {
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let is_own = change.admin.is_none()
                && change.limits.is_empty()
                && change.kind == PrincipalKind::User
                && by.owner() == Some(change.name.as_str());
            if !is_own {
                by.check_admin("change users and roles")?;
            }
            let change = change.clone();
            let mut principal = find_principal(draft.state(), change.kind, &change.name)?;
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

    /// Drops a user or role, with its tokens and its temporary tables. Returns false if `if_exists`
    /// is set and the user or role does not exist. `by` holds the rights of the user who runs the
    /// statement.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the user is not an administrator, `NOT_FOUND` if the user or role
    /// does not exist, `INVALID_ARGUMENT` if it owns a table, view or schema or if no administrator
    /// would be left, and the errors of the store.
    pub async fn drop_principal(
        &self,
        kind: PrincipalKind,
        name: &str,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<bool> {
        let (name, by) = (name.to_owned(), Arc::clone(by));
        self.change_with_ballast(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            by.check_admin("drop users and roles")?;
            if if_exists && !draft.state().access.principals.contains_key(&name) {
                return Ok(false);
            }
            find_principal(draft.state(), kind, &name)?;
            temporary::drop_owned(draft, &name);
            let owned: Vec<_> = draft.state().names_owned_by(&name).collect();
            if !owned.is_empty() {
                return Err(Error::invalid(format!(
                    "{} \"{name}\" owns {}; drop them, or give them to another owner: ALTER TABLE or SCHEMA … OWNER TO …",
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

    /// Grants privileges and roles to users and roles, or revokes them if `revoke` is set. `by`
    /// holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` for a name that does not exist, `PERMISSION_DENIED` if the user has no right to
    /// grant this, `INVALID_ARGUMENT` for a role that would contain itself, and the errors of the
    /// store.
    pub async fn grant(
        &self,
        grants: Vec<Grant>,
        to: Vec<String>,
        revoke: bool,
        by: &Arc<Rights>,
    ) -> Result<()> {
        let by = Arc::clone(by);
        let decide = move |draft: &mut Draft| {
            let by = draft.state().access.current_rights(&by)?;
            for grant in &grants {
                check_may_grant(draft.state(), grant, &by)?;
                for name in &to {
                    let mut principal = find_grantee(draft, name)?;
                    match grant {
                        Grant::Privileges(object, privileges) if revoke => {
                            revoke_privileges(&mut principal, object, privileges);
                        }
                        Grant::Privileges(object, privileges) => principal
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
        };
        if revoke {
            self.change_with_ballast(decide).await
        } else {
            self.change(decide).await
        }
    }

    /// Stores a new token. `by` holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an invalid name, `PERMISSION_DENIED` if the token is for another user
    /// and `by` is not an administrator, `ALREADY_EXISTS` if the name is taken, `NOT_FOUND` if the
    /// user does not exist, and the errors of the store.
    pub async fn create_token(&self, token: TokenRecord, by: &Arc<Rights>) -> Result<()> {
        check_principal_name(&token.name)?;
        let by = Arc::clone(by);
        self.change(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            if !by.may_act_for(&token.user) {
                by.check_admin("create tokens for other users")?;
            }
            let state = draft.state();
            if state.access.tokens.contains_key(&token.name) {
                return Err(Error::new(
                    ErrorCode::AlreadyExists,
                    format!(
                        "token \"{}\" exists already; choose another name",
                        token.name
                    ),
                ));
            }
            find_principal(state, PrincipalKind::User, &token.user)?;
            draft.put_token(token.clone())
        })
        .await
    }

    /// Drops a token, which can then no longer be used to log in. `by` holds the rights of the user
    /// who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if the token does not exist, `PERMISSION_DENIED` if it belongs to another user
    /// and `by` is not an administrator, and the errors of the store.
    pub async fn drop_token(&self, name: &str, if_exists: bool, by: &Arc<Rights>) -> Result<()> {
        let (name, by) = (name.to_owned(), Arc::clone(by));
        self.change_with_ballast(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let Some(token) = draft.state().access.tokens.get(&name) else {
                if if_exists {
                    return Ok(());
                }
                return Err(Error::not_found(format!(
                    "token \"{name}\" does not exist; SELECT name FROM system.tokens lists the tokens"
                )));
            };
            if !by.may_act_for(&token.user) {
                by.check_admin("drop tokens of other users")?;
            }
            draft.remove_token(&name);
            Ok(())
        })
        .await
    }

    /// Gives a table or view to another owner. `by` holds the rights of the user who runs the
    /// statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table, view or new owner does not exist, `PERMISSION_DENIED` if the user
    /// has no right to give it to the new owner, and the errors of the store.
    pub async fn set_owner(
        &self,
        name: &RelationName,
        owner: &str,
        by: &Arc<Rights>,
    ) -> Result<()> {
        let (name, owner, by) = (name.clone(), owner.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            state.check_owner(&name, &by)?;
            state.check_may_own(&owner, &by)?;
            draft.put_owner(&name, &owner)
        })
        .await
    }
}

impl CatalogState {
    /// Checks that a user with these rights may make `owner` the owner of an object.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if `owner` is neither the user nor one of its roles, `NOT_FOUND` if it
    /// does not exist.
    pub(crate) fn check_may_own(&self, owner: &str, by: &Rights) -> Result<()> {
        if !by.owns(Some(owner)) {
            // A view reads with the rights of its owner, so nobody may make another user the owner
            // of a view against that user's will.
            by.check_admin(
                "give tables, views and schemas to an owner other than itself and its roles",
            )?;
        }
        if !self.access.principals.contains_key(owner) {
            return Err(not_found_error("user or role", owner));
        }
        Ok(())
    }
}

impl Access {
    /// Returns whether there is a user who has all rights and can log in with a password.
    fn is_administered(&self) -> bool {
        self.users().any(|user| {
            let rights = self.rights(&user.name);
            user.password.is_some() && rights.is_some_and(|rights| rights.is_unrestricted())
        })
    }
}

/// Refuses a change that leaves no administrator. Without users, everybody may do everything. Once
/// the first user exists, at least one user must be an administrator who can log in.
fn check_administered(state: &CatalogState) -> Result<()> {
    if !state.cluster.secured || state.access.is_administered() {
        return Ok(());
    }
    Err(Error::invalid(
        "the cluster would have no administrator: at least one user must be ADMIN and have a password; begin with CREATE USER name PASSWORD '…' ADMIN",
    ))
}

fn check_principal_name(name: &str) -> Result<()> {
    name::check(name)?;
    // Basic credentials have the form "name:password", so a name cannot have a colon.
    if name.len() > MAX_NAME_BYTES || name.contains(':') {
        return Err(Error::invalid(format!(
            "{name:?} cannot be the name of a user, role or token: such a name has 1 to {MAX_NAME_BYTES} bytes and no colon"
        )));
    }
    if name == PUBLIC_ROLE {
        return Err(Error::invalid(format!(
            "\"{PUBLIC_ROLE}\" is the role that everybody has; choose another name"
        )));
    }
    Ok(())
}

fn not_found_error(what: &str, name: &str) -> Error {
    Error::not_found(format!(
        "{what} \"{name}\" does not exist; SELECT name FROM system.users lists the users and roles"
    ))
}

fn find_principal(
    state: &CatalogState,
    kind: PrincipalKind,
    name: &str,
) -> Result<PrincipalRecord> {
    match state.access.principals.get(name) {
        Some(principal) if principal.kind == kind => Ok(principal.as_ref().clone()),
        Some(other) => Err(Error::invalid(format!(
            "\"{name}\" is a {}, not a {}",
            other.kind.name(),
            kind.name()
        ))),
        None => Err(not_found_error(kind.name(), name)),
    }
}

/// Returns the user or role that is granted something. The role that everybody has gets its record
/// when it is first granted something.
fn find_grantee(draft: &Draft, name: &str) -> Result<PrincipalRecord> {
    let existing = draft.state().access.principals.get(name);
    match existing {
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
        None => Err(not_found_error("user or role", name)),
    }
}

/// Refuses a grant that `by` may not make. The owner of a table, view or schema may grant
/// privileges on it.
/// Only administrators may grant anything else.
fn check_may_grant(state: &CatalogState, grant: &Grant, by: &Rights) -> Result<()> {
    match grant {
        Grant::Privileges(GrantObject::Table(name), _) => state.check_owner(name, by),
        Grant::Privileges(GrantObject::Schema(name), _) => state.check_owner_of_schema(name, by),
        Grant::Privileges(GrantObject::Cluster | GrantObject::AllTables, _) => {
            by.check_admin("grant or revoke privileges on the cluster or on all tables")
        }
        Grant::Role(role) => {
            by.check_admin("grant or revoke roles")?;
            find_principal(state, PrincipalKind::Role, role).map(|_| ())
        }
    }
}

fn revoke_privileges(
    principal: &mut PrincipalRecord,
    object: &GrantObject,
    privileges: &BTreeSet<Privilege>,
) {
    if let Some(granted) = principal.grants.get_mut(object) {
        granted.retain(|privilege| !privileges.contains(privilege));
        if granted.is_empty() {
            principal.grants.remove(object);
        }
    }
}

fn check_no_cycle(access: &Access, role: &str, to: &str) -> Result<()> {
    if role == to {
        return Err(Error::invalid(format!(
            "role \"{role}\" cannot be granted to itself"
        )));
    }
    if access.granted_roles_of(role).contains(to) {
        return Err(Error::invalid(format!(
            "role \"{role}\" cannot be granted to \"{to}\", because \"{role}\" itself has the role \"{to}\""
        )));
    }
    Ok(())
}
