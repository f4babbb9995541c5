use std::collections::BTreeSet;
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
        let (by, limits) = (Arc::clone(by), self.temporary_limits);
        self.change(move |draft| {
            let name = &new.name;
            let by = draft.state().access.current_rights(&by)?;
            draft.state().check_create(name, &by)?;
            // A view reads with the rights of its owner, so it keeps its owner when somebody
            // replaces it.
            let is_replaced = |former: &&Arc<View>| {
                or_replace && former.is_saved_query() == new.parameters.is_some()
            };
            let view = match draft.state().visible_view(name, &by).filter(is_replaced) {
                Some(former) => {
                    by.check_owner(name, former.owner())?;
                    View::new(&new, former.owner()).with_comment(former.comment())
                }
                None => {
                    check_name_is_free(draft, name)?;
                    limits.check_room(draft.state(), name, by.owner())?;
                    View::new(&new, by.owner())
                }
            };
            let view = Arc::new(view);
            draft.put_view(&view)?;
            Ok(view)
        })
        .await
    }

    /// Sets the comment on a view or a saved query. `None` removes it. `by` holds the rights of the
    /// user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist, `INVALID_ARGUMENT` if the name is that of a table,
    /// `PERMISSION_DENIED` if it belongs to somebody else, and the errors of the store.
    pub async fn set_view_comment(
        &self,
        name: &RelationName,
        comment: Option<String>,
        by: &Arc<Rights>,
    ) -> Result<()> {
        let (name, by) = (name.clone(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            let Some(view) = state.visible_view(&name, &by) else {
                return match state.visible_table(&name, &by) {
                    Some(_) => Err(Error::invalid(format!(
                        "{name} is a table; use COMMENT ON TABLE {name}"
                    ))),
                    None => Err(state.no_such_view(&name, &by)),
                };
            };
            by.check_owner(&name, view.owner())?;
            let view = Arc::new(view.with_comment(comment.as_deref()));
            draft.put_view(&view)
        })
        .await
    }

    /// Drops views, or saved queries if `kind` says so, all of them or none. Returns the number of
    /// those that existed. Others are no error if `if_exists` is set. `by` holds the rights of the
    /// user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if one of them does not exist, `INVALID_ARGUMENT` if a name is that of something
    /// else, `PERMISSION_DENIED` if one of them belongs to somebody else, and the errors of the
    /// store.
    pub async fn drop_views(
        &self,
        kind: ViewKind,
        names: BTreeSet<RelationName>,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<usize> {
        let by = Arc::clone(by);
        self.change_with_ballast(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let mut dropped = 0;
            for name in &names {
                let state = draft.state();
                let Some(view) = state.visible_view(name, &by) else {
                    match state.visible_table(name, &by) {
                        Some(_) => {
                            return Err(Error::invalid(format!(
                                "{name} is a table; use DROP TABLE {name}"
                            )));
                        }
                        None if if_exists => continue,
                        None => return Err(state.no_such_view(name, &by)),
                    }
                };
                kind.check(view)?;
                by.check_owner(name, view.owner())?;
                draft.remove_view(name);
                draft.revoke_all_on(|object| *object == GrantObject::Table(name.clone()))?;
                dropped += 1;
            }
            Ok(dropped)
        })
        .await
    }
}

/// Says whether views or saved queries are meant. They share one set of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    /// A view.
    View,
    /// A saved query.
    SavedQuery,
}

impl ViewKind {
    fn check(self, view: &View) -> Result<()> {
        let name = view.name();
        match (self, view.is_saved_query()) {
            (Self::View, true) => Err(Error::invalid(format!(
                "{name} is a saved query; use DROP QUERY {name}"
            ))),
            (Self::SavedQuery, false) => Err(Error::invalid(format!(
                "{name} is a view; use DROP VIEW {name}"
            ))),
            _ => Ok(()),
        }
    }
}
