use volary_catalog::{NewView, RelationName, ViewKind};
use volary_flight_proto::{Error, Result};

use super::Engine;
use super::context::StatementContext;
use super::result_columns::{check_distinct_names, coerced_schema};
use crate::sql::saved_query::{SavedQueryStatement, bind_nulls, check_defaults, parse_with_types};

/// Runs a CREATE QUERY or DROP QUERY statement. Returns whether it has changed anything.
///
/// # Errors
/// `INVALID_ARGUMENT` for a query that cannot be planned. Also returns the catalog's errors.
pub(super) async fn run(
    engine: &Engine,
    context: &StatementContext,
    statement: SavedQueryStatement,
) -> Result<bool> {
    let by = &context.rights;
    match statement {
        SavedQueryStatement::Create {
            name,
            parameters,
            sql,
            or_replace,
        } => {
            let name = context.new_relation(&name)?;
            if name.is_temporary() {
                return Err(Error::unsupported(format!(
                    "{name}: a saved query cannot be temporary; create it in another schema"
                )));
            }
            let at = |error: Error| error.at(format!("query {name}"));
            check_defaults(&context.state, &parameters).map_err(at)?;
            let statement = parse_with_types(&sql, &parameters).map_err(at)?;
            let plan = context.plan(statement).await.map_err(at)?;
            let schema = coerced_schema(context.view_state(), &bind_nulls(plan).map_err(at)?);
            let schema = schema.map_err(at)?;
            let advice = "saved queries read only tables and views that stay";
            context.refuse_temporary_reads(&format!("query {name}"), advice)?;
            check_distinct_names(&format!("query {name}"), &schema)?;
            let view = NewView {
                name: name.clone(),
                sql,
                search_schema: context.schema().to_owned(),
                schema,
                parameters: Some(parameters),
            };
            engine.catalog.create_view(view, or_replace, by).await?;
            Ok(true)
        }
        SavedQueryStatement::Drop { name, if_exists } => {
            let name = context.user_relation(&name)?;
            let is_query = |name: &RelationName| {
                context
                    .catalog
                    .view(name)
                    .is_some_and(|view| view.is_saved_query())
            };
            if context.catalog.is_visible_to(&name, &context.rights) && !is_query(&name) {
                return Err(Error::invalid(format!(
                    "\"{name}\" is not a saved query; use DROP TABLE or DROP VIEW"
                )));
            }
            let (kind, names) = (ViewKind::SavedQuery, [name].into());
            let dropping = engine.catalog.drop_views(kind, names, if_exists, by);
            Ok(dropping.await? > 0)
        }
    }
}
