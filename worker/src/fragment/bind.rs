//! Segments in place of scans, values in place of parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use object_store::ObjectMeta;
use parking_lot::Mutex;
use prost::Message;
use volary_flight_proto::fragment::{Expected, MemberRows, Parameters, ScanShards, ShardScan};
use volary_flight_proto::ids::TableId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result, ipc};

use super::relay::Relaying;
use crate::scan::{SegmentReaders, SegmentSource};
use crate::storage::{Counted, Segment, Storage};

/// Where the writer of segments begins another page of a column: Parquet's defaults.
const PAGE_ROWS: u64 = 20_000;
const PAGE_BYTES: u64 = 1 << 20;

/// What a fragment is bound to for one ticket.
#[derive(Debug)]
pub struct Bindings {
    /// What is seen.
    pub snapshot: Snapshot,
    /// The shards, by scan, and what the catalog has counted of them.
    pub scans: Vec<ScanShards>,
    /// The writes that it has counted; none: those of the snapshot.
    pub counted: Option<Snapshot>,
    /// The encoded values, by parameter.
    pub values: Vec<Bytes>,
}

impl Bindings {
    /// Those of the ticket.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is no snapshot, or the values cannot be decoded.
    pub fn of(ticket: FragmentTicket) -> Result<Self> {
        let parameters = Parameters::decode(ticket.parameters).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                "the parameters in the ticket cannot be decoded; run the same release on all nodes",
                source,
            )
        })?;
        Ok(Self {
            snapshot: ticket
                .snapshot
                .ok_or_else(|| Error::invalid("the ticket has no snapshot"))?,
            scans: ticket.scans,
            counted: ticket.counted,
            values: parameters.values,
        })
    }
}

/// Binds the scans and parameters of one fragment.
///
/// All sharded scans of a fragment get the same partitions: the shards of all of them, in order, are dealt out, so that equal
/// shards of co-located tables are in the same partition.
#[derive(Debug)]
pub struct Binder {
    storage: Storage,
    runtime_env: Arc<RuntimeEnv>,
    parquet: TableParquetOptions,
    bindings: Bindings,
    partition_of_shard: BTreeMap<u32, usize>,
    partitions: usize,
    /// For leaves that are other workers' rows.
    relaying: Option<Relaying>,
    max_partitions: usize,
    /// Segments of at most this size are compared with their checksums when they are first needed.
    check_bytes: u64,
    segments: Mutex<Vec<Arc<Segment>>>,
}

impl Binder {
    /// For a fragment with these bindings, with at most so many partitions.
    pub fn new(
        storage: Storage,
        runtime_env: Arc<RuntimeEnv>,
        parquet: TableParquetOptions,
        bindings: Bindings,
        max_partitions: usize,
    ) -> Self {
        let mut partition_of_shard: BTreeMap<u32, usize> = bindings
            .scans
            .iter()
            .flat_map(|scan| scan.shards.iter().map(|shard| (*shard, 0)))
            .collect();
        let partitions = partition_of_shard.len().clamp(1, max_partitions.max(1));
        for (rank, partition) in partition_of_shard.values_mut().enumerate() {
            *partition = rank % partitions;
        }
        Self {
            storage,
            runtime_env,
            parquet,
            bindings,
            partition_of_shard,
            partitions,
            relaying: None,
            max_partitions,
            check_bytes: 0,
            segments: Mutex::new(Vec::new()),
        }
    }

    /// The same, for a fragment that merges the rows of other workers.
    #[must_use]
    pub fn relaying(self, relaying: Option<Relaying>) -> Self {
        Self { relaying, ..self }
    }

    /// The same, which compares segments of at most so many bytes with their checksums when they are first needed.
    #[must_use]
    pub fn checking(self, check_bytes: usize) -> Self {
        Self {
            check_bytes: check_bytes as u64,
            ..self
        }
    }

    /// The rows of the ticket's members.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the fragment does not say what they run.
    pub fn members(&self, rows: &MemberRows) -> Result<Arc<dyn ExecutionPlan>> {
        let relaying = self.relaying.as_ref().ok_or_else(|| {
            Error::invalid("the fragment reads other workers, and does not say what they run")
        })?;
        Ok(Arc::new(relaying.leaf(rows, self.max_partitions)?))
    }

