//! Creating and dropping views.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use volary_flight_proto::{Error, Result};

use super::Catalog;
use super::table::View;
use super::tables::check_name_is_free;

impl Catalog {
    /// Keeps a query under a name. `schema` has its columns.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` for a name that is taken, unless it is a view's and `or_replace` is set; those of the store.
    pub async fn create_view(
        &self,
        name: &str,
        sql: &str,
        schema: SchemaRef,
        or_replace: bool,
    ) -> Result<Arc<View>> {
        let view = Arc::new(View::new(name, sql, schema));
        self.change(move |draft| {
            if !(or_replace && draft.state().view(view.name()).is_some()) {
                check_name_is_free(draft, view.name())?;
            }
            draft.put_view(&view)?;
            Ok(Arc::clone(&view))
        })
        .await
    }

    /// Forgets a view. Returns none if there is none and `if_exists` is set.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, `INVALID_ARGUMENT` if it is a table; those of the store.
    pub async fn drop_view(&self, name: &str, if_exists: bool) -> Result<Option<Arc<View>>> {
        let name = name.to_owned();
        self.change(move |draft| {
            let state = draft.state();
            let Some(view) = state.view(&name).cloned() else {
                return match state.table(&name) {
                    Some(_) => Err(Error::invalid(format!(
                        "\"{name}\" is a table, not a view; use DROP TABLE"
                    ))),
                    None if if_exists => Ok(None),
                    None => Err(state.no_such_view(&name)),
                };
            };
            draft.remove_view(&name);
            Ok(Some(view))
        })
        .await
    }
}
