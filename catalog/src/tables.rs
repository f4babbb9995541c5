use std::collections::BTreeSet;
use std::sync::Arc;

use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::access::{GrantObject, Rights};
use super::declarations::Declarations;
use super::definition::{DefinitionKind, IfExists, TableDefinition};
use super::draft::Draft;
use super::open_write::OpenWrite;
use super::records::{PlacementRecord, TableKind, TableRecord, TableState};
use super::relation_name::RelationName;
use super::state::CatalogState;
use super::statistics::TableStatistics;
use super::table::{Table, View};
use super::{Catalog, encoding, name, now_ms, shard_placement};

impl Catalog {
    /// Creates an empty table on the `live` workers, of which there must be at least one. Returns
    /// `None` if a table of this name exists and is [kept](IfExists::Keep). `by` holds the rights
    /// of the user who runs the statement.
    ///
    /// Tables of equal shard count share their placement, so that rows with equal keys are on the
    /// same worker.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a definition that cannot be a table, `ALREADY_EXISTS` if the name is
    /// taken, `PERMISSION_DENIED` without the `CREATE` privilege or if the table to replace belongs
    /// to somebody else, `UNAVAILABLE` if no worker is live, and the errors of the store.
    pub async fn create_table(
        &self,
        definition: TableDefinition,
        live: &[WorkerId],
        if_exists: IfExists,
        by: &Arc<Rights>,
    ) -> Result<Option<Arc<Table>>> {
        definition.check()?;
        let (live, by, limits) = (live.to_vec(), Arc::clone(by), self.temporary_limits);
        self.change(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let mut replaced = None;
            if let Some(table) = draft.state().table(&definition.name).cloned() {
                match if_exists {
                    IfExists::Fail => {}
                    IfExists::Keep => return Ok(None),
                    IfExists::Replace => {
                        check_may_replace(draft, &table, &by)?;
                        draft.remove_table(&table);
                        replaced = Some(table);
                    }
                }
            }
            draft.state().check_create(&definition.name, &by)?;
            check_name_is_free(draft, &definition.name)?;
            let owner = owner_of_new_table(replaced.as_deref(), &by);
            limits.check_room(draft.state(), &definition.name, owner.as_deref())?;
            let table = new_table(draft, &definition, &live, owner, InitialState::LIVE)?;
            Ok(Some(table))
        })
        .await
    }

    /// Reserves the name and the placement of a table that becomes visible with the commit of its
    /// first write, and opens that write. If the write is aborted, the table never existed. A table
    /// that it [replaces](IfExists::Replace) stays until the commit.
    ///
    /// # Errors
    /// The errors of [`Self::create_table`]. `ALREADY_EXISTS` also for [`IfExists::Keep`].
    pub async fn begin_create(
        &self,
        definition: TableDefinition,
        live: &[WorkerId],
        if_exists: IfExists,
        by: &Arc<Rights>,
    ) -> Result<(Arc<Table>, OpenWrite)> {
        definition.check()?;
        let (live, by, limits) = (live.to_vec(), Arc::clone(by), self.temporary_limits);
        let create = move |draft: &mut Draft, write| {
            let by = draft.state().access.current_rights(&by)?;
            draft.state().check_create(&definition.name, &by)?;
            let former = draft.state().table(&definition.name).cloned();
            let replaced = former.filter(|_| if_exists == IfExists::Replace);
            match &replaced {
                Some(table) => check_may_replace(draft, table, &by)?,
                None => check_name_is_free(draft, &definition.name)?,
            }
            let replaces = replaced.is_some();
            let owner = owner_of_new_table(replaced.as_deref(), &by);
            limits.check_room(draft.state(), &definition.name, owner.as_deref())?;
            let initial = InitialState {
                state: TableState::Creating(write),
                is_replacement: replaces,
            };
            new_table(draft, &definition, &live, owner, initial)
        };
        self.open_first_write(create).await
    }

    /// Drops tables, all of them or none. No statement that starts from now on finds them, and
    /// workers delete their files. Returns the dropped tables, without those that do not exist if
    /// `if_exists` is set. `by` holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if a table does not exist, `INVALID_ARGUMENT` if a name is that of a view or a
    /// saved query, `PERMISSION_DENIED` if a table belongs to somebody else, and the errors of the
    /// store.
    pub async fn drop_tables(
        &self,
        names: BTreeSet<RelationName>,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<Vec<Arc<Table>>> {
        let by = Arc::clone(by);
        self.change_with_ballast(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let dropped = owned_tables(draft.state(), &names, if_exists, &by, drop_as_view)?;
            for table in &dropped {
                draft.remove_table(table);
                draft
                    .revoke_all_on(|object| *object == GrantObject::Table(table.name().clone()))?;
            }
            Ok(dropped)
        })
        .await
    }

    /// Removes all rows of tables, of all tables or none. Each table is replaced by an empty one
    /// with the same definition, rights and workers. So queries that run already and writes that
    /// are not committed yet find that their table is gone. Returns the former tables, without
    /// those that do not exist if `if_exists` is set. `by` holds the rights of the user who runs
    /// the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if a table does not exist, `INVALID_ARGUMENT` if a name is that of a view or a
    /// saved query, `PERMISSION_DENIED` if a table belongs to somebody else, and the errors of the
    /// store.
    pub async fn truncate_tables(
        &self,
        names: BTreeSet<RelationName>,
        if_exists: bool,
        by: &Arc<Rights>,
    ) -> Result<Vec<Arc<Table>>> {
        let by = Arc::clone(by);
        self.change_with_ballast(move |draft| {
            let by = draft.state().access.current_rights(&by)?;
            let emptied = owned_tables(draft.state(), &names, if_exists, &by, has_no_rows)?;
            for table in &emptied {
                let empty = table.emptied(draft.next_table())?;
                // Batches that were applied before are not applied again.
                draft.copy_producers(table.id(), empty.id())?;
                // The placement stays, because it is in use all the time.
                draft.put_table(&Arc::new(empty))?;
                draft.remove_table(table);
            }
            Ok(emptied)
        })
        .await
    }

    /// Changes the defaults, constraints or comments of a table. `alter` returns the new ones. `by`
    /// holds the rights of the user who runs the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table does not exist, `PERMISSION_DENIED` if it belongs to somebody else,
    /// `INVALID_ARGUMENT` for declarations that do not fit the table, and the errors of `alter` and
    /// of the store.
    pub async fn alter_declarations(
        &self,
        name: &RelationName,
        by: &Arc<Rights>,
        alter: impl Fn(&CatalogState, &Table) -> Result<Declarations> + Send + Sync + 'static,
    ) -> Result<()> {
        let (name, by) = (name.clone(), Arc::clone(by));
        self.change(move |draft| {
            let state = draft.state();
            let by = state.access.current_rights(&by)?;
            state.check_owner(&name, &by)?;
            let Some(table) = state.table(&name) else {
                return Err(Error::invalid(format!(
                    "{name} is not a table; only tables have defaults and constraints"
                )));
            };
            let declarations = alter(state, table)?;
            declarations
                .check(table.schema())
                .map_err(|error| error.at(format!("table {}", name.quoted())))?;
            let altered = Arc::new(table.with_declarations(declarations));
            draft.put_table(&altered)
        })
        .await
    }
}

