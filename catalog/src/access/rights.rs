//! What somebody may do.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::limits::UserLimits;

/// What is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// To read a table or a view.
    Select,
    /// To add rows to a table.
    Insert,
    /// To create tables and views.
    Create,
}

impl Privilege {
    /// As statements name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Create => "CREATE",
        }
    }
}

/// What it is granted on. Grants go by name: those on a table or view end when it is dropped, and stay when it is replaced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// The cluster as a whole.
    Cluster,
    /// All tables and views, also those that are created later.
    AllTables,
    /// A table or view.
    Table(String),
}

/// What somebody may do, with what roles give it.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    user: String,
    /// Of what the user logs in with: see [`super::PrincipalRecord`].
    generation: u64,
    limits: UserLimits,
    scope: Scope,
}

#[derive(Debug, PartialEq, Eq)]
enum Scope {
    /// Nobody needs to be asked: the cluster has no users.
    Open,
    /// The gateway itself, as its settings say.
    Gateway,
    /// Everything.
    Admin,
    Granted(Granted),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Granted {
    /// The user and all its roles: who owns what it owns.
    names: BTreeSet<String>,
    create: bool,
    all_tables: BTreeSet<Privilege>,
    tables: HashMap<String, BTreeSet<Privilege>>,
}

impl Rights {
    /// Of anybody, as long as the cluster has no users.
    pub fn open(user: impl Into<String>) -> Self {
        Self::of(user, 0, Scope::Open)
    }

    /// Of the gateway itself.
    pub fn of_gateway() -> Self {
        Self::of("", 0, Scope::Gateway)
    }

    /// Of an administrator.
    pub(super) fn admin(user: &str, generation: u64) -> Self {
        Self::of(user, generation, Scope::Admin)
    }

    /// Of one that has nothing, except what it will own.
    pub fn none(user: &str, generation: u64) -> Self {
        let granted = Granted {
            names: [user.to_owned()].into(),
            ..Granted::default()
        };
        Self::of(user, generation, Scope::Granted(granted))
    }

    fn of(user: impl Into<String>, generation: u64, scope: Scope) -> Self {
        Self {
            user: user.into(),
            generation,
            limits: UserLimits::default(),
            scope,
        }
    }

    /// The same, of a user with these limits.
    pub(super) fn with_limits(self, limits: UserLimits) -> Self {
        Self { limits, ..self }
    }

    /// Adds a role, or the user itself, with what it was granted. Nothing is added to those of an administrator.
    pub(super) fn add<'a>(
        &mut self,
        name: &str,
        grants: impl Iterator<Item = (&'a Object, &'a BTreeSet<Privilege>)>,
    ) {
        let Scope::Granted(granted) = &mut self.scope else {
            return;
        };
        granted.names.insert(name.to_owned());
        for (object, privileges) in grants {
            match object {
                Object::Cluster => granted.create |= privileges.contains(&Privilege::Create),
                Object::AllTables => granted.all_tables.extend(privileges),
                Object::Table(table) => granted
                    .tables
                    .entry(table.clone())
                    .or_default()
                    .extend(privileges),
            }
        }
    }

    /// Whose they are.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Of what the user logs in with: see [`super::PrincipalRecord`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What the user may take at once.
    pub fn limits(&self) -> UserLimits {
        self.limits
    }

    /// Whether everything may be done, and by whom makes no difference.
    pub fn is_unrestricted(&self) -> bool {
        matches!(self.scope, Scope::Open | Scope::Gateway | Scope::Admin)
    }

    /// Whether what is this user's may be seen and ended with them: it is oneself, or they are an administrator's.
    pub fn act_for(&self, user: &str) -> bool {
        self.is_unrestricted() || self.user == user
    }

    /// Whether they are the gateway's own.
    pub(super) fn is_of_gateway(&self) -> bool {
        self.scope == Scope::Gateway
    }

    /// Whether the cluster has no users.
    pub fn is_open(&self) -> bool {
        self.scope == Scope::Open
    }

    /// Who owns what is created with them; nobody as long as there are no users.
    pub fn owner(&self) -> Option<&str> {
        let is_user = !self.is_open() && !self.is_of_gateway();
        is_user.then_some(self.user.as_str())
    }

    /// Whether this user, or a role of it, is the owner.
    pub(super) fn owns(&self, owner: Option<&str>) -> bool {
        match &self.scope {
            Scope::Open | Scope::Gateway | Scope::Admin => true,
            Scope::Granted(granted) => owner.is_some_and(|owner| granted.names.contains(owner)),
        }
    }

    fn may(&self, privilege: Privilege, table: &str, owner: Option<&str>) -> bool {
        self.owns(owner)
            || match &self.scope {
                Scope::Open | Scope::Gateway | Scope::Admin => true,
                Scope::Granted(granted) => {
                    let on_table = granted.tables.get(table);
                    granted.all_tables.contains(&privilege)
                        || on_table.is_some_and(|privileges| privileges.contains(&privilege))
                }
            }
    }

    /// Whether a table or view is listed.
    pub fn sees(&self, table: &str, owner: Option<&str>) -> bool {
        [Privilege::Select, Privilege::Insert]
            .into_iter()
            .any(|privilege| self.may(privilege, table, owner))
    }

