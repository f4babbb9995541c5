//! A table and a view as the rest of the gateway sees them.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use volary_flight_proto::ids::{TableId, WorkerId};
use volary_flight_proto::ticket::fingerprint;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Result, ipc};

use super::records::{
    PlacementRecord, QueryParameter, Record, TableKind, TableRecord, TableState, ViewRecord,
    damaged, listed,
};
use super::statistics::TableStatistics;
use super::{encoding, now_ms};

/// A table as of one state of the catalog. It never changes: a change makes a new one.
#[derive(Debug, Clone)]
pub struct Table {
    record: Arc<TableRecord>,
    schema: SchemaRef,
    schema_bytes: Bytes,
    placement: Option<Arc<PlacementRecord>>,
    workers: Arc<[WorkerId]>,
    statistics: Arc<TableStatistics>,
}

impl Table {
    /// Of its record; `placement` is that of its shard count, none for a reference table.
    pub(super) fn new(
        record: TableRecord,
        placement: Option<Arc<PlacementRecord>>,
        statistics: Arc<TableStatistics>,
    ) -> Result<Self> {
        let schema = encoding::schema_from_hex(&record.schema)
            .ok_or_else(|| damaged(&record.key(), "schema"))?;
        let mut workers = match (&record.kind, &placement) {
            (TableKind::Reference { copies }, _) => copies.clone(),
            (TableKind::Sharded { key, shards }, Some(placement)) => {
                if key.is_some_and(|key| key >= schema.fields().len()) {
                    return Err(damaged(&record.key(), "shard key"));
                }
                if u32::try_from(placement.workers.len()) != Ok(*shards) {
                    return Err(damaged(&placement.key(), "list of workers"));
                }
                placement.workers.clone()
            }
            (TableKind::Sharded { .. }, None) => return Err(damaged(&record.key(), "placement")),
        };
        workers.sort_unstable();
        workers.dedup();
        Ok(Self {
            schema_bytes: ipc::schema_to_bytes(&schema),
            record: Arc::new(record),
            schema,
            placement,
            workers: workers.into(),
            statistics,
        })
    }