/// Returns the tables of these names, without those that do not exist if `if_exists` is set.
///
/// # Errors
/// `not_a_table` of a view or a saved query that has one of the names, `NOT_FOUND` if a table does
/// not exist, and `PERMISSION_DENIED` if it belongs to somebody else.
fn owned_tables(
    state: &CatalogState,
    names: &BTreeSet<RelationName>,
    if_exists: bool,
    by: &Rights,
    not_a_table: impl Fn(&View) -> Error,
) -> Result<Vec<Arc<Table>>> {
    let mut tables = Vec::new();
    for name in names {
        let Some(table) = state.visible_table(name, by) else {
            match state.visible_view(name, by) {
                Some(view) => return Err(not_a_table(view)),
                None if if_exists => continue,
                None => return Err(state.no_such_table(name, by)),
            }
        };
        by.check_owner(name, table.owner())?;
        tables.push(Arc::clone(table));
    }
    Ok(tables)
}

/// Returns the error about a TRUNCATE that names a view or a saved query.
fn has_no_rows(view: &View) -> Error {
    let name = view.name();
    Error::invalid(format!(
        "{name} is not a table; only tables have rows that can be removed"
    ))
}

/// Returns the error about a DROP TABLE that names a view or a saved query.
fn drop_as_view(view: &View) -> Error {
    let name = view.name();
    if view.is_saved_query() {
        return Error::invalid(format!("{name} is a saved query; use DROP QUERY {name}"));
    }
    Error::invalid(format!("{name} is a view; use DROP VIEW {name}"))
}