    /// What to tell somebody who asks for a table that does not exist, or that they are not told of: who would grant it and how.
    /// Empty for those who are told of all.
    pub(crate) fn if_hidden(&self, table: &str) -> String {
        match &self.scope {
            Scope::Open | Scope::Gateway | Scope::Admin => String::new(),
            Scope::Granted(_) => {
                let user = &self.user;
                format!(
                    ", or user \"{user}\" may not see it: its owner or an administrator would allow it: GRANT SELECT ON \"{table}\" TO \"{user}\""
                )
            }
        }
    }

    /// Refuses what was not granted on a table or view.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with who grants it and how.
    pub fn check(&self, privilege: Privilege, table: &str, owner: Option<&str>) -> Result<()> {
        if self.may(privilege, table, owner) {
            return Ok(());
        }
        let (user, privilege) = (&self.user, privilege.name());
        Err(denied(format!(
            "user \"{user}\" may not {privilege} on \"{table}\"; its owner or an administrator allows it: GRANT {privilege} ON \"{table}\" TO \"{user}\""
        )))
    }

    /// Refuses to create a table or view without the right to.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with who grants it and how.
    pub fn check_create(&self) -> Result<()> {
        match &self.scope {
            Scope::Granted(granted) if !granted.create => {
                let user = &self.user;
                Err(denied(format!(
                    "user \"{user}\" may not create tables and views; an administrator allows it: GRANT CREATE TO \"{user}\""
                )))
            }
            Scope::Open | Scope::Gateway | Scope::Admin | Scope::Granted(_) => Ok(()),
        }
    }

    /// Refuses to drop, to replace or to grant what another one owns.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the owner.
    pub fn check_owner(&self, table: &str, owner: Option<&str>) -> Result<()> {
        if self.owns(owner) {
            return Ok(());
        }
        let owner = owner.map_or_else(
            || "nobody but administrators".to_owned(),
            |owner| format!("\"{owner}\""),
        );
        Err(denied(format!(
            "\"{table}\" belongs to {owner}, and user \"{}\" may not change it; ask the owner or an administrator",
            self.user
        )))
    }

    /// Refuses what only administrators do.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with what it is.
    pub fn check_admin(&self, what: &str) -> Result<()> {
        if self.is_unrestricted() {
            return Ok(());
        }
        Err(denied(format!(
            "user \"{}\" is no administrator, and may not {what}; ask one",
            self.user
        )))
    }
}

fn denied(what: String) -> Error {
    Error::new(ErrorCode::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(grants: &[(Object, &[Privilege])]) -> Rights {
        let mut rights = Rights::none("kea", 1);
        let grants: Vec<(Object, BTreeSet<Privilege>)> = grants
            .iter()
            .map(|(object, privileges)| (object.clone(), privileges.iter().copied().collect()))
            .collect();
        rights.add("keas", grants.iter().map(|(object, set)| (object, set)));
        rights
    }

    #[test]
    fn nothing_is_allowed_that_was_not_granted() {
        let nothing = rights(&[]);
        for privilege in [Privilege::Select, Privilege::Insert] {
            let error = nothing.check(privilege, "eggs", Some("auk")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::PermissionDenied);
            assert!(error.message().contains("GRANT"), "{error}");
            nothing.check(privilege, "eggs", None).unwrap_err();
        }
        nothing.check_create().unwrap_err();
        nothing.check_admin("drop users").unwrap_err();
        nothing.check_owner("eggs", None).unwrap_err();
        nothing.check_owner("eggs", Some("auk")).unwrap_err();
        assert!(!nothing.sees("eggs", Some("auk")));
    }

    #[test]
    fn an_owner_and_whoever_has_its_role_do_everything_with_what_they_own() {
        let nothing = rights(&[]);
        for owner in ["kea", "keas"] {
            nothing
                .check(Privilege::Select, "eggs", Some(owner))
                .unwrap();
            nothing
                .check(Privilege::Insert, "eggs", Some(owner))
                .unwrap();
            nothing.check_owner("eggs", Some(owner)).unwrap();
        }
    }

    #[test]
    fn what_was_granted_is_allowed_and_nothing_else() {
        let reads_one = rights(&[(Object::Table("eggs".to_owned()), &[Privilege::Select])]);
        reads_one.check(Privilege::Select, "eggs", None).unwrap();
        reads_one
            .check(Privilege::Insert, "eggs", None)
            .unwrap_err();
        reads_one
            .check(Privilege::Select, "nests", None)
            .unwrap_err();
        reads_one.check_owner("eggs", None).unwrap_err();
        assert!(reads_one.sees("eggs", None));
        let writes_all = rights(&[(Object::AllTables, &[Privilege::Insert])]);
        writes_all.check(Privilege::Insert, "nests", None).unwrap();
        writes_all
            .check(Privilege::Select, "nests", None)
            .unwrap_err();
        writes_all.check_create().unwrap_err();
        rights(&[(Object::Cluster, &[Privilege::Create])])
            .check_create()
            .unwrap();
    }

    #[test]
    fn administrators_and_a_cluster_without_users_are_asked_nothing() {
        for rights in [Rights::admin("auk", 1), Rights::open("auk")] {
            rights
                .check(Privilege::Insert, "eggs", Some("kea"))
                .unwrap();
            rights.check_owner("eggs", None).unwrap();
            rights.check_create().unwrap();
            rights.check_admin("drop users").unwrap();
        }
        assert_eq!(Rights::admin("auk", 1).owner(), Some("auk"));
        assert_eq!(Rights::open("auk").owner(), None);
    }
}
