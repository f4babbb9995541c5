use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use volary_flight_proto::ids::{TableId, WorkerId};
use volary_flight_proto::ticket::fingerprint;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Result, ipc};

use super::declarations::Declarations;
use super::records::{
    PlacementRecord, QueryParameter, Record, TableKind, TableRecord, TableState, ViewRecord,
    damaged, format_parameters,
};
use super::relation_name::{PUBLIC_SCHEMA, RelationName};
use super::retention::Retention;
use super::statistics::TableStatistics;
use super::{encoding, now_ms};

/// A table as of one state of the catalog. It never changes: each change creates a new `Table`.
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
    /// Builds a table from its record. `placement` is the placement of its shard count, and `None`
    /// for a reference table.
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

    /// Returns the id of the table. A table that is dropped and created again has another id.
    pub fn id(&self) -> TableId {
        self.record.id
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &RelationName {
        &self.record.name
    }

    /// Returns the columns of the table, with the Arrow types that are stored.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the owner of the table, or `None` if there was no user when it was created.
    pub fn owner(&self) -> Option<&str> {
        self.record.owner.as_deref()
    }

    /// Returns the same table with another owner.
    pub(super) fn with_owner(&self, owner: &str) -> Self {
        let mut record = self.record.as_ref().clone();
        record.owner = Some(owner.to_owned());
        Self {
            record: Arc::new(record),
            ..self.clone()
        }
    }

    /// Returns the defaults, constraints and comments of the table.
    pub fn declarations(&self) -> &Declarations {
        &self.record.declarations
    }

    /// Returns how long the rows of the table are kept. Returns `None` if they are kept for ever.
    pub fn retention(&self) -> Option<&Retention> {
        self.record.declarations.retention.as_ref()
    }

    /// Returns the same table with other declarations.
    pub(super) fn with_declarations(&self, declarations: Declarations) -> Self {
        let mut record = self.record.as_ref().clone();
        record.declarations = declarations;
        Self {
            record: Arc::new(record),
            ..self.clone()
        }
    }

    /// Returns a table without rows that has the same definition, owner and workers, and this id.
    pub(super) fn emptied(&self, id: TableId) -> Result<Self> {
        let mut record = self.record.as_ref().clone();
        record.id = id;
        let statistics = TableStatistics::empty(self.shards(), self.schema.fields().len());
        Self::new(record, self.placement.clone(), Arc::new(statistics))
    }

    /// Returns how the rows of the table are distributed.
    pub fn kind(&self) -> &TableKind {
        &self.record.kind
    }

    /// Returns whether this is a reference table: every worker that has a copy holds all rows.
    pub fn is_reference(&self) -> bool {
        matches!(self.record.kind, TableKind::Reference { .. })
    }

    /// Returns the number of shards, which is 1 for a reference table.
    pub fn shards(&self) -> u32 {
        match self.record.kind {
            TableKind::Sharded { shards, .. } => shards,
            TableKind::Reference { .. } => 1,
        }
    }

    /// Returns the position of the shard key in the schema. Returns `None` for a reference table,
    /// and for a table whose rows may be in any shard.
    pub fn shard_key(&self) -> Option<usize> {
        match self.record.kind {
            TableKind::Sharded { key, .. } => key,
            TableKind::Reference { .. } => None,
        }
    }

    /// Returns the name of the shard key, if the table has one.
    pub fn shard_key_name(&self) -> Option<&str> {
        self.shard_key()
            .map(|key| self.schema.field(key).name().as_str())
    }

    /// Returns the positions of the columns that segments are sorted by.
    pub fn sort_key(&self) -> &[usize] {
        &self.record.sort_key
    }

    /// Returns the worker that holds a shard, or the first worker with a copy of a reference table.
    /// Returns `None` if the shard does not exist.
    pub fn worker_of(&self, shard: u32) -> Option<WorkerId> {
        match &self.placement {
            Some(placement) => placement.workers.get(usize::try_from(shard).ok()?).copied(),
            None => self.workers.first().copied(),
        }
    }

    /// Returns the worker of each shard. Returns `None` for a reference table.
    pub(crate) fn placement(&self) -> Option<&Arc<PlacementRecord>> {
        self.placement.as_ref()
    }

    /// Returns all workers that hold rows of the table, ascending.
    pub fn workers(&self) -> &[WorkerId] {
        &self.workers
    }

    /// Returns the statistics of the table.
    pub fn statistics(&self) -> &Arc<TableStatistics> {
        &self.statistics
    }

    /// Returns whether `other` is the same table on the same workers. Its rows may differ.
    pub fn has_same_placement(&self, other: &Self) -> bool {
        let has_same_workers = match (&self.placement, &other.placement) {
            (Some(placement), Some(other)) => Arc::ptr_eq(placement, other) || placement == other,
            (placement, other) => placement.is_none() && other.is_none(),
        };
        has_same_workers && self.id() == other.id() && self.record.kind == other.record.kind
    }

    /// Returns whether the rows of `other` are kept as long.
    pub fn has_same_retention(&self, other: &Self) -> bool {
        self.retention() == other.retention()
    }

    /// Returns the description that a worker needs to keep rows of the table.
    pub fn description(&self) -> TableDescription {
        TableDescription {
            table_id: self.record.id.0,
            name: self.record.name.to_string(),
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

    /// Returns whether the table exists already or is being created.
    pub(super) fn state(&self) -> TableState {
        self.record.state
    }

    /// Returns whether the table is being created to replace another one.
    pub(super) fn is_replacement(&self) -> bool {
        self.record.replaces
    }

    /// Returns the same table with other statistics, in the state [`TableState::Live`].
    pub(super) fn as_live(&self, statistics: TableStatistics) -> Self {
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

/// Converts the position of a column. No table has 2³² columns.
fn column_number(column: usize) -> u32 {
    u32::try_from(column).unwrap_or(u32::MAX)
}

/// A view or a saved query that is to be stored.
#[derive(Debug, Clone)]
pub struct NewView {
    /// The name of the view.
    pub name: RelationName,
    /// The SQL text of its query.
    pub sql: String,
    /// The schema of the names in the query that are written without one.
    pub search_schema: String,
    /// The columns of the view.
    pub schema: SchemaRef,
    /// The parameters of a saved query. `None` for a view.
    pub parameters: Option<Vec<QueryParameter>>,
}

/// A view or a saved query, as of one state of the catalog.
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
            search_schema: (view.search_schema != PUBLIC_SCHEMA)
                .then(|| view.search_schema.clone()),
            comment: None,
        };
        let schema = Arc::clone(&view.schema);
        Self { record, schema }
    }

    pub(super) fn from_record(record: ViewRecord) -> Result<Self> {
        let schema = encoding::schema_from_hex(&record.schema)
            .ok_or_else(|| damaged(&record.key(), "schema"))?;
        Ok(Self { record, schema })
    }

    /// Returns the name of the view.
    pub fn name(&self) -> &RelationName {
        &self.record.name
    }

    /// Returns the schema of the names in the query that are written without one: the schema that
    /// was current when the view was created.
    pub fn search_schema(&self) -> &str {
        let schema = self.record.search_schema.as_deref();
        schema.unwrap_or(PUBLIC_SCHEMA)
    }

    /// Returns the owner of the view. The view reads with the owner's rights. Returns `None` if
    /// there was no user when it was created.
    pub fn owner(&self) -> Option<&str> {
        self.record.owner.as_deref()
    }

    /// Returns a number that distinguishes the view from an earlier one of the same name.
    pub(super) fn version(&self) -> u64 {
        let owner = self.owner().unwrap_or_default();
        let sql = self.sql();
        let mut text = match self.parameters() {
            None => format!("{owner}\n{sql}"),
            Some(parameters) => format!("{owner}\n{}\n{sql}", format_parameters(parameters)),
        };
        if let Some(schema) = &self.record.search_schema {
            text = format!("{schema}\n{text}");
        }
        fingerprint(&text)
    }

    /// Returns whether this is a saved query.
    pub fn is_saved_query(&self) -> bool {
        self.record.parameters.is_some()
    }

    /// Returns the parameters of a saved query, or `None` for a view.
    pub fn parameters(&self) -> Option<&[QueryParameter]> {
        self.record.parameters.as_deref()
    }

    /// Returns the time of creation, in milliseconds since 1970.
    pub fn created_at_ms(&self) -> i64 {
        self.record.created_at_ms
    }

    /// Returns the same view with another owner.
    pub(super) fn with_owner(&self, owner: &str) -> Self {
        let mut record = self.record.clone();
        record.owner = Some(owner.to_owned());
        Self {
            record,
            ..self.clone()
        }
    }

    /// Returns the comment on the view.
    pub fn comment(&self) -> Option<&str> {
        self.record.comment.as_deref()
    }

    /// Returns the same view with this comment.
    pub(super) fn with_comment(&self, comment: Option<&str>) -> Self {
        let mut record = self.record.clone();
        record.comment = comment.map(str::to_owned);
        Self {
            record,
            ..self.clone()
        }
    }

    /// Returns the SQL text of the query.
    pub fn sql(&self) -> &str {
        &self.record.sql
    }

    /// Returns the columns of the view, as they were when it was created.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn record(&self) -> &ViewRecord {
        &self.record
    }
}
