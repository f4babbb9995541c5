use std::sync::Arc;

use volary_flight_proto::Result;
use volary_flight_proto::ids::{TableId, WorkerId, WriteId};
use volary_flight_proto::seal::Key;
use volary_flight_proto::write_set::WriteSet;

use super::access::{Access, GrantObject, PrincipalRecord, TokenRecord};
use super::producer_record::{ProducerName, ProducerRecord};
use super::records::{
    self, AbortRecord, ClusterRecord, DeltaRecord, LineageRecord, PlacementRecord, Record,
    SchemaRecord, StatisticsRecord, TableRecord, ViewRecord, WorkerRecord, WriteRecord, WriteState,
};
use super::relation_name::RelationName;
use super::state::CatalogState;
use super::statistics::TableDelta;
use super::store::{EntryChange, ExpectedVersion};
use super::table::{Table, View};

/// A change that has not been committed yet.
#[derive(Debug)]
pub(super) struct Draft {
    state: CatalogState,
    /// All changes except that of the cluster record, which each transaction writes.
    changes: Vec<EntryChange>,
    /// Says that there is something to commit, even if only the cluster record changed.
    is_cluster_changed: bool,
}

/// A draft as it was before a change.
#[derive(Debug)]
pub(super) struct Savepoint {
    state: CatalogState,
    changes: usize,
    is_cluster_changed: bool,
}

impl Draft {
    /// Creates a draft without changes from the current state.
    pub(super) fn new(state: &CatalogState) -> Self {
        Self {
            state: state.clone(),
            changes: Vec::new(),
            is_cluster_changed: false,
        }
    }

    /// Returns a place to which the draft can be rolled back.
    pub(super) fn savepoint(&self) -> Savepoint {
        Savepoint {
            state: self.state.clone(),
            changes: self.changes.len(),
            is_cluster_changed: self.is_cluster_changed,
        }
    }

    /// Forgets all changes since the savepoint.
    pub(super) fn roll_back(&mut self, savepoint: Savepoint) {
        self.state = savepoint.state;
        self.changes.truncate(savepoint.changes);
        self.is_cluster_changed = savepoint.is_cluster_changed;
    }

    /// Returns the state of the catalog with all changes so far.
    pub(super) fn state(&self) -> &CatalogState {
        &self.state
    }

    /// Returns the versions that the change relies on, and the changes to the store. Returns `None`
    /// if there is nothing to change.
    pub(super) fn transaction(&self) -> Result<Option<(Vec<ExpectedVersion>, Vec<EntryChange>)>> {
        if self.changes.is_empty() && !self.is_cluster_changed {
            return Ok(None);
        }
        let mut changes = self.changes.clone();
        changes.push(put(&self.state.cluster)?);
        let expected = ExpectedVersion {
            key: self.state.cluster.key(),
            version: (self.state.version > 0).then_some(self.state.version),
        };
        Ok(Some((vec![expected], changes)))
    }

    /// Returns the state of the catalog after the changes were committed as `version`.
    pub(super) fn into_state(mut self, version: u64) -> CatalogState {
        self.state.version = version;
        self.state.update_snapshot();
        self.state
    }

    pub(super) fn next_worker(&mut self) -> WorkerId {
        WorkerId(take_next(&mut self.state.cluster.next_worker))
    }

    pub(super) fn next_table(&mut self) -> TableId {
        TableId(take_next(&mut self.state.cluster.next_table))
    }

    /// Reserves numbers of writes. Returns the first one.
    pub(super) fn reserve_writes(&mut self, count: u64) -> WriteId {
        let first = self.state.cluster.next_write;
        self.state.cluster.next_write += count;
        self.mark_cluster_changed();
        WriteId(first)
    }

    /// Records that a write was committed or aborted.
    pub(super) fn decide(&mut self, write: WriteId) {
        let cluster = &mut self.state.cluster;
        let high = cluster.high.unwrap_or(WriteId(0));
        if write > high {
            let between = (WriteId(high.0 + 1), WriteId(write.0 - 1));
            cluster.undecided.insert_range(between.0, between.1);
            cluster.high = Some(write);
        } else {
            cluster.undecided.remove(write);
        }
        self.mark_cluster_changed();
    }