/// Refuses to replace a table of another owner. A user who may not see that table only learns that
/// its name is taken.
fn check_may_replace(draft: &Draft, table: &Table, by: &Rights) -> Result<()> {
    if !by.may_see(table.name(), table.owner()) {
        return check_name_is_free(draft, table.name());
    }
    by.check_owner(table.name(), table.owner())
}

/// Returns the owner of a new table. A replacement keeps the owner of the replaced table.
fn owner_of_new_table(replaced: Option<&Table>, by: &Rights) -> Option<String> {
    let owner = replaced.map_or_else(|| by.owner(), Table::owner);
    owner.map(str::to_owned)
}

/// The state that a new table begins in.
#[derive(Clone, Copy)]
struct InitialState {
    state: TableState,
    is_replacement: bool,
}

impl InitialState {
    const LIVE: Self = Self {
        state: TableState::Live,
        is_replacement: false,
    };
}

fn new_table(
    draft: &mut Draft,
    definition: &TableDefinition,
    live: &[WorkerId],
    owner: Option<String>,
    initial: InitialState,
) -> Result<Arc<Table>> {
    if live.is_empty() {
        return Err(Error::unavailable(format!(
            "table \"{}\" cannot be created: no worker has joined; start a worker and retry",
            definition.name
        )));
    }
    let (kind, placement, shards) = match definition.kind {
        DefinitionKind::Sharded { key, shards } => {
            let placement = find_or_create_placement(draft, shards, live)?;
            (TableKind::Sharded { key, shards }, Some(placement), shards)
        }
        DefinitionKind::Reference => {
            let mut copies = live.to_vec();
            copies.sort_unstable();
            copies.dedup();
            (TableKind::Reference { copies }, None, 1)
        }
    };
    let id = draft.next_table();
    let fields = definition.schema.fields();
    let record = TableRecord {
        id,
        name: definition.name.clone(),
        schema: encoding::schema_to_hex(&definition.schema),
        columns: fields
            .iter()
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect(),
        kind,
        sort_key: definition.effective_sort_key(),
        state: initial.state,
        replaces: initial.is_replacement,
        owner,
        created_at_ms: now_ms(),
        declarations: definition.declarations.clone(),
    };
    let statistics = TableStatistics::empty(shards, fields.len());
    let table = Arc::new(Table::new(record, placement, Arc::new(statistics))?);
    draft.put_table(&table)?;
    Ok(table)
}

fn find_or_create_placement(
    draft: &mut Draft,
    shards: u32,
    live: &[WorkerId],
) -> Result<Arc<PlacementRecord>> {
    if let Some(placement) = draft.state().placements.get(&shards) {
        return Ok(Arc::clone(placement));
    }
    let placement = Arc::new(PlacementRecord {
        shards,
        workers: shard_placement::spread_shards(draft.state(), shards, live),
        epoch: draft.next_epoch(),
    });
    draft.put_placement(&placement)?;
    Ok(placement)
}

/// Refuses a name that a table or a view already has. Tables and views share one set of names.
pub(super) fn check_name_is_free(draft: &Draft, name: &RelationName) -> Result<()> {
    name::check(name.name())?;
    let exists = |what: String| {
        let exists = Error::new(ErrorCode::AlreadyExists, what);
        Err(exists.with_sqlstate(SqlState::DuplicateTable))
    };
    let state = draft.state();
    if state.table(name).is_some() {
        return exists(format!(
            "table \"{name}\" exists already; drop it first or choose another name"
        ));
    }
    if state.table_names.contains_key(name) {
        return exists(format!(
            "table \"{name}\" is being created by another statement; wait for it or choose another name"
        ));
    }
    if state.view(name).is_some() {
        return exists(format!(
            "a view named \"{name}\" exists already; drop it first or choose another name"
        ));
    }
    Ok(())
}
