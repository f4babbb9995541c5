use volary_catalog::TEMPORARY_SCHEMA;
use volary_flight_proto::{Error, Result, SqlState};

use super::context::StatementContext;
use super::delete_files::delete_files;
use super::{Engine, Session};
use crate::sql::names::{
    CATALOG, INFORMATION_SCHEMA, PUBLIC, SYSTEM, check_catalog, is_cluster_schema,
};
use crate::sql::schema_statement::SchemaStatement;

/// Runs a statement that creates or drops schemas, or comments on one. Returns whether it has
/// changed anything.
///
/// # Errors
/// The catalog's errors.
pub(super) async fn run(
    engine: &Engine,
    context: &StatementContext,
    statement: SchemaStatement,
) -> Result<bool> {
    let (catalog, by) = (&engine.catalog, &context.rights);
    match statement {
        SchemaStatement::Create {
            name,
            owner,
            if_not_exists,
        } => {
            let owner = owner.as_deref();
            let creating = catalog.create_schema(&name, owner, if_not_exists, by);
            creating.await
        }
        SchemaStatement::Drop {
            names,
            if_exists,
            is_cascade,
        } => {
            let dropping = catalog.drop_schemas(names, if_exists, is_cascade, by);
            let dropped = dropping.await?;
            for table in dropped.iter().flatten() {
                delete_files(engine, table);
            }
            Ok(dropped.is_some())
        }
        SchemaStatement::Comment { schema, text } => {
            catalog.set_schema_comment(&schema, text, by).await?;
            Ok(true)
        }
    }
}

impl Engine {
    /// Returns the schemas that the user of this session may see.
    pub(crate) fn schemas(&self, session: &Session) -> Vec<String> {
        let (state, rights) = (self.catalog.state(), session.rights());
        let session = session.temporary_session();
        let has_temporary = session.is_some_and(|session| state.has_temporary(session));
        let temporary = has_temporary.then_some(TEMPORARY_SCHEMA);
        let created = state.schemas().map(|schema| schema.name.as_str());
        let created = created.filter(|schema| state.may_see_schema(schema, rights));
        let names = [PUBLIC, SYSTEM, INFORMATION_SCHEMA].into_iter();
        let names = names.chain(temporary).chain(created);
        names.map(str::to_owned).collect()
    }

    /// Changes the current schema of a session. `None` stands for the default.
    ///
    /// # Errors
    /// `NOT_FOUND` for a schema that does not exist, or that the user may not see.
    /// `INVALID_ARGUMENT` for a schema of the cluster.
    pub(crate) fn use_schema(&self, session: &Session, schema: Option<&str>) -> Result<()> {
        let schema = schema.filter(|schema| *schema != PUBLIC);
        if let Some(schema) = schema {
            if is_cluster_schema(schema) {
                return Err(Error::invalid(format!(
                    "{schema} cannot be the current schema, because nothing can be created in it; write the names of its tables in full, such as {SYSTEM}.nodes"
                ))
                .with_sqlstate(SqlState::InvalidSchemaName));
            }
            let state = self.catalog.state();
            state.check_schema(schema, session.rights())?;
        }
        session.set_schema(schema);
        Ok(())
    }

    /// Changes a setting of a session. `None` resets it to its default.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the setting does not exist, or does not take the value. `NOT_FOUND`
    /// for a schema that does not exist.
    pub(super) fn change_setting(
        &self,
        session: &Session,
        name: &str,
        value: Option<String>,
    ) -> Result<()> {
        if Session::is_schema_setting(name) {
            return self.use_schema(session, value.as_deref());
        }
        session.change_setting(name, value)
    }

    /// Runs USE. `name` has the parts of the name after USE, and no parts for the default.
    ///
    /// # Errors
    /// The errors of [`Self::use_schema`]. `NOT_FOUND` for another catalog.
    pub(super) fn run_use(&self, session: &Session, name: &[String]) -> Result<()> {
        let parts: Vec<&str> = name.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [] => self.use_schema(session, None),
            // The only catalog is always the current one.
            [CATALOG] if self.catalog.state().schema(CATALOG).is_none() => Ok(()),
            [schema] => self.use_schema(session, Some(schema)),
            [catalog, schema] => {
                check_catalog(catalog)?;
                self.use_schema(session, Some(schema))
            }
            _ => Err(Error::not_found(format!(
                "there is no schema {}; write USE schema",
                parts.join(".")
            ))
            .with_sqlstate(SqlState::InvalidSchemaName)),
        }
    }
}
