use std::collections::BTreeMap;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use volary_flight_proto::ids::{ClusterId, TableId, WorkerId, WriteId};
use volary_flight_proto::seal::Key;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, Result, SqlState};

use super::access::{Access, PrincipalRecord, Privilege, Rights, TokenRecord};
use super::producer_record::{ProducerRecord, TableProducers};
use super::records::{
    self, AbortRecord, ClusterRecord, DeltaRecord, LineageRecord, PlacementRecord, Record,
    SchemaRecord, StatisticsRecord, TableKind, TableRecord, TableState, ViewRecord, WorkerRecord,
    WriteRecord,
};
use super::relation_name::RelationName;
use super::statistics::{TableDelta, TableStatistics};
use super::statistics_log::StatisticsLog;
use super::store::{StoreContent, StoreEntry};
use super::table::{Table, View};

/// Maximum number of names that an error message suggests.
const MAX_SUGGESTIONS: usize = 3;
/// Minimum similarity of a suggested name (Jaro-Winkler, 0 to 1).
const MIN_SIMILARITY: f64 = 0.75;

/// Everything that the catalog knows, as of one moment. It never changes: each change creates a new
/// `CatalogState`, which shares the unchanged parts, so its cost does not depend on how much there
/// is.
#[derive(Debug, Clone)]
pub struct CatalogState {
    /// The version of the cluster record in the store. It changes with every change of the catalog.
    pub(super) version: u64,
    pub(super) cluster: ClusterRecord,
    pub(super) lineage: Arc<LineageRecord>,
    key: Key,
    pub(super) access: Arc<Access>,
    pub(super) workers: RedBlackTreeMapSync<WorkerId, Arc<WorkerRecord>>,
    /// All tables, including those that are being created.
    pub(super) tables: RedBlackTreeMapSync<TableId, Arc<Table>>,
    /// The tables by name, including those that are being created, whose names are taken. Tables
    /// that will replace another table are left out.
    pub(super) table_names: RedBlackTreeMapSync<RelationName, TableId>,
    pub(super) views: RedBlackTreeMapSync<RelationName, Arc<View>>,
    /// The schemas that users have created, by name. The schema `public` has no record.
    pub(super) schemas: RedBlackTreeMapSync<String, Arc<SchemaRecord>>,
    pub(super) placements: RedBlackTreeMapSync<u32, Arc<PlacementRecord>>,
    /// The failed writes whose rows some workers may still hold, by the number of their abort.
    pub(super) aborts: RedBlackTreeMapSync<u64, Arc<AbortRecord>>,
    /// The writes that an older release has left. The first change turns them into aborts.
    pub(super) former_writes: Vec<WriteRecord>,
    snapshot: Snapshot,
    /// What the store has of the statistics of each table.
    pub(super) statistics_logs: RedBlackTreeMapSync<TableId, StatisticsLog>,
    /// The producers of each table that has any.
    pub(super) producers: RedBlackTreeMapSync<TableId, TableProducers>,
}

