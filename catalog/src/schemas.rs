use std::collections::BTreeSet;
use std::sync::Arc;

use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::access::{GrantObject, Rights};
use super::records::SchemaRecord;
use super::relation_name::{PUBLIC_SCHEMA, RelationName, TEMPORARY_SCHEMA};
use super::state::similarity;
use super::table::Table;
use super::{Catalog, CatalogState, name, now_ms};

/// The schemas that always exist. Nobody can create or drop them.
const FIXED_SCHEMAS: [&str; 3] = [PUBLIC_SCHEMA, "system", "information_schema"];

/// A schema of PostgreSQL, for which tools look. Nobody can create it.
const PG_CATALOG: &str = "pg_catalog";

/// Maximum number of names that the error about a schema that is not empty lists.
const MAX_LISTED_NAMES: usize = 3;

impl Catalog {
    /// Creates a schema. `owner` is its owner if this is not the user who runs the statement.
    /// Returns false if `if_not_exists` is set and the schema exists. `by` holds the rights of the
    /// user who runs the statement.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the name is taken, `INVALID_ARGUMENT` for an invalid or reserved name,
    /// `PERMISSION_DENIED` without the `CREATE` privilege on the cluster or without the right to
    /// give the schema to that owner, `NOT_FOUND` if the owner does not exist, and the errors of
    /// the store.
    pub async fn create_schema(
        &self,
        name: &str,
        owner: Option<&str>,
        if_not_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<bool> {
        let (name, owner) = (name.to_owned(), owner.map(str::to_owned));
        let by = Arc::clone(by);
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            if FIXED_SCHEMAS.contains(&name.as_str()) || state.schemas.contains_key(&name) {
                if if_not_exists {
                    return Ok(false);
                }
                return Err(Error::new(
                    ErrorCode::AlreadyExists,
                    format!("schema \"{name}\" exists already; choose another name"),
                )
                .with_sqlstate(SqlState::DuplicateSchema));
            }
            name::check(&name)?;
            if name == PG_CATALOG || name.starts_with(TEMPORARY_SCHEMA) {
                return Err(Error::invalid(format!(
                    "schema \"{name}\" cannot be created: the name is reserved; choose another name"
                )));
            }
            by.check_create_schema()?;
            if let Some(owner) = &owner {
                state.check_may_own(owner, &by)?;
            }
            let owner = owner.clone().or_else(|| by.owner().map(str::to_owned));
            draft.put_schema(&Arc::new(SchemaRecord {
                name: name.clone(),
                owner,
                created_at_ms: now_ms(),
                comment: None,
            }))?;
            Ok(true)
        })
        .await
    }

    /// Drops schemas, all of them or none, and revokes what was granted on them. If `cascade` is
    /// set, their tables, views and saved queries are dropped, too. Returns the dropped tables, or
    /// `None` if there was nothing to drop. `by` holds the rights of the user who runs the
    /// statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if a schema does not exist and `if_exists` is not set, `INVALID_ARGUMENT` for a
    /// schema that always exists and, without `cascade`, for one that is not empty,
    /// `PERMISSION_DENIED` if a schema belongs to somebody else, and the errors of the store.
    pub async fn drop_schemas(
        &self,
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
        by: &Arc<Rights>,
    ) -> Result<Option<Vec<Arc<Table>>>> {
        let by = Arc::clone(by);
        self.change_with_ballast(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let mut dropped: Option<Vec<_>> = None;
            for name in &names {
                if [FIXED_SCHEMAS.as_slice(), &[PG_CATALOG]].concat().contains(&name.as_str()) {
                    return Err(Error::invalid(format!(
                        "schema \"{name}\" cannot be dropped: it belongs to the cluster; drop its tables one by one"
                    )));
                }
                let state = draft.state();
                let schema = match state.schemas.get(name) {
                    Some(schema) if state.may_see_schema(name, &by) => Arc::clone(schema),
                    _ if if_exists => continue,
                    _ => return Err(state.no_such_schema(name, &by)),
                };
                by.check_owner_of_schema(name, schema.owner.as_deref())?;
                if !cascade {
                    state.check_schema_is_empty(name)?;
                }
                let tables: Vec<_> = state
                    .all_tables()
                    .filter(|table| table.name().schema() == name)
                    .cloned()
                    .collect();
                let views: Vec<_> = state
                    .views()
                    .filter(|view| view.name().schema() == name)
                    .map(|view| view.name().clone())
                    .collect();
                for table in &tables {
                    draft.remove_table(table);
                }
                dropped.get_or_insert_default().extend(tables);
                for view in views {
                    draft.remove_view(&view);
                }
                draft.revoke_all_on(|object| match object {
                    GrantObject::Schema(schema) => schema == name,
                    GrantObject::Table(table) => table.schema() == name,
                    GrantObject::Cluster | GrantObject::AllTables => false,
                })?;
                draft.remove_schema(name);
            }
            Ok(dropped)
        })
        .await
    }

    /// Gives a schema to another owner. `by` holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if the schema or the new owner does not exist, `INVALID_ARGUMENT` for a schema
    /// that always exists, `PERMISSION_DENIED` if the user has no right to give it to the new
    /// owner, and the errors of the store.
    pub async fn set_schema_owner(&self, name: &str, owner: &str, by: &Arc<Rights>) -> Result<()> {
        let (name, owner, by) = (name.to_owned(), owner.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            state.check_owner_of_schema(&name, &by)?;
            state.check_may_own(&owner, &by)?;
            let Some(schema) = state.schemas.get(&name) else {
                return Err(Error::invalid(format!(
                    "schema \"{name}\" belongs to the cluster and has no owner"
                )));
            };
            let mut schema = schema.as_ref().clone();
            schema.owner = Some(owner.clone());
            draft.put_schema(&Arc::new(schema))
        })
        .await
    }

    /// Sets the comment on a schema. `None` removes it. `by` holds the rights of the user who runs
    /// the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if the schema does not exist, `INVALID_ARGUMENT` for a schema that always
    /// exists, `PERMISSION_DENIED` if it belongs to somebody else, and the errors of the store.
    pub async fn set_schema_comment(
        &self,
        name: &str,
        comment: Option<String>,
        by: &Arc<Rights>,
    ) -> Result<()> {
        let (name, by) = (name.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            state.check_owner_of_schema(&name, &by)?;
            let Some(schema) = state.schemas.get(&name) else {
                return Err(Error::invalid(format!(
                    "schema \"{name}\" belongs to the cluster and has no comment"
                )));
            };
            let mut schema = schema.as_ref().clone();
            schema.comment.clone_from(&comment);
            draft.put_schema(&Arc::new(schema))
        })
        .await
    }
}

