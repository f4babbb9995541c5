//! Creating and dropping views and saved queries.

use std::sync::Arc;

use volary_flight_proto::{Error, Result};

use super::Catalog;
use super::access::Rights;
use super::table::{NewView, View};
use super::tables::check_name_is_free;

impl Catalog {
    /// Keeps a query under a name. `by`: whose statement it is.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` for a name that is taken, unless it is one of the same kind and `or_replace` is set; `PERMISSION_DENIED` if that is
    /// another one's; those of the store.
    pub async fn create_view(
        &self,
        new: NewView,
        or_replace: bool,
        by: &Arc<Rights>,
    ) -> Result<Arc<View>> {
        let by = Arc::clone(by);
        self.change(move |draft| {
            let name = new.name.as_str();
            let by = draft.state().access.now(&by)?;
            by.check_create()?;
            // It reads with the rights of its owner, and stays that one's, whoever replaces it.
            let is_replaced =
                |former: &&Arc<View>| or_replace && former.is_query() == new.parameters.is_some();
            let owner = match draft.state().view_seen_by(name, &by).filter(is_replaced) {
                Some(former) => {
                    by.check_owner(name, former.owner())?;
                    former.owner().map(str::to_owned)
                }
                None => {
                    check_name_is_free(draft, name)?;
                    by.owner().map(str::to_owned)
                }
            };
            let view = Arc::new(View::new(&new, owner.as_deref()));
            draft.put_view(&view)?;
            Ok(view)
        })
        .await
    }

    /// Forgets a view or a saved query. Returns none if there is none and `if_exists` is set. `by`: whose statement it is.
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
            let Some(view) = state.view_seen_by(&name, &by).cloned() else {
                return match state.table_seen_by(&name, &by) {
                    Some(_) => Err(Error::invalid(format!(
                        "{name} is a table; use DROP TABLE {name}"
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