    /// Records that a write was committed.
    pub(super) fn commit(&mut self, write: WriteId) {
        self.state.cluster.commits += 1;
        self.decide(write);
    }

    /// Records that workers may hold rows of failed writes, which are decided. `table` is the table
    /// of the writes; `None` if there may be several.
    pub(super) fn put_abort(
        &mut self,
        writes: WriteSet,
        table: Option<TableId>,
        workers: Vec<WorkerId>,
    ) -> Result<()> {
        // 0 means that no abort was heard of.
        let next = &mut self.state.cluster.next_abort;
        *next = (*next).max(1);
        let record = AbortRecord {
            number: take_next(next),
            writes,
            table,
            workers,
        };
        self.changes.push(put(&record)?);
        self.state
            .aborts
            .insert_mut(record.number, Arc::new(record));
        Ok(())
    }

    pub(super) fn remove_abort(&mut self, number: u64) {
        self.delete::<AbortRecord>(&AbortRecord::key_part(number));
        self.state.aborts.remove_mut(&number);
    }

    /// Counts all writes that were reserved so far, and that are not committed, as failed.
    pub(super) fn abort_all_undecided(&mut self) -> Result<()> {
        let cluster = &mut self.state.cluster;
        let last = WriteId(cluster.next_write - 1);
        let mut undecided = std::mem::take(&mut cluster.undecided);
        // In a catalog of an older release, the writes that are not committed have records.
        let high = cluster.high.unwrap_or(last);
        undecided.insert_range(WriteId(high.0 + 1), last);
        cluster.high = Some(last);
        self.mark_cluster_changed();
        for write in self.state.former_writes.clone() {
            let workers = match write.state {
                WriteState::Aborted { pending } => pending,
                WriteState::Open => self.state.workers.keys().copied().collect(),
            };
            self.delete::<WriteRecord>(&write.id.0.to_string());
            let writes = WriteSet::of_range(write.id, write.id);
            self.put_abort(writes, Some(write.table), workers)?;
        }
        self.state.former_writes.clear();
        if undecided.is_empty() {
            return Ok(());
        }
        let workers = self.state.workers.keys().copied().collect();
        self.put_abort(undecided, None, workers)
    }

    pub(super) fn next_epoch(&mut self) -> u64 {
        take_next(&mut self.state.cluster.next_epoch)
    }

    pub(super) fn next_generation(&mut self) -> u64 {
        // 0 is the generation of sessions from before the cluster had users.
        let next = &mut self.state.cluster.next_generation;
        *next = (*next).max(1);
        take_next(next)
    }

    /// Records that the cluster has had a user. From now on it must always have an administrator.
    pub(super) fn mark_secured(&mut self) {
        self.state.cluster.secured = true;
    }

    /// Sets the lineage, which workers compare with the incarnations that they know: see
    /// [`LineageRecord`].
    pub(super) fn put_lineage(&mut self, lineage: LineageRecord) -> Result<()> {
        self.changes.push(put(&lineage)?);
        self.state.cluster.incarnation = lineage.incarnations.last().map(|last| last.id);
        self.state.lineage = Arc::new(lineage);
        Ok(())
    }

    /// Creates the key of session tokens if the cluster has none.
    pub(super) fn put_token_key(&mut self) {
        if self.state.cluster.token_key.is_none() {
            let key = hex::encode(Key::random().as_bytes());
            self.state.cluster.token_key = Some(key);
            self.mark_cluster_changed();
        }
    }

    /// Forces a commit even if only the cluster record changed.
    pub(super) fn mark_cluster_changed(&mut self) {
        self.is_cluster_changed = true;
    }

    pub(super) fn put_worker(&mut self, worker: &Arc<WorkerRecord>) -> Result<()> {
        self.changes.push(put(worker.as_ref())?);
        self.state.workers.insert_mut(worker.id, Arc::clone(worker));
        Ok(())
    }

    /// Puts a new table, a table that has become visible, or one whose record changed.
    pub(super) fn put_table(&mut self, table: &Arc<Table>) -> Result<()> {
        self.changes.push(put(table.record())?);
        self.state.insert_table(Arc::clone(table));
        Ok(())
    }

