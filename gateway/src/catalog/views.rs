//! Creating and dropping views.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use volary_flight_proto::{Error, Result};

use super::Catalog;
use super::access::Rights;
use super::table::View;
use super::tables::check_name_is_free;

impl Catalog {
    /// Keeps a query under a name. `schema` has its columns. `by`: whose statement it is.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` for a name that is taken, unless it is a view's and `or_replace` is set; `PERMISSION_DENIED` if that view is another
    /// one's; those of the store.
    pub async fn create_view(
        &self,
        name: &str,
        sql: &str,
        schema: SchemaRef,
        or_replace: bool,
        by: &Arc<Rights>,
    ) -> Result<Arc<View>> {
        let (name, sql, by) = (name.to_owned(), sql.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let by = draft.state().access.now(&by)?;
            by.check_create()?;
            // It reads with the rights of its owner, and stays that one's, whoever replaces it.
            let owner = match draft.state().view(&name) {
                Some(former) if or_replace => {
                    by.check_owner(&name, former.owner())?;
                    former.owner().map(str::to_owned)
                }
                _ => {
                    check_name_is_free(draft, &name)?;
                    by.owner().map(str::to_owned)
                }
            };
            let view = View::new(&name, &sql, Arc::clone(&schema), owner.as_deref());
            let view = Arc::new(view);
            draft.put_view(&view)?;
            Ok(view)
        })
        .await
    }

    /// Forgets a view. Returns none if there is none and `if_exists` is set. `by`: whose statement it is.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, `INVALID_ARGUMENT` if it is a table, `PERMISSION_DENIED` if it is another one's; those of the store.
    pub async fn drop_view(
        &self,
        name: &str,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<Option<Arc<View>>> {
        let (name, by) = (name.to_owned(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.now(&by)?;
            let Some(view) = state.view(&name).cloned() else {
                return match state.table(&name) {
                    Some(_) => Err(Error::invalid(format!(
                        "\"{name}\" is a table, not a view; use DROP TABLE"
                    ))),
                    None if if_exists => Ok(None),
                    None => Err(state.no_such_view(&name, &by)),
                };
            };
            by.check_owner(&name, view.owner())?;
            draft.remove_view(&name);
            draft.revoke_all_on(&name)?;
            Ok(Some(view))
        })
        .await
    }
}