    /// Its id. A table that is dropped and created again has another one.
    pub fn id(&self) -> TableId {
        self.record.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its columns, with DataFusion's own types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Who owns it; none if there was no user when it was created.
    pub fn owner(&self) -> Option<&str> {
        self.record.owner.as_deref()
    }

    /// The same table with another owner.
    pub(super) fn owned_by(&self, owner: &str) -> Self {
        let mut record = self.record.as_ref().clone();
        record.owner = Some(owner.to_owned());
        Self {
            record: Arc::new(record),
            ..self.clone()
        }
    }

    /// How its rows are spread.
    pub fn kind(&self) -> &TableKind {
        &self.record.kind
    }

    /// Whether every worker that has a copy holds all rows.
    pub fn is_reference(&self) -> bool {
        matches!(self.record.kind, TableKind::Reference { .. })
    }

    /// The number of shards; 1 for a reference table.
    pub fn shards(&self) -> u32 {
        match self.record.kind {
            TableKind::Sharded { shards, .. } => shards,
            TableKind::Reference { .. } => 1,
        }
    }

    /// Position of the shard key in the schema; none for a reference table, and for one whose rows are in any shard.
    pub fn shard_key(&self) -> Option<usize> {
        match self.record.kind {
            TableKind::Sharded { key, .. } => key,
            TableKind::Reference { .. } => None,
        }
    }

    /// Name of the shard key, if there is one.
    pub fn shard_key_name(&self) -> Option<&str> {
        self.shard_key()
            .map(|key| self.schema.field(key).name().as_str())
    }

    /// Columns that segments are sorted by.
    pub fn sort_key(&self) -> &[usize] {
        &self.record.sort_key
    }

    /// The worker that holds a shard; of a reference table the first copy. None if there is no such shard.
    pub fn worker_of(&self, shard: u32) -> Option<WorkerId> {
        match &self.placement {
            Some(placement) => placement.workers.get(usize::try_from(shard).ok()?).copied(),
            None => self.workers.first().copied(),
        }
    }

    /// Which worker holds which shard; none for a reference table.
    pub fn placement(&self) -> Option<&Arc<PlacementRecord>> {
        self.placement.as_ref()
    }

    /// All workers that hold rows of it, ascending.
    pub fn workers(&self) -> &[WorkerId] {
        &self.workers
    }

    /// What it holds.
    pub fn statistics(&self) -> &Arc<TableStatistics> {
        &self.statistics
    }

    /// Whether it is the same table as this one, and on the same workers; it may have other rows.
    pub fn is_placed_as(&self, other: &Self) -> bool {
        let is_at = match (&self.placement, &other.placement) {
            (Some(placement), Some(other)) => Arc::ptr_eq(placement, other) || placement == other,
            (placement, other) => placement.is_none() && other.is_none(),
        };
        is_at && self.id() == other.id() && self.record.kind == other.record.kind
    }

    /// What a worker must know to keep its rows.
    pub fn description(&self) -> TableDescription {
        TableDescription {
            table_id: self.record.id.0,
            name: self.record.name.clone(),
            schema: self.schema_bytes.clone(),
            shard_key: self.shard_key().map(column_number),
            sort_key: self
                .record
                .sort_key
                .iter()
                .copied()
                .map(column_number)
                .collect(),
            shards: self.shards(),
            is_sharded: !self.is_reference(),
        }
    }

    /// Whether it exists already, or is being created.
    pub(super) fn state(&self) -> TableState {
        self.record.state
    }

    /// Whether it is being created to take another one's place.
    pub(super) fn waits_to_replace(&self) -> bool {
        self.record.replaces
    }

    /// The same table with other statistics, and alive.
    pub(super) fn live_with(&self, statistics: TableStatistics) -> Self {
        let mut record = self.record.as_ref().clone();
        record.state = TableState::Live;
        record.replaces = false;
        Self {
            record: Arc::new(record),
            statistics: Arc::new(statistics),
            ..self.clone()
        }
    }

    pub(super) fn record(&self) -> &TableRecord {
        &self.record
    }
}

/// No table has 2³² columns: a definition is checked.
fn column_number(column: usize) -> u32 {
    u32::try_from(column).unwrap_or(u32::MAX)
}

/// A view or a saved query that is to be kept.
#[derive(Debug, Clone)]
pub struct NewView {
    /// Its name.
    pub name: String,
    /// Its query.
    pub sql: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// The parameters of a saved query; `None` for a view.
    pub parameters: Option<Vec<QueryParameter>>,
}

/// A view, or a saved query, as of one state of the catalog.
#[derive(Debug, Clone)]
pub struct View {
    record: ViewRecord,
    schema: SchemaRef,
}

impl View {
    pub(super) fn new(view: &NewView, owner: Option<&str>) -> Self {
        let record = ViewRecord {
            owner: owner.map(str::to_owned),
            name: view.name.clone(),
            sql: view.sql.clone(),
            schema: encoding::schema_to_hex(&view.schema),
            created_at_ms: now_ms(),
            parameters: view.parameters.clone(),
        };
        let schema = Arc::clone(&view.schema);
        Self { record, schema }
    }

    pub(super) fn from_record(record: ViewRecord) -> Result<Self> {
        let schema = encoding::schema_from_hex(&record.schema)
            .ok_or_else(|| damaged(&record.key(), "schema"))?;
        Ok(Self { record, schema })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Who owns it, and with whose rights it reads; none if there was no user when it was created.
    pub fn owner(&self) -> Option<&str> {
        self.record.owner.as_deref()
    }

    /// What tells it from another one that had its name before.
    pub(super) fn version(&self) -> u64 {
        let owner = self.owner().unwrap_or_default();
        let sql = self.sql();
        match self.parameters() {
            None => fingerprint(&format!("{owner}\n{sql}")),
            Some(parameters) => fingerprint(&format!("{owner}\n{}\n{sql}", listed(parameters))),
        }
    }

    /// Whether it is a saved query.
    pub fn is_query(&self) -> bool {
        self.record.parameters.is_some()
    }

    /// The parameters of a saved query; `None` if it is a view.
    pub fn parameters(&self) -> Option<&[QueryParameter]> {
        self.record.parameters.as_deref()
    }

    /// When it was created, in milliseconds since 1970.
    pub fn created_at_ms(&self) -> i64 {
        self.record.created_at_ms
    }

    /// The same view with another owner.
    pub(super) fn owned_by(&self, owner: &str) -> Self {
        let mut record = self.record.clone();
        record.owner = Some(owner.to_owned());
        Self {
            record,
            ..self.clone()
        }
    }

    /// Its query.
    pub fn sql(&self) -> &str {
        &self.record.sql
    }

    /// Its columns, as of its creation.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn record(&self) -> &ViewRecord {
        &self.record
    }
}