    /// Puts a table whose statistics contain what a write has added.
    ///
    /// # Errors
    /// `INTERNAL` if the statistics have no JSON form.
    pub(super) fn put_written(
        &mut self,
        table: &Arc<Table>,
        write: WriteId,
        added: &TableDelta,
    ) -> Result<()> {
        let id = table.id();
        let known = self.state.statistics_logs.get(&id);
        let mut log = known.copied().unwrap_or_default();
        let delta = added.to_record(id, log.deltas().end, write);
        let value = records::encode(&delta)?;
        log.note_delta(delta.number, value.len());
        if log.must_fold() {
            for number in log.deltas().start..delta.number {
                self.delete::<DeltaRecord>(&DeltaRecord::key_part(id, number));
            }
            let whole = table.statistics().to_record(id);
            let value = records::encode(&whole)?;
            log = log.folded(value.len());
            let key = whole.key();
            self.changes.push(EntryChange::Put { key, value });
        } else {
            let key = delta.key();
            self.changes.push(EntryChange::Put { key, value });
        }
        self.state.insert_table(Arc::clone(table));
        self.state.statistics_logs.insert_mut(id, log);
        self.state.cluster.has_deltas = true;
        Ok(())
    }

    /// Removes the statistics of a table.
    fn remove_statistics(&mut self, table: TableId) {
        self.delete::<StatisticsRecord>(&table.0.to_string());
        if let Some(log) = self.state.statistics_logs.get(&table).copied() {
            for number in log.deltas() {
                self.delete::<DeltaRecord>(&DeltaRecord::key_part(table, number));
            }
            self.state.statistics_logs.remove_mut(&table);
        }
    }

    /// Removes a table, its producers, and its failed writes, whose rows no query can read any
    /// more. Also removes the placement of the table if no other table uses it.
    pub(super) fn remove_table(&mut self, table: &Table) {
        let id = table.id();
        self.delete::<TableRecord>(&id.0.to_string());
        self.remove_statistics(id);
        self.state.tables.remove_mut(&id);
        if self.state.table_names.get(table.name()) == Some(&id) {
            self.state.table_names.remove_mut(table.name());
        }
        let aborts = self.state.aborts.values();
        let aborts = aborts.filter(|abort| abort.table == Some(id));
        for number in aborts.map(|abort| abort.number).collect::<Vec<_>>() {
            self.remove_abort(number);
        }
        let producers = self.state.producers.get(&id).cloned().unwrap_or_default();
        for producer in producers.keys() {
            self.delete::<ProducerRecord>(&ProducerRecord::key_part(id, producer));
        }
        self.state.producers.remove_mut(&id);
        if let Some(placement) = table.placement() {
            let shards = placement.shards;
            let is_used = |other: &Arc<Table>| {
                other
                    .placement()
                    .is_some_and(|other| other.shards == shards)
            };
            if !self.state.all_tables().any(is_used) {
                self.delete::<PlacementRecord>(&shards.to_string());
                self.state.placements.remove_mut(&shards);
            }
        }
    }

    pub(super) fn put_producer(&mut self, producer: ProducerRecord) -> Result<()> {
        self.changes.push(put(&producer)?);
        self.state.insert_producer(Arc::new(producer));
        self.state.cluster.has_producers = true;
        Ok(())
    }

    /// Notes for a table what the producers of another one have written.
    pub(super) fn copy_producers(&mut self, from: TableId, to: TableId) -> Result<()> {
        let producers = self.state.producers.get(&from).cloned().unwrap_or_default();
        for producer in producers.values() {
            self.put_producer(ProducerRecord {
                table: to,
                ..producer.as_ref().clone()
            })?;
        }
        Ok(())
    }

    pub(super) fn remove_producer(&mut self, table: TableId, producer: &ProducerName) {
        self.delete::<ProducerRecord>(&ProducerRecord::key_part(table, producer));
        if let Some(mut of_table) = self.state.producers.get(&table).cloned() {
            of_table.remove_mut(producer);
            self.state.producers.insert_mut(table, of_table);
        }
    }

    pub(super) fn put_view(&mut self, view: &Arc<View>) -> Result<()> {
        self.changes.push(put(view.record())?);
        self.state
            .views
            .insert_mut(view.name().clone(), Arc::clone(view));
        Ok(())
    }