impl CatalogState {
    /// Reads the state from the entries of a store. Returns `None` if the store is empty.
    pub(super) fn load(entries: &StoreContent) -> Result<Option<Self>> {
        let Some(entry) = entries.entries.get(ClusterRecord::PREFIX) else {
            return match entries.entries.keys().next() {
                None => Ok(None),
                Some(_) => Err(records::damaged(ClusterRecord::PREFIX, "whole content")),
            };
        };
        let cluster: ClusterRecord = records::decode(ClusterRecord::PREFIX, &entry.value)?;
        let mut state = Self::new(cluster, entry.version)?;
        if let Some(entry) = entries.entries.get(LineageRecord::PREFIX) {
            let lineage = records::decode(LineageRecord::PREFIX, &entry.value)?;
            state.lineage = Arc::new(lineage);
        }
        state.check_lineage()?;
        let principals: Vec<PrincipalRecord> = records_of_kind::<PrincipalRecord>(entries)
            .map(|(key, value)| records::decode(key, value))
            .collect::<Result<_>>()?;
        let tokens: Vec<TokenRecord> = records_of_kind::<TokenRecord>(entries)
            .map(|(key, value)| records::decode(key, value))
            .collect::<Result<_>>()?;
        for (key, value) in records_of_kind::<SchemaRecord>(entries) {
            let schema: SchemaRecord = records::decode(key, value)?;
            state
                .schemas
                .insert_mut(schema.name.clone(), Arc::new(schema));
        }
        let schema_owners = state.schemas.values().filter_map(|schema| {
            let owner = schema.owner.clone()?;
            Some((schema.name.clone(), owner))
        });
        state.access = Arc::new(Access::new(principals, tokens, schema_owners));
        for (key, value) in records_of_kind::<WorkerRecord>(entries) {
            let worker: WorkerRecord = records::decode(key, value)?;
            state.workers.insert_mut(worker.id, Arc::new(worker));
        }
        for (key, value) in records_of_kind::<PlacementRecord>(entries) {
            let placement: PlacementRecord = records::decode(key, value)?;
            state
                .placements
                .insert_mut(placement.shards, Arc::new(placement));
        }
        for (key, value) in records_of_kind::<WriteRecord>(entries) {
            state.former_writes.push(records::decode(key, value)?);
        }
        for (key, value) in records_of_kind::<AbortRecord>(entries) {
            let abort: AbortRecord = records::decode(key, value)?;
            state.aborts.insert_mut(abort.number, Arc::new(abort));
        }
        for (key, value) in records_of_kind::<ProducerRecord>(entries) {
            state.insert_producer(Arc::new(records::decode(key, value)?));
        }
        for (key, value) in records_of_kind::<ViewRecord>(entries) {
            let view = View::from_record(records::decode(key, value)?)?;
            state.views.insert_mut(view.name().clone(), Arc::new(view));
        }
        let mut statistics = BTreeMap::new();
        for (key, value) in records_of_kind::<StatisticsRecord>(entries) {
            let record: StatisticsRecord = records::decode(key, value)?;
            state.change_log(record.table, |log| log.note_record(value.len()));
            statistics.insert(record.table, record);
        }
        let mut deltas: BTreeMap<TableId, Vec<DeltaRecord>> = BTreeMap::new();
        for (key, value) in records_of_kind::<DeltaRecord>(entries) {
            let record: DeltaRecord = records::decode(key, value)?;
            state.change_log(record.table, |log| {
                log.note_delta(record.number, value.len());
            });
            deltas.entry(record.table).or_default().push(record);
        }
        for (key, value) in records_of_kind::<TableRecord>(entries) {
            let record: TableRecord = records::decode(key, value)?;
            let (shards, placement) = match record.kind {
                TableKind::Sharded { shards, .. } => {
                    (shards, state.placements.get(&shards).cloned())
                }
                TableKind::Reference { .. } => (1, None),
            };
            let mut statistics = statistics.get(&record.id).map_or_else(
                || TableStatistics::empty(shards, record.columns.len()),
                |statistics_record| TableStatistics::from_record(statistics_record, shards),
            );
            for delta in deltas.get(&record.id).into_iter().flatten() {
                statistics = statistics.with_write(delta.write, &TableDelta::from_record(delta));
            }
            state.insert_table(Arc::new(Table::new(
                record,
                placement,
                Arc::new(statistics),
            )?));
        }
        state.update_snapshot();
        Ok(Some(state))
    }

    /// Creates the state of a cluster that has nothing yet.
    pub(super) fn new(cluster: ClusterRecord, version: u64) -> Result<Self> {
        let key = parse_key(&cluster, Some(&cluster.key), "key")?;
        Ok(Self {
            version,
            cluster,
            lineage: Arc::default(),
            key,
            access: Arc::default(),
            workers: RedBlackTreeMapSync::default(),
            tables: RedBlackTreeMapSync::default(),
            table_names: RedBlackTreeMapSync::default(),
            views: RedBlackTreeMapSync::default(),
            schemas: RedBlackTreeMapSync::default(),
            placements: RedBlackTreeMapSync::default(),
            aborts: RedBlackTreeMapSync::default(),
            former_writes: Vec::new(),
            snapshot: Snapshot::default(),
            statistics_logs: RedBlackTreeMapSync::default(),
            producers: RedBlackTreeMapSync::default(),
        })
    }