impl CatalogState {
    /// Returns the schemas that users have created, ordered by name.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<SchemaRecord>> {
        self.schemas.values()
    }

    /// Returns a schema that a user has created.
    pub fn schema(&self, name: &str) -> Option<&Arc<SchemaRecord>> {
        self.schemas.get(name)
    }

    /// Returns whether a user with these rights may see a schema: it owns the schema, was granted
    /// something on it, or may see something in it. Everybody may see the schema `public`.
    pub fn may_see_schema(&self, name: &str, rights: &Rights) -> bool {
        if name == PUBLIC_SCHEMA {
            return true;
        }
        let first = RelationName::new(name, "");
        let is_in_schema = |relation: &&RelationName| relation.schema() == name;
        let tables = self.table_names.range(&first..).map(|(name, _)| name);
        let views = self.views.range(&first..).map(|(name, _)| name);
        self.schemas.contains_key(name)
            && (rights.has_right_on_schema(name)
                || tables
                    .take_while(is_in_schema)
                    .chain(views.take_while(is_in_schema))
                    .any(|relation| self.is_visible_to(relation, rights)))
    }

    /// Checks that a schema of tables exists, and that a user with these rights may see it.
    ///
    /// # Errors
    /// `NOT_FOUND`, with similar names.
    pub fn check_schema(&self, name: &str, rights: &Rights) -> Result<()> {
        if self.may_see_schema(name, rights) {
            return Ok(());
        }
        Err(self.no_such_schema(name, rights))
    }

    /// Refuses to create a table or view in a schema that does not exist, or without the right to
    /// do so. Everybody may create temporary ones, as in PostgreSQL.
    ///
    /// # Errors
    /// `NOT_FOUND` if the schema does not exist. `PERMISSION_DENIED`, with who can grant the
    /// privilege and how.
    pub fn check_create(&self, name: &RelationName, rights: &Rights) -> Result<()> {
        if name.is_temporary() {
            return Ok(());
        }
        self.check_schema(name.schema(), rights)?;
        rights.check_create_in(name.schema())
    }

    /// Refuses to grant on a schema, or to give it away, if somebody else owns it.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the owner; `NOT_FOUND` if a user with these rights may not see the
    /// schema.
    pub(super) fn check_owner_of_schema(&self, name: &str, rights: &Rights) -> Result<()> {
        self.check_schema(name, rights)?;
        let owner = self.schemas.get(name).and_then(|it| it.owner.as_deref());
        rights.check_owner_of_schema(name, owner)
    }

    /// Returns the error for a schema that does not exist. It suggests the most similar name that a
    /// user with these rights may see. The error is the same for an existing schema that the user
    /// may not see.
    pub(super) fn no_such_schema(&self, name: &str, rights: &Rights) -> Error {
        let visible = self
            .schemas
            .keys()
            .filter(|known| self.may_see_schema(known, rights));
        let most_similar = visible
            .map(String::as_str)
            .chain(FIXED_SCHEMAS)
            .filter_map(|known| Some((similarity(name, known)?, known)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let advice = match most_similar {
            Some((_, known)) => format!("did you mean \"{known}\"?"),
            None => "SHOW SCHEMAS lists the schemas".to_owned(),
        };
        let visibility_advice = rights.schema_visibility_advice(name);
        Error::not_found(format!(
            "there is no schema {name}{visibility_advice}; {advice}"
        ))
        .with_sqlstate(SqlState::InvalidSchemaName)
    }

    fn check_schema_is_empty(&self, name: &str) -> Result<()> {
        let tables = self.all_tables().map(|table| table.name());
        let names: BTreeSet<_> = tables
            .chain(self.views().map(|view| view.name()))
            .filter(|relation| relation.schema() == name)
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let listed: Vec<_> = names
            .iter()
            .take(MAX_LISTED_NAMES)
            .map(ToString::to_string)
            .collect();
        let more = match names.len().saturating_sub(listed.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(Error::invalid(format!(
            "schema \"{name}\" is not empty: it has {}{more}; drop them first, or drop the schema with all that is in it: DROP SCHEMA … CASCADE",
            listed.join(", ")
        )))
    }
}
