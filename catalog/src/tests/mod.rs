//! Tests the catalog with its real store, in a temporary directory.

/// Tests users, roles, grants and tokens, and that they survive a restart.
mod access;
/// Tests changes that are committed together, and what a write adds to statistics.
mod committing;
/// A store for tests of what waits for commits, and of commits that fail.
mod controlled_store;
/// Tests what a full disk refuses, and what is made nevertheless.
mod full_disk;
/// Tests that each batch of a producer is committed once.
mod producers;
/// Tests schemas, who may see and use them, and what is dropped with them.
mod schemas;
/// Tests what a store keeps, and what it refuses.
mod stores;
/// Tests tables, views, workers and placements.
mod tables;
/// Tests the temporary tables of sessions: their limits and their end.
mod temporary;
/// Tests which writes are visible.
mod writes;

use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use volary_flight_proto::ids::{WorkerId, WriteId};
use volary_flight_proto::write::{ColumnWritten, ShardWritten, WriteResult};
use volary_flight_proto::{Error, ErrorCode, SqlState, ipc};
use volary_node::disk::LocalDisk;

use super::access::Rights;
use super::*;

/// A temporary directory that is deleted when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("volary-catalog-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the rights of everybody in a cluster without users.
fn anybody() -> Arc<Rights> {
    Arc::new(Rights::of_open_cluster("kea"))
}

/// Returns the name of a table or view in the schema `public`.
fn named(name: &str) -> RelationName {
    RelationName::in_public(name)
}

async fn open(directory: &Path) -> Result<Catalog> {
    Catalog::open(Arc::new(
        RedbStore::open(directory, Arc::new(LocalDisk)).await?,
    ))
    .await
}

async fn with_workers(directory: &Directory, count: u64) -> (Catalog, Vec<WorkerId>) {
    let catalog = open(&directory.0).await.unwrap();
    let mut workers = Vec::new();
    for number in 0..count {
        let address = format!("127.0.0.1:{}", 7201 + number);
        let worker = catalog
            .register_worker(None, &address, "0.1.0", None)
            .await
            .unwrap();
        workers.push(worker.id);
    }
    (catalog, workers)
}

fn new_view(name: &str, sql: &str, schema: arrow::datatypes::SchemaRef) -> NewView {
    NewView {
        name: named(name),
        sql: sql.to_owned(),
        search_schema: PUBLIC_SCHEMA.to_owned(),
        schema,
        parameters: None,
    }
}

fn definition(name: &str, kind: DefinitionKind) -> TableDefinition {
    let fields = vec![
        Field::new("key", DataType::Int64, true),
        Field::new("value", DataType::Float64, true),
    ];
    TableDefinition {
        name: named(name),
        schema: Arc::new(Schema::new(fields)),
        kind,
        sort_key: Vec::new(),
        declarations: Declarations::default(),
    }
}

fn sharded(name: &str, shards: u32) -> TableDefinition {
    definition(
        name,
        DefinitionKind::Sharded {
            key: Some(0),
            shards,
        },
    )
}

/// Returns the answer of a worker that wrote `rows` rows, with keys from 1 to `rows`, to one shard.
fn written(shard: u32, rows: u32) -> WriteResult {
    let range: ArrayRef = Arc::new(Int64Array::from(vec![1, i64::from(rows)]));
    let batch = RecordBatch::try_from_iter([("key", range)]).unwrap();
    WriteResult {
        shards: vec![ShardWritten {
            shard,
            rows: u64::from(rows),
            bytes: 1000,
            segments: 1,
        }],
        columns: vec![
            ColumnWritten {
                nulls: 0,
                has_bounds: true,
            },
            ColumnWritten::default(),
        ],
        bounds: ipc::batches_to_bytes(&batch.schema(), std::slice::from_ref(&batch)).unwrap(),
    }
}

async fn load(catalog: &Catalog, table: &str, rows: u32) -> WriteId {
    let table = catalog.state().table(&named(table)).unwrap().clone();
    let write = catalog.begin_write(&table).await.unwrap().take_over();
    let results = [(table.workers()[0], written(0, rows))];
    let summary = WriteSummary::new(&table, &results).unwrap();
    catalog.commit_write(write, &table, summary).await.unwrap();
    write
}
