use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::limits::UserLimits;
use crate::relation_name::{PUBLIC_SCHEMA, RelationName};

/// A privilege that can be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// The right to read a table or a view.
    Select,
    /// The right to add rows to a table.
    Insert,
    /// The right to create schemas in the cluster, or tables and views in a schema.
    Create,
}

impl Privilege {
    /// Returns the name of the privilege in SQL statements.
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Create => "CREATE",
        }
    }
}

/// An object that privileges are granted on. Grants on a table or view refer to it by name: they
/// end when it is dropped, and stay when it is replaced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantObject {
    /// The cluster as a whole.
    Cluster,
    /// All tables and views, including those that are created later.
    AllTables,
    /// A table or view, by its name.
    Table(RelationName),
    /// A schema with all its tables and views, including those that are created later.
    Schema(String),
}

/// The rights of a user, including those that its roles give it.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    user: String,
    /// The generation of the user's password: see [`super::PrincipalRecord`].
    generation: u64,
    limits: UserLimits,
    scope: Scope,
}

#[derive(Debug, PartialEq, Eq)]
enum Scope {
    /// All rights, because the cluster has no users.
    Open,
    /// All rights, because the gateway itself acts, to apply its settings.
    Gateway,
    /// All rights, because the user is an administrator.
    Admin,
    Granted(Granted),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Granted {
    /// The names of the user and of all its roles. The user owns what any of them owns.
    owner_names: BTreeSet<String>,
    may_create: bool,
    all_tables: BTreeSet<Privilege>,
    tables: HashMap<RelationName, BTreeSet<Privilege>>,
    schemas: HashMap<String, BTreeSet<Privilege>>,
    /// The schemas that the user or one of its roles owns.
    owned_schemas: BTreeSet<String>,
}

impl Rights {
    /// Creates the rights of everybody in a cluster that has no users.
    pub fn of_open_cluster(user: impl Into<String>) -> Self {
        Self::with_scope(user, 0, Scope::Open)
    }

    /// Creates the rights of the gateway itself.
    pub fn of_gateway() -> Self {
        Self::with_scope("", 0, Scope::Gateway)
    }

    /// Creates the rights of an administrator.
    pub(super) fn of_admin(user: &str, generation: u64) -> Self {
        Self::with_scope(user, generation, Scope::Admin)
    }

    /// Creates the rights of a user who was granted nothing. The user still has all rights on its
    /// own tables and views.
    pub fn without_grants(user: &str, generation: u64) -> Self {
        let granted = Granted {
            owner_names: [user.to_owned()].into(),
            ..Granted::default()
        };
        Self::with_scope(user, generation, Scope::Granted(granted))
    }

    fn with_scope(user: impl Into<String>, generation: u64, scope: Scope) -> Self {
        Self {
            user: user.into(),
            generation,
            limits: UserLimits::default(),
            scope,
        }
    }

    /// Returns these rights with the limits of the user.
    pub(super) fn with_limits(self, limits: UserLimits) -> Self {
        Self { limits, ..self }
    }

    /// Adds the grants of a role, or those of the user itself. The rights of an administrator stay
    /// as they are.
    pub(super) fn add_grants<'a>(
        &mut self,
        name: &str,
        grants: impl Iterator<Item = (&'a GrantObject, &'a BTreeSet<Privilege>)>,
    ) {
        let Scope::Granted(granted) = &mut self.scope else {
            return;
        };
        granted.owner_names.insert(name.to_owned());
        for (object, privileges) in grants {
            match object {
                GrantObject::Cluster => {
                    granted.may_create |= privileges.contains(&Privilege::Create);
                }
                GrantObject::AllTables => granted.all_tables.extend(privileges),
                GrantObject::Table(table) => granted
                    .tables
                    .entry(table.clone())
                    .or_default()
                    .extend(privileges),
                GrantObject::Schema(schema) => granted
                    .schemas
                    .entry(schema.clone())
                    .or_default()
                    .extend(privileges),
            }
        }
    }

