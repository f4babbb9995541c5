use std::sync::Arc;

use volary_flight_proto::{Error, Result};

use super::Catalog;
use super::access::{GrantObject, Rights};
use super::relation_name::RelationName;
use super::table::{NewView, View};
use super::tables::check_name_is_free;

impl Catalog {
    /// Stores a view or a saved query. `by` holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the name is taken, unless `or_replace` is set and the existing object is
    /// of the same kind; `PERMISSION_DENIED` if that object belongs to somebody else, or without
    /// the `CREATE` privilege; and the errors of the store.
    pub async fn create_view(
        &self,
        new: NewView,
        or_replace: bool,
        by: &Arc<Rights>,
    ) -> Result<Arc<View>> {
        let by = Arc::clone(by);
        self.change(move |draft| {
            let name = &new.name;
            let by = draft.state().access.current_rights(&by)?;
            draft.state().check_create(name.schema(), &by)?;
            // A view reads with the rights of its owner, so it keeps its owner when somebody
            // replaces it.
            let is_replaced = |former: &&Arc<View>| {
                or_replace && former.is_saved_query() == new.parameters.is_some()
            };
            let owner = match draft.state().visible_view(name, &by).filter(is_replaced) {
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

    /// Drops a view or a saved query. Returns `None` if it does not exist and `if_exists` is set.
    /// `by` holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist, `INVALID_ARGUMENT` if the name is that of a table,
    /// `PERMISSION_DENIED` if it belongs to somebody else, and the errors of the store.
    pub async fn drop_view(
        &self,
        name: &RelationName,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<Option<Arc<View>>> {
        let (name, by) = (name.clone(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            let Some(view) = state.visible_view(&name, &by).cloned() else {
                return match state.visible_table(&name, &by) {
                    Some(_) => Err(Error::invalid(format!(
                        "{name} is a table; use DROP TABLE {name}"
                    ))),
                    None if if_exists => Ok(None),
                    None => Err(state.no_such_view(&name, &by)),
                };
            };
            by.check_owner(&name, view.owner())?;
            draft.remove_view(&name);
            draft.revoke_all_on(|object| *object == GrantObject::Table(name.clone()))?;
            Ok(Some(view))
        })
        .await
    }
}
