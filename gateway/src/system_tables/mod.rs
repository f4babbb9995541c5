//! The tables about the cluster itself, in the schema `system`.

/// Rows of the tables that the gateway knows by itself.
mod rows;
/// Rows of system.segments, which the workers know.
mod segments;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::catalog::State;
use crate::engine::Engine;

/// A table about the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nodes,
    Tables,
    Shards,
    Segments,
    Loads,
}

const KINDS: [Kind; 5] = [
    Kind::Nodes,
    Kind::Tables,
    Kind::Shards,
    Kind::Segments,
    Kind::Loads,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Tables => "tables",
            Self::Shards => "shards",
            Self::Segments => "segments",
            Self::Loads => "loads",
        }
    }

    fn schema(self) -> SchemaRef {
        use DataType::{Boolean, Int64, Utf8};
        let columns: &[(&str, DataType, bool)] = match self {
            Self::Nodes => &[
                ("id", Utf8, false),
                ("role", Utf8, false),
                ("address", Utf8, false),
                ("state", Utf8, false),
                ("version", Utf8, false),
                ("running_fragments", Int64, true),
                ("memory_reserved_bytes", Int64, true),
                ("segments", Int64, true),
                ("rows", Int64, true),
                ("bytes", Int64, true),
                ("last_heartbeat_ms", Int64, true),
            ],
            Self::Tables => &[
                ("name", Utf8, false),
                ("kind", Utf8, false),
                ("shard_key", Utf8, true),
                ("shards", Int64, false),
                ("sort_key", Utf8, true),
                ("workers", Int64, false),
                ("rows", Int64, false),
                ("bytes", Int64, false),
            ],
            Self::Shards => &[
                ("table_name", Utf8, false),
                ("shard", Int64, false),
                ("worker_id", Utf8, false),
                ("rows", Int64, false),
                ("bytes", Int64, false),
            ],
            Self::Segments => &[
                ("table_name", Utf8, false),
                ("shard", Int64, false),
                ("worker_id", Utf8, false),
                ("write_id", Int64, false),
                ("file", Utf8, false),
                ("rows", Int64, false),
                ("bytes", Int64, false),
                ("visible", Boolean, false),
            ],
            Self::Loads => &[
                ("query_id", Utf8, false),
                ("table_name", Utf8, false),
                ("rows_written", Int64, false),
                ("running_ms", Int64, false),
            ],
        };
        let fields: Vec<_> = columns
            .iter()
            .map(|(name, data_type, nullable)| Field::new(*name, data_type.clone(), *nullable))
            .collect();
        Arc::new(Schema::new(fields))
    }
}

/// The tables' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(Kind::name)
}

/// The tables' names and columns.
pub fn all() -> Vec<(&'static str, SchemaRef)> {
    KINDS
        .into_iter()
        .map(|kind| (kind.name(), kind.schema()))
        .collect()
}

/// The schema `system`, as of one state of the catalog.
#[derive(Debug)]
pub struct SystemSchema {
    engine: Arc<Engine>,
    catalog: Arc<State>,
}

impl SystemSchema {
    /// Of an engine.
    pub fn new(engine: Arc<Engine>, catalog: Arc<State>) -> Self {
        Self { engine, catalog }
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        names().map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let kind = KINDS.into_iter().find(|kind| kind.name() == name);
        Ok(kind.map(|kind| {
            Arc::new(SystemTable {
                kind,
                engine: Arc::clone(&self.engine),
                catalog: Arc::clone(&self.catalog),
            }) as _
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}

/// One table: its rows are asked for when it is scanned.
#[derive(Debug)]
struct SystemTable {
    kind: Kind,
    engine: Arc<Engine>,
    catalog: Arc<State>,
}

impl SystemTable {
    async fn rows(&self) -> DfResult<RecordBatch> {
        Ok(match self.kind {
            Kind::Nodes => rows::nodes(self.engine.cluster())?,
            Kind::Tables => rows::tables(&self.catalog)?,
            Kind::Shards => rows::shards(&self.catalog)?,
            Kind::Segments => segments::rows(&self.catalog, self.engine.cluster()).await?,
            Kind::Loads => rows::loads(self.engine.loads())?,
        })
    }
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.kind.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let batch = self.rows().await?;
        Ok(MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            self.kind.schema(),
            projection.cloned(),
        )?)
    }
}