    /// Sets the schemas that the user or one of its roles owns. The rights of an administrator stay
    /// as they are.
    pub(super) fn set_owned_schemas(&mut self, schemas: BTreeSet<String>) {
        if let Scope::Granted(granted) = &mut self.scope {
            granted.owned_schemas = schemas;
        }
    }

    /// Returns the name of the user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the generation of the user's password: see [`super::PrincipalRecord`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the limits of what the user may use at once.
    pub fn limits(&self) -> UserLimits {
        self.limits
    }

    /// Returns whether the user may do everything, whoever owns the object.
    pub fn is_unrestricted(&self) -> bool {
        matches!(self.scope, Scope::Open | Scope::Gateway | Scope::Admin)
    }

    /// Returns whether the holder of these rights may see and end what belongs to `user`. All users
    /// may do so for themselves, and users with all rights may do so for everybody.
    pub fn may_act_for(&self, user: &str) -> bool {
        self.is_unrestricted() || self.user == user
    }

    /// Returns whether these are the rights of the gateway itself.
    pub(super) fn is_of_gateway(&self) -> bool {
        self.scope == Scope::Gateway
    }

    /// Returns whether these rights exist because the cluster has no users.
    pub(crate) fn is_of_open_cluster(&self) -> bool {
        self.scope == Scope::Open
    }

    /// Returns the user who owns what is created with these rights, or `None` if nobody will own
    /// it. Objects that are created in a cluster without users, or by the gateway itself, have no
    /// owner.
    pub fn owner(&self) -> Option<&str> {
        let is_user = !self.is_of_open_cluster() && !self.is_of_gateway();
        is_user.then_some(self.user.as_str())
    }

    /// Returns whether the user may act as the owner: the user or one of its roles is the owner, or
    /// the user may do everything.
    pub(super) fn owns(&self, owner: Option<&str>) -> bool {
        match &self.scope {
            Scope::Open | Scope::Gateway | Scope::Admin => true,
            Scope::Granted(granted) => {
                owner.is_some_and(|owner| granted.owner_names.contains(owner))
            }
        }
    }

    fn has_privilege(
        &self,
        privilege: Privilege,
        table: &RelationName,
        owner: Option<&str>,
    ) -> bool {
        self.owns(owner)
            || match &self.scope {
                Scope::Open | Scope::Gateway | Scope::Admin => true,
                Scope::Granted(granted) => {
                    let on_table = granted.tables.get(table);
                    granted.all_tables.contains(&privilege)
                        || on_table.is_some_and(|privileges| privileges.contains(&privilege))
                        || granted.has_on_schema(privilege, table.schema())
                }
            }
    }

    /// Returns whether the user owns the schema or was granted something on it.
    pub(crate) fn has_right_on_schema(&self, schema: &str) -> bool {
        match &self.scope {
            Scope::Open | Scope::Gateway | Scope::Admin => true,
            Scope::Granted(granted) => {
                granted.owned_schemas.contains(schema) || granted.schemas.contains_key(schema)
            }
        }
    }

    /// Returns whether the user may see the table or view in lists.
    pub fn may_see(&self, table: &RelationName, owner: Option<&str>) -> bool {
        [Privilege::Select, Privilege::Insert]
            .into_iter()
            .any(|privilege| self.has_privilege(privilege, table, owner))
    }

    /// Returns the part of an error message that says who could grant access to a table, and how.
    /// The message is the same whether the table does not exist or the user may not see it. The
    /// text is empty for users who may see all tables.
    pub(crate) fn visibility_advice(&self, table: &RelationName) -> String {
        self.advice(&table.quoted())
    }

    /// Returns the same part of a message as [`Self::visibility_advice`], about a schema.
    pub(crate) fn schema_visibility_advice(&self, schema: &str) -> String {
        self.advice(&format!("SCHEMA \"{schema}\""))
    }

