use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, new_empty_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use prost::Message;
use volary_catalog::Table;
use volary_exec::key_set::KeySetExpr;
use volary_flight_proto::fragment::{Parameters, ScanShards};
use volary_flight_proto::ids::WorkerId;
use volary_gather::flow::FlowControl;
use volary_gather::report::StreamReports;
use volary_gather::request::RequestSpec;
use volary_gather::stream::worker_stream;
use volary_gather::{Window, WorkerStream, WorkerTarget};

use super::context::QueryContext;
use super::fragment_spec::{FragmentSpec, PreparedFragment};
use super::shard_counts::ScannedTables;
use crate::fragment::{ShardScanExec, ShardSelection};

/// A table must have at least this many rows for each key for a scan to read the other columns only
/// for the rows that it finds: see [`crate::late_materialisation`].
const ROWS_PER_KEY: u64 = 200;

/// A fragment that finds the rows of keys in one table. It is made once, and asks the workers for
/// other keys each time.
#[derive(Debug)]
pub struct LookupFragment {
    /// Reads all columns at once, for many keys.
    for_many_keys: PreparedLookup,
    /// Reads the other columns only for the rows that it finds.
    for_few_keys: PreparedLookup,
}

#[derive(Debug)]
struct PreparedLookup {
    spec: FragmentSpec,
    fragment: PreparedFragment,
}

/// The keys that one worker is asked for.
#[derive(Debug)]
pub struct WorkerKeys {
    /// Id of the worker.
    pub worker: WorkerId,
    /// The shards of the keys, ascending.
    pub shards: Vec<u32>,
    /// The keys, in the type of the table's shard key.
    pub keys: ArrayRef,
}

/// How much of a query's memory the rows in transit may take, and the pool that they take it from.
#[derive(Debug, Clone)]
pub struct LookupMemory {
    /// Number of lookups that share the memory of the query.
    pub lookups: usize,
    /// The memory pool of the query.
    pub pool: Arc<dyn MemoryPool>,
}

impl LookupFragment {
    /// Builds the fragment. `columns` are the columns of the rows, by position in the table, and
    /// the shard key is the one at the position `key` among them. `query` is a query with the same
    /// settings as those that use the fragment.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub fn new(
        table: &Arc<Table>,
        columns: &[usize],
        key: usize,
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<Self> {
        let scan = ShardScanExec::try_new(
            Arc::clone(table),
            columns.to_vec(),
            ShardSelection::All,
            Arc::from([]),
            false,
        )?;
        let late = scan.with_late_materialisation();
        Ok(Self {
            for_many_keys: PreparedLookup::new(scan, key, query, batch_rows)?,
            for_few_keys: PreparedLookup::new(late, key, query, batch_rows)?,
        })
    }

    /// Returns the columns of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.for_few_keys.spec.plan().schema()
    }

    /// Returns a stream for each of these workers, with the rows of its keys. A worker is asked
    /// when its stream is first polled. The memory for rows in transit is reserved by then. `table`
    /// is the table as it is in the snapshot of the query.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is too little memory, and an error if keys cannot be encoded.
    pub fn open(
        &self,
        workers: &[WorkerKeys],
        table: &Arc<Table>,
        query: &QueryContext,
        memory: &LookupMemory,
        reports: &StreamReports,
    ) -> Result<Vec<WorkerStream>> {
        let keys: usize = workers.iter().map(|worker| worker.keys.len()).sum();
        let are_few = (keys as u64).saturating_mul(ROWS_PER_KEY) <= table.statistics().rows;
        let prepared = match are_few {
            true => &self.for_few_keys,
            false => &self.for_many_keys,
        };
        prepared.open(workers, table, query, memory, reports)
    }
}

impl PreparedLookup {
    fn new(
        scan: ShardScanExec,
        key: usize,
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<Self> {
        let workers = scan.workers().len();
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan);
        let schema = scan.schema();
        let field = schema.field(key);
        // The keys are put into each ticket. Here, only their type matters.
        let keys = new_empty_array(field.data_type());
        let column = Arc::new(Column::new(field.name(), key));
        let is_key = Arc::new(KeySetExpr::try_new(column, keys)?);
        let plan = Arc::new(FilterExec::try_new(is_key, scan)?);
        let spec = FragmentSpec::new(plan, workers, false, None);
        let fragment = spec.prepare(query, batch_rows)?;
        if fragment.value_count() != 1 {
            return internal_err!("a lookup has one set of keys and no other value");
        }
        Ok(Self { spec, fragment })
    }

    fn open(
        &self,
        workers: &[WorkerKeys],
        table: &Arc<Table>,
        query: &QueryContext,
        memory: &LookupMemory,
        reports: &StreamReports,
    ) -> Result<Vec<WorkerStream>> {
        let tables = ScannedTables::from_fragment(self.spec.plan(), std::slice::from_ref(table))?;
        let limits = query.config.limits();
        let as_of_us = self.spec.as_of_us(query)?;
        let gathers = workers.len().saturating_mul(memory.lookups);
        let span = query.span.gather(query.query_id, workers.len());
        let streams = workers.iter().map(|asked| {
            let parameters = Parameters {
                values: vec![KeySetExpr::encode_values(&asked.keys)?.into()],
            };
            let flow = FlowControl::reserve(
                Window::Middle,
                1,
                gathers,
                query.memory,
                &limits,
                &memory.pool,
            )?;
            let spec = RequestSpec {
                query_id: query.query_id,
                owner: query.owner,
                snapshot: query.snapshot.clone(),
                counted: query.counted_writes.clone(),
                as_of_us,
                lineage: query.lineage,
                peers: Arc::clone(&query.peers),
                limits,
                fragment_id: self.fragment.id,
                fragment: self.fragment.message.clone(),
                holders: query.peers.fragment_holders(self.fragment.id),
                parameters: parameters.encode_to_vec().into(),
                schema: self.spec.plan().schema(),
                announced: None,
                reports: reports.clone(),
                span: span.clone(),
            };
            let request = Arc::new(spec.with_flow(flow));
            let target = WorkerTarget {
                worker: asked.worker,
                replicas: Vec::new(),
                scans: vec![ScanShards {
                    shards: asked.shards.clone(),
                    ..ScanShards::default()
                }],
                members: Vec::new(),
            };
            let request = move || Ok(Some(request));
            Ok(worker_stream(request, tables.with_counts(&target)))
        });
        streams.collect()
    }
}