    /// Returns the version of this state. Two states of one catalog are equal if their versions are
    /// equal.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn change_log(&mut self, table: TableId, change: impl FnOnce(&mut StatisticsLog)) {
        let mut log = self
            .statistics_logs
            .get(&table)
            .copied()
            .unwrap_or_default();
        change(&mut log);
        self.statistics_logs.insert_mut(table, log);
    }

    pub(super) fn insert_table(&mut self, table: Arc<Table>) {
        if !table.is_replacement() {
            self.table_names
                .insert_mut(table.name().clone(), table.id());
        }
        self.tables.insert_mut(table.id(), table);
    }

    pub(super) fn insert_producer(&mut self, producer: Arc<ProducerRecord>) {
        let table = producer.table;
        let mut of_table = self.producers.get(&table).cloned().unwrap_or_default();
        of_table.insert_mut(producer.producer.clone(), producer);
        self.producers.insert_mut(table, of_table);
    }

    /// Returns the id of the cluster.
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster.cluster_id
    }

    /// Returns the key that the messages of the cluster are sealed with if no secret is configured.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the key that session tokens are sealed with.
    ///
    /// # Errors
    /// `DATA_LOSS` if the key is damaged.
    pub fn token_key(&self) -> Result<Key> {
        parse_key(&self.cluster, self.cluster.token_key.as_ref(), "token_key")
    }

    /// Returns who may log in, and what they may do.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Returns the owner of the table or view of this name. Returns `None` if it does not exist,
    /// and `Some(None)` if it has no owner because there was no user when it was created.
    pub fn owner_of(&self, name: &RelationName) -> Option<Option<&str>> {
        match (self.table(name), self.view(name)) {
            (Some(table), _) => Some(table.owner()),
            (None, Some(view)) => Some(view.owner()),
            (None, None) => None,
        }
    }

    /// Returns the names of all tables, views and schemas that `owner` owns.
    pub(super) fn names_owned_by(&self, owner: &str) -> impl Iterator<Item = String> {
        let tables = self
            .all_tables()
            .filter(move |it| it.owner() == Some(owner));
        let views = self.views().filter(move |it| it.owner() == Some(owner));
        let schemas = self.schemas();
        let schemas = schemas.filter(move |it| it.owner.as_deref() == Some(owner));
        tables
            .map(|table| table.name().to_string())
            .chain(views.map(|view| view.name().to_string()))
            .chain(schemas.map(|schema| format!("the schema {}", schema.name)))
    }

    /// Returns whether a user with these rights may see the table or view.
    pub fn is_visible_to(&self, name: &RelationName, rights: &Rights) -> bool {
        self.visible_owner(name, rights).is_some()
    }

    /// Returns the table of this name, if a user with these rights may see it.
    pub(super) fn visible_table(
        &self,
        name: &RelationName,
        rights: &Rights,
    ) -> Option<&Arc<Table>> {
        self.table(name)
            .filter(|_| self.is_visible_to(name, rights))
    }

    /// Returns the view or saved query of this name, if a user with these rights may see it.
    pub(super) fn visible_view(&self, name: &RelationName, rights: &Rights) -> Option<&Arc<View>> {
        self.view(name).filter(|_| self.is_visible_to(name, rights))
    }

    /// Returns a number that distinguishes the table or view of this name from an earlier one of
    /// the same name: the id of a table, or the fingerprint of a view's text and owner.
    pub fn version_of(&self, name: &RelationName) -> Option<u64> {
        match (self.table(name), self.view(name)) {
            (Some(table), _) => Some(table.id().0),
            (None, Some(view)) => Some(view.version()),
            (None, None) => None,
        }
    }

    /// Refuses a query if a table or view that it reads was dropped or recreated after the query
    /// was planned.
    ///
    /// # Errors
    /// `NOT_FOUND`, with the name.
    pub fn check_unchanged(&self, reads: &BTreeMap<RelationName, u64>) -> Result<()> {
        match reads
            .iter()
            .find(|(name, version)| self.version_of(name) != Some(**version))
        {
            None => Ok(()),
            Some((name, _)) => Err(Error::not_found(format!(
                "\"{name}\" was dropped or recreated after the query was planned; run the query again"
            ))),
        }
    }

    /// Returns a table by its name. Tables that are still being created are not found.
    pub fn table(&self, name: &RelationName) -> Option<&Arc<Table>> {
        let table = self.tables.get(self.table_names.get(name)?)?;
        (table.state() == TableState::Live).then_some(table)
    }

    /// Returns a table by its id. Tables that are still being created are not found.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables
            .get(&id)
            .filter(|table| table.state() == TableState::Live)
    }

    /// Returns all tables, ordered by name, without those that are still being created and without
    /// temporary ones.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let names = self.table_names.keys().filter(|name| !name.is_temporary());
        names.filter_map(|name| self.table(name))
    }

    /// Returns all tables, including those that are still being created.
    pub(super) fn all_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// Returns the tables whose files workers must keep, ascending: all that exist or are being
    /// created.
    pub fn retained_tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.keys().copied()
    }

    /// Returns the highest table id that was given out, or `t0` if there was none.
    pub fn last_table_id(&self) -> TableId {
        TableId(self.cluster.next_table.saturating_sub(1))
    }

    /// Returns a view by its name.
    pub fn view(&self, name: &RelationName) -> Option<&Arc<View>> {
        self.views.get(name)
    }

    /// Returns all views, ordered by name, without temporary ones.
    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        let views = self.views.values();
        views.filter(|view| !view.name().is_temporary())
    }

    /// Returns a worker by its id.
    pub fn worker(&self, id: WorkerId) -> Option<&Arc<WorkerRecord>> {
        self.workers.get(&id)
    }

    /// Returns the worker that joins with this id from `address` (`host:port`).
    ///
    /// # Errors
    /// `NOT_FOUND` for an id that was never given out.
    pub fn known_worker(&self, id: WorkerId, address: &str) -> Result<&Arc<WorkerRecord>> {
        self.worker(id).ok_or_else(|| {
            Error::not_found(format!(
                "worker {id} at {address} is unknown to this cluster's catalog; start it with its own data directory, or with an empty one to join as a new worker; if the catalog was restored from a backup, restore a later one"
            ))
        })
    }

    /// Returns all workers that have ever joined, ordered by id.
    pub fn workers(&self) -> impl Iterator<Item = &Arc<WorkerRecord>> {
        self.workers.values()
    }

    /// Returns all placements, ordered by shard count.
    pub(crate) fn placements(&self) -> impl Iterator<Item = &Arc<PlacementRecord>> {
        self.placements.values()
    }

    /// Returns the snapshot of a query that starts now: it sees exactly the committed writes.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Computes the snapshot anew after writes were decided or aborts were forgotten.
    pub(super) fn update_snapshot(&mut self) {
        let mut excluded = self.cluster.undecided.clone();
        for abort in self.aborts.values() {
            excluded.insert_all(&abort.writes);
        }
        let reserved = WriteId(self.cluster.next_write.saturating_sub(1));
        self.snapshot = Snapshot::new(self.cluster.high.unwrap_or(reserved), &excluded);
    }

    /// Returns whether a write is neither committed nor aborted.
    pub(super) fn is_undecided(&self, write: WriteId) -> bool {
        self.cluster.high.is_some_and(|high| write > high) || self.cluster.undecided.contains(write)
    }

    /// Returns the failed writes whose rows this worker may still hold.
    pub fn aborted_writes_of(&self, worker: WorkerId) -> WriteSet {
        let mut writes = WriteSet::default();
        for abort in self.aborts.values() {
            if abort.workers.contains(&worker) {
                writes.insert_all(&abort.writes);
            }
        }
        writes
    }

    /// Returns the number of the last abort. It is 0 if there was none.
    pub fn last_abort(&self) -> u64 {
        self.cluster.next_abort.saturating_sub(1)
    }

    /// Returns the number of writes that were committed.
    pub fn commits(&self) -> u64 {
        self.cluster.commits
    }

    /// Checks that these rights include a privilege on a table or view.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with who can grant the privilege and how; `NOT_FOUND` if a user with
    /// these rights may not see the table or view.
    pub fn check_privilege(
        &self,
        privilege: Privilege,
        name: &RelationName,
        rights: &Rights,
    ) -> Result<()> {
        match self.visible_owner(name, rights) {
            Some(owner) => rights.check_privilege(privilege, name, owner),
            None => Err(self.no_such_table(name, rights)),
        }
    }

    /// Refuses to drop, give away or grant on a table or view that somebody else owns.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the owner; `NOT_FOUND` if a user with these rights may not see the
    /// table or view.
    pub(crate) fn check_owner(&self, name: &RelationName, rights: &Rights) -> Result<()> {
        match self.visible_owner(name, rights) {
            Some(owner) => rights.check_owner(name, owner),
            None => Err(self.no_such_table(name, rights)),
        }
    }

    fn visible_owner(&self, name: &RelationName, rights: &Rights) -> Option<Option<&str>> {
        self.owner_of(name)
            .filter(|owner| rights.may_see(name, *owner))
    }

    /// Returns the error for a table that does not exist. It suggests the most similar names that a
    /// user with these rights may see. The error is the same for an existing table that the user
    /// may not see.
    pub fn no_such_table(&self, name: &RelationName, rights: &Rights) -> Error {
        self.not_found_error("table", name, rights)
    }

    /// Returns the error for a table function or saved query that does not exist, like
    /// [`Self::no_such_table`] for a table.
    pub fn no_such_function(&self, name: &RelationName, rights: &Rights) -> Error {
        if let Err(error) = self.check_schema(name.schema(), rights) {
            return error;
        }
        self.not_found_error("table function or saved query", name, rights)
            .with_sqlstate(SqlState::UndefinedFunction)
    }

    /// Returns the error for a view that does not exist, like [`Self::no_such_table`] for a table.
    pub(crate) fn no_such_view(&self, name: &RelationName, rights: &Rights) -> Error {
        self.not_found_error("view", name, rights)
    }

    fn not_found_error(&self, what: &str, name: &RelationName, rights: &Rights) -> Error {
        if !name.is_temporary()
            && let Err(error) = self.check_schema(name.schema(), rights)
        {
            return error;
        }
        let suggestions: Vec<_> = self
            .similar_names(name, rights)
            .iter()
            .map(|known| format!("\"{known}\""))
            .collect();
        let advice = if suggestions.is_empty() {
            "SHOW TABLES lists the tables and views".to_owned()
        } else {
            format!("did you mean {}?", suggestions.join(" or "))
        };
        let visibility_advice = rights.visibility_advice(name);
        Error::not_found(format!(
            "{what} \"{name}\" does not exist{visibility_advice}; {advice}"
        ))
        .with_sqlstate(SqlState::UndefinedTable)
    }

    /// Returns the names of the tables and views that are most similar to `name`, the best match
    /// first.
    fn similar_names(&self, name: &RelationName, rights: &Rights) -> Vec<&RelationName> {
        let tables = self.tables().map(|table| table.name());
        let mut names: Vec<(f64, f64, &RelationName)> = tables
            .chain(self.views().map(|view| view.name()))
            .filter(|known| self.is_visible_to(known, rights))
            .filter_map(|known| {
                let likeness = similarity(name.name(), known.name())?;
                let exact = strsim::jaro_winkler(name.name(), known.name());
                Some((likeness, exact, known))
            })
            .collect();
        // Among equal names, the one in the same schema comes first. Among names that differ only
        // in case, the one with the same case as `name` comes first.
        let is_elsewhere = |known: &RelationName| known.schema() != name.schema();
        names.sort_by(|a, b| {
            b.0.total_cmp(&a.0)
                .then(b.1.total_cmp(&a.1))
                .then(is_elsewhere(a.2).cmp(&is_elsewhere(b.2)))
        });
        names
            .into_iter()
            .take(MAX_SUGGESTIONS)
            .map(|(_, _, known)| known)
            .collect()
    }
}

/// Returns how similar two names are, ignoring case (Jaro-Winkler, 0 to 1). Returns `None` if they
/// are not similar enough for a suggestion.
pub(super) fn similarity(wanted: &str, known: &str) -> Option<f64> {
    let likeness = strsim::jaro_winkler(&wanted.to_lowercase(), &known.to_lowercase());
    (likeness >= MIN_SIMILARITY).then_some(likeness)
}

/// Reads a key from the cluster record.
fn parse_key(cluster: &ClusterRecord, text: Option<&String>, part: &str) -> Result<Key> {
    text.and_then(|text| hex::decode(text).ok())
        .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
        .map(Key::from)
        .ok_or_else(|| records::damaged(&cluster.key(), part))
}

/// Returns the keys and values of all records of one kind.
fn records_of_kind<R: Record>(entries: &StoreContent) -> impl Iterator<Item = (&str, &[u8])> {
    entries
        .entries
        .range(R::PREFIX.to_owned()..)
        .take_while(|(key, _)| key.starts_with(R::PREFIX))
        .map(|(key, StoreEntry { value, .. })| (key.as_str(), value.as_slice()))
}