    fn advice(&self, object: &str) -> String {
        match &self.scope {
            Scope::Open | Scope::Gateway | Scope::Admin => String::new(),
            Scope::Granted(_) => {
                let user = &self.user;
                format!(
                    ", or user \"{user}\" may not see it (its owner or an administrator can run: GRANT SELECT ON {object} TO \"{user}\")"
                )
            }
        }
    }

    /// Checks that the user has a privilege on a table or view.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with who can grant the privilege and how.
    pub fn check_privilege(
        &self,
        privilege: Privilege,
        table: &RelationName,
        owner: Option<&str>,
    ) -> Result<()> {
        if self.has_privilege(privilege, table, owner) {
            return Ok(());
        }
        let (user, privilege) = (&self.user, privilege.name());
        Err(permission_denied(format!(
            "user \"{user}\" has no {privilege} privilege on \"{table}\"; its owner or an administrator can run: GRANT {privilege} ON {} TO \"{user}\"",
            table.quoted()
        )))
    }

    /// Refuses to create a table or view in a schema without the right to do so. The `CREATE`
    /// privilege on the cluster is enough only in the schema `public`.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with who can grant the privilege and how.
    pub(crate) fn check_create_in(&self, schema: &str) -> Result<()> {
        let Scope::Granted(granted) = &self.scope else {
            return Ok(());
        };
        let is_public = schema == PUBLIC_SCHEMA;
        if (is_public && granted.may_create) || granted.has_on_schema(Privilege::Create, schema) {
            return Ok(());
        }
        let user = &self.user;
        Err(permission_denied(if is_public {
            format!(
                "user \"{user}\" may not create tables and views; an administrator can run: GRANT CREATE TO \"{user}\""
            )
        } else {
            format!(
                "user \"{user}\" may not create tables and views in the schema {schema}; its owner or an administrator can run: GRANT CREATE ON SCHEMA \"{schema}\" TO \"{user}\""
            )
        }))
    }

    /// Refuses to create a schema without the `CREATE` privilege on the cluster.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with who can grant the privilege and how.
    pub(crate) fn check_create_schema(&self) -> Result<()> {
        match &self.scope {
            Scope::Granted(granted) if !granted.may_create => {
                let user = &self.user;
                Err(permission_denied(format!(
                    "user \"{user}\" may not create schemas; an administrator can run: GRANT CREATE TO \"{user}\""
                )))
            }
            Scope::Open | Scope::Gateway | Scope::Admin | Scope::Granted(_) => Ok(()),
        }
    }

    /// Refuses to drop, replace or grant on a table or view that somebody else owns.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the owner.
    pub(crate) fn check_owner(&self, table: &RelationName, owner: Option<&str>) -> Result<()> {
        self.check_owns(&format!("\"{table}\""), owner)
    }

    /// Refuses to drop a schema, to give it away or to grant on it if somebody else owns it.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the owner.
    pub(crate) fn check_owner_of_schema(&self, schema: &str, owner: Option<&str>) -> Result<()> {
        self.check_owns(&format!("the schema \"{schema}\""), owner)
    }

    fn check_owns(&self, object: &str, owner: Option<&str>) -> Result<()> {
        if self.owns(owner) {
            return Ok(());
        }
        let user = &self.user;
        Err(permission_denied(match owner {
            Some(owner) => format!(
                "{object} belongs to \"{owner}\", and user \"{user}\" may not change it; ask the owner or an administrator"
            ),
            None => format!(
                "{object} belongs to no user, and user \"{user}\" may not change it; ask an administrator"
            ),
        }))
    }

    /// Refuses an action that only administrators may take. `what` names the action.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the action.
    pub fn check_admin(&self, what: &str) -> Result<()> {
        if self.is_unrestricted() {
            return Ok(());
        }
        Err(permission_denied(format!(
            "user \"{}\" is not an administrator and may not {what}; ask an administrator",
            self.user
        )))
    }
}