    /// The segments that were bound. Their files exist as long as these live.
    pub fn into_segments(self) -> Vec<Arc<Segment>> {
        self.segments.into_inner()
    }

    /// The encoded value of a parameter.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the ticket has none.
    pub fn value(&self, ordinal: u32) -> Result<&Bytes> {
        let values = &self.bindings.values;
        values.get(ordinal as usize).ok_or_else(|| {
            Error::invalid(format!(
                "the fragment has a parameter {ordinal}, and the ticket only {} values",
                values.len()
            ))
        })
    }

    /// A Parquet scan of the segments.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the scan does not fit its ticket, `NOT_FOUND` if the table was dropped.
    pub fn bind(&self, scan: &ShardScan) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::new(ipc::schema_from_bytes(&scan.table_schema)?);
        let Files { groups, have_pages } = self.files(scan)?;
        let mut parquet = self.parquet.clone();
        parquet.global.enable_page_index = have_pages;
        let store = ObjectStoreUrl::local_filesystem();
        let readers = Arc::new(SegmentReaders::new(
            self.runtime_env.object_store(&store)?,
            self.runtime_env.cache_manager.get_file_metadata_cache(),
        ));
        let source = ParquetSource::new(TableSchema::from(schema))
            .with_table_parquet_options(parquet)
            .with_pushdown_filters(scan.late_materialisation)
            .with_parquet_file_reader_factory(Arc::<SegmentReaders>::clone(&readers));
        let source = SegmentSource::new(source, readers);
        let projection = scan
            .projection
            .iter()
            .map(|column| *column as usize)
            .collect();
        let config = FileScanConfigBuilder::new(store, Arc::new(source))
            .with_file_groups(groups)
            .with_projection_indices(Some(projection))?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn files(&self, scan: &ShardScan) -> Result<Files> {
        let table = TableId(scan.table_id);
        let at = |error: Error| error.at(format!("table {}", scan.table_name));
        let shards = self.bindings.scans.get(scan.ordinal as usize);
        if scan.reference {
            let mut files = Files::new(1);
            let expected = shards.and_then(|shards| shards.expected(0));
            self.add_files(table, 0, expected, &mut files, 0)
                .map_err(at)?;
            return Ok(files);
        }
        let shards = shards.ok_or_else(|| {
            Error::invalid(format!(
                "the ticket does not say which shards of table {} to read",
                scan.table_name
            ))
        })?;
        let mut files = Files::new(self.partitions);
        for (position, shard) in shards.shards.iter().enumerate() {
            // Every shard of the ticket has a partition.
            if let Some(partition) = self.partition_of_shard.get(shard) {
                let expected = shards.expected(position);
                self.add_files(table, *shard, expected, &mut files, *partition)
                    .map_err(at)?;
            }
        }
        Ok(files)
    }

    fn add_files(
        &self,
        table: TableId,
        shard: u32,
        expected: Option<Expected>,
        files: &mut Files,
        partition: usize,
    ) -> Result<()> {
        let Bindings {
            snapshot, counted, ..
        } = &self.bindings;
        let counted = expected.map(|expected| Counted {
            expected,
            by: counted.as_ref().unwrap_or(snapshot),
        });
        let segments = self.storage.segments(table, shard, snapshot, counted)?;
        for segment in &segments {
            segment.check_once(self.check_bytes)?;
            files.have_pages |= segment.rows() > PAGE_ROWS || segment.bytes() > PAGE_BYTES;
            let file = PartitionedFile::new_from_meta(ObjectMeta {
                location: segment.object_path()?,
                // A segment never changes, so that a fixed time keeps what is cached of it valid.
                last_modified: DateTime::<Utc>::UNIX_EPOCH,
                size: segment.bytes(),
                e_tag: None,
                version: None,
            });
            files.groups[partition].push(file.with_extension(Arc::clone(segment)));
        }
        self.segments.lock().extend(segments);
        Ok(())
    }
}

/// What a scan reads.
struct Files {
    /// By partition.
    groups: Vec<FileGroup>,
    /// Whether a segment has several pages in a column, so that the index of its pages is of use.
    have_pages: bool,
}

impl Files {
    fn new(partitions: usize) -> Self {
        Self {
            groups: vec![FileGroup::default(); partitions],
            have_pages: false,
        }
    }
}
