//! Saved queries: queries with typed parameters that the catalog keeps under a name. `CALL name(…)` runs one, and FROM name(…) reads its rows
//! within another query.
//!
//! A saved query is a view with parameters: it has an owner, with whose rights it reads, and is granted as views are. Its query is planned
//! once per statement, with a cast of the parameter's type around each `$name` ([`body`]); a call puts its arguments in their place
//! ([`call`]).

/// What arguments and defaults may be.
mod argument;
/// The query of a saved query.
mod body;
/// Calls: from arguments to a plan.
mod call;
/// Where a statement calls something.
mod calls;
/// CREATE QUERY and DROP QUERY as they are written.
mod parse;

use volary_flight_proto::{Error, Result};

pub(super) use body::{PlannedBody, typed};
pub(super) use call::{SavedQueries, called_as_select};
pub(super) use calls::{calls, is_plain_call};
pub(super) use parse::parse;

use super::Engine;
use super::columns::coerced_schema;
use super::context::StatementContext;
use volary_catalog::{NewView, QueryParameter};

/// A statement about saved queries.
#[derive(Debug, PartialEq, Eq)]
pub enum SavedQueryStatement {
    /// CREATE [OR REPLACE] QUERY.
    Create {
        /// Its name.
        name: String,
        /// Its parameters, in the order of a call's arguments.
        parameters: Vec<QueryParameter>,
        /// Its query, with `$name` for each parameter.
        sql: String,
        /// Whether it may replace another one.
        or_replace: bool,
    },
    /// DROP QUERY.
    Drop {
        /// Its name.
        name: String,
        /// Whether it is no error if there is none.
        if_exists: bool,
    },
}

/// Runs a statement.
///
/// # Errors
/// `INVALID_ARGUMENT` for a query that cannot be planned; those of the catalog.
pub(super) async fn run(
    engine: &Engine,
    context: &StatementContext,
    statement: SavedQueryStatement,
) -> Result<()> {
    let by = &context.rights;
    match statement {
        SavedQueryStatement::Create {
            name,
            parameters,
            sql,
            or_replace,
        } => {
            let at = |error: Error| error.at(format!("query {name}"));
            argument::check_defaults(&context.state, &parameters).map_err(at)?;
            let statement = typed(&sql, &parameters).map_err(at)?;
            let plan = context.plan(statement).await.map_err(at)?;
            let schema = coerced_schema(&context.state, &body::with_nulls(plan).map_err(at)?);
            let view = NewView {
                name: name.clone(),
                sql,
                schema: schema.map_err(at)?,
                parameters: Some(parameters),
            };
            engine.catalog.create_view(view, or_replace, by).await?;
        }
        SavedQueryStatement::Drop { name, if_exists } => {
            let is_query = |name: &str| context.catalog.view(name).is_some_and(|it| it.is_query());
            if context.catalog.is_seen_by(&name, &context.rights) && !is_query(&name) {
                return Err(Error::invalid(format!(
                    "\"{name}\" is no saved query; use DROP TABLE or DROP VIEW"
                )));
            }
            engine.catalog.drop_view(&name, if_exists, by).await?;
        }
    }
    Ok(())
}