impl Granted {
    /// Returns whether a privilege extends to a schema with everything in it: it was granted, or
    /// the user owns the schema.
    fn has_on_schema(&self, privilege: Privilege, schema: &str) -> bool {
        let granted = self.schemas.get(schema);
        self.owned_schemas.contains(schema)
            || granted.is_some_and(|privileges| privileges.contains(&privilege))
    }
}

fn permission_denied(what: String) -> Error {
    Error::new(ErrorCode::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eggs() -> RelationName {
        RelationName::in_public("eggs")
    }

    fn nests() -> RelationName {
        RelationName::in_public("nests")
    }

    fn rights(grants: &[(GrantObject, &[Privilege])]) -> Rights {
        let mut rights = Rights::without_grants("kea", 1);
        let grants: Vec<(GrantObject, BTreeSet<Privilege>)> = grants
            .iter()
            .map(|(object, privileges)| (object.clone(), privileges.iter().copied().collect()))
            .collect();
        rights.add_grants("keas", grants.iter().map(|(object, set)| (object, set)));
        rights
    }

    #[test]
    fn nothing_is_allowed_that_was_not_granted() {
        let nothing = rights(&[]);
        for privilege in [Privilege::Select, Privilege::Insert] {
            let error = nothing
                .check_privilege(privilege, &eggs(), Some("auk"))
                .unwrap_err();
            assert_eq!(error.code(), ErrorCode::PermissionDenied);
            assert!(error.message().contains("GRANT"), "{error}");
            nothing
                .check_privilege(privilege, &eggs(), None)
                .unwrap_err();
        }
        nothing.check_create_in("public").unwrap_err();
        nothing.check_admin("drop users").unwrap_err();
        nothing.check_owner(&eggs(), None).unwrap_err();
        nothing.check_owner(&eggs(), Some("auk")).unwrap_err();
        assert!(!nothing.may_see(&eggs(), Some("auk")));
    }

    #[test]
    fn an_owner_and_whoever_has_its_role_do_everything_with_what_they_own() {
        let nothing = rights(&[]);
        for owner in ["kea", "keas"] {
            nothing
                .check_privilege(Privilege::Select, &eggs(), Some(owner))
                .unwrap();
            nothing
                .check_privilege(Privilege::Insert, &eggs(), Some(owner))
                .unwrap();
            nothing.check_owner(&eggs(), Some(owner)).unwrap();
        }
    }

    #[test]
    fn what_was_granted_is_allowed_and_nothing_else() {
        let reads_one = rights(&[(GrantObject::Table(eggs()), &[Privilege::Select])]);
        reads_one
            .check_privilege(Privilege::Select, &eggs(), None)
            .unwrap();
        reads_one
            .check_privilege(Privilege::Insert, &eggs(), None)
            .unwrap_err();
        reads_one
            .check_privilege(Privilege::Select, &nests(), None)
            .unwrap_err();
        reads_one.check_owner(&eggs(), None).unwrap_err();
        assert!(reads_one.may_see(&eggs(), None));
        let writes_all = rights(&[(GrantObject::AllTables, &[Privilege::Insert])]);
        writes_all
            .check_privilege(Privilege::Insert, &nests(), None)
            .unwrap();
        writes_all
            .check_privilege(Privilege::Select, &nests(), None)
            .unwrap_err();
        writes_all.check_create_in("public").unwrap_err();
        rights(&[(GrantObject::Cluster, &[Privilege::Create])])
            .check_create_in("public")
            .unwrap();
    }

    #[test]
    fn administrators_and_a_cluster_without_users_are_asked_nothing() {
        for rights in [Rights::of_admin("auk", 1), Rights::of_open_cluster("auk")] {
            rights
                .check_privilege(Privilege::Insert, &eggs(), Some("kea"))
                .unwrap();
            rights.check_owner(&eggs(), None).unwrap();
            rights.check_create_in("public").unwrap();
            rights.check_admin("drop users").unwrap();
        }
        assert_eq!(Rights::of_admin("auk", 1).owner(), Some("auk"));
        assert_eq!(Rights::of_open_cluster("auk").owner(), None);
    }
}