    pub(super) fn remove_view(&mut self, name: &RelationName) {
        self.delete::<ViewRecord>(&ViewRecord::key_part(name));
        self.state.views.remove_mut(name);
    }

    /// Puts a new schema, or one whose owner changed.
    pub(super) fn put_schema(&mut self, schema: &Arc<SchemaRecord>) -> Result<()> {
        self.changes.push(put(schema.as_ref())?);
        let name = schema.name.clone();
        let access = Arc::make_mut(&mut self.state.access);
        access.set_schema_owner(&name, schema.owner.as_deref());
        self.state.schemas.insert_mut(name, Arc::clone(schema));
        self.state.cluster.has_schemas = true;
        Ok(())
    }

    /// Removes a schema in which nothing is left.
    pub(super) fn remove_schema(&mut self, name: &str) {
        self.delete::<SchemaRecord>(name);
        Arc::make_mut(&mut self.state.access).set_schema_owner(name, None);
        self.state.schemas.remove_mut(name);
        self.state.cluster.has_schemas = !self.state.schemas.is_empty();
    }

    /// Gives a table or view to another owner.
    pub(super) fn put_owner(&mut self, name: &RelationName, owner: &str) -> Result<()> {
        if let Some(table) = self.state.table(name) {
            let table = Arc::new(table.with_owner(owner));
            self.put_table(&table)?;
        } else if let Some(view) = self.state.view(name) {
            let view = Arc::new(view.with_owner(owner));
            self.put_view(&view)?;
        }
        // A plan is reused only with the `Access` that it was made with. A new `Access` rules out
        // plans that were made with the former owner's rights.
        self.state.access = Arc::new(Access::clone(&self.state.access));
        Ok(())
    }

    pub(super) fn put_principal(&mut self, principal: PrincipalRecord) -> Result<()> {
        self.changes.push(put(&principal)?);
        Arc::make_mut(&mut self.state.access).put_principal(Arc::new(principal));
        Ok(())
    }

    pub(super) fn remove_principal(&mut self, name: &str) {
        self.delete::<PrincipalRecord>(name);
        Arc::make_mut(&mut self.state.access).remove_principal(name);
    }

    /// Revokes everything that was granted on objects that are dropped.
    pub(super) fn revoke_all_on(
        &mut self,
        is_dropped: impl Fn(&GrantObject) -> bool,
    ) -> Result<()> {
        for principal in self.state.access.principals_without_grants_on(is_dropped) {
            self.put_principal(principal)?;
        }
        Ok(())
    }

    pub(super) fn put_token(&mut self, token: TokenRecord) -> Result<()> {
        self.changes.push(put(&token)?);
        Arc::make_mut(&mut self.state.access).put_token(Arc::new(token));
        Ok(())
    }

    pub(super) fn remove_token(&mut self, name: &str) {
        self.delete::<TokenRecord>(name);
        Arc::make_mut(&mut self.state.access).remove_token(name);
    }

    pub(super) fn put_placement(&mut self, placement: &Arc<PlacementRecord>) -> Result<()> {
        self.changes.push(put(placement.as_ref())?);
        self.state
            .placements
            .insert_mut(placement.shards, Arc::clone(placement));
        Ok(())
    }

    fn delete<R: Record>(&mut self, name: &str) {
        self.changes.push(EntryChange::Delete {
            key: format!("{}{name}", R::PREFIX),
        });
    }
}

fn put<R: Record>(record: &R) -> Result<EntryChange> {
    Ok(EntryChange::Put {
        key: record.key(),
        value: records::encode(record)?,
    })
}

fn take_next(next: &mut u64) -> u64 {
    let taken = *next;
    *next += 1;
    taken
}

impl ClusterRecord {
    /// Creates the record of a new cluster. Ids start at 1.
    pub(super) fn new(cluster_id: volary_flight_proto::ids::ClusterId, key: String) -> Self {
        Self {
            cluster_id,
            key,
            next_worker: 1,
            next_table: 1,
            next_write: 1,
            high: Some(WriteId(0)),
            undecided: WriteSet::default(),
            commits: 0,
            next_abort: 1,
            next_epoch: 1,
            token_key: None,
            secured: false,
            next_generation: 1,
            incarnation: None,
            has_schemas: false,
            has_deltas: false,
            has_producers: false,
        }
    }
}
