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
use volary_flight_proto::fragment::{ExpectedRows, MemberRows, Parameters, ScanShards, ShardScan};
use volary_flight_proto::ids::TableId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result, ipc};

use super::filtered_scan::filter_scan;
use super::relay::MemberRelay;
use crate::expiry::Cutoff;
use crate::scan::decoded::DecodedSegments;
use crate::scan::{LoggedBatches, SegmentSource, visible_rows};
use crate::segment::{SegmentReaders, may_have_several_pages, stored_schema, with_intervals};
use crate::storage::{CountedRows, Segment, Storage, VisibleRows};

/// The shards and values that a fragment is bound to for one ticket.
#[derive(Debug, Clone)]
pub struct TicketBindings {
    /// The writes that the fragment sees.
    pub snapshot: Snapshot,
    /// The shards of each scan, and what the catalog has counted of them.
    pub scans: Vec<ScanShards>,
    /// The writes that the catalog has counted; `None` if they are those of the snapshot.
    pub counted_writes: Option<Snapshot>,
    /// The time at which the statement began, in microseconds since 1970. Rows that had expired by
    /// then are left out.
    pub as_of_us: i64,
    /// The encoded values, by the ordinal of their parameter.
    pub values: Vec<Bytes>,
}

impl TicketBindings {
    /// Takes the bindings from a ticket.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the ticket has no snapshot, or if its values cannot be
    /// decoded.
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
            counted_writes: ticket.counted,
            as_of_us: ticket.as_of_us,
            values: parameters.values,
        })
    }

    /// Returns the rows of a shard of the scan that the ticket's snapshot sees. `expected` is what
    /// the catalog has counted.
    ///
    /// # Errors
    /// Returns the errors of [`Storage::rows`].
    pub(crate) fn visible_rows(
        &self,
        storage: &Storage,
        scan: &ShardScan,
        shard: u32,
        expected: Option<ExpectedRows>,
    ) -> Result<VisibleRows> {
        let counted = expected.map(|expected| CountedRows {
            expected,
            counted_writes: self.counted_writes.as_ref().unwrap_or(&self.snapshot),
        });
        let as_of_us = scan.expiry.map(|_| self.as_of_us);
        let table = TableId(scan.table_id);
        storage.rows(table, shard, &self.snapshot, counted, as_of_us)
    }
}

/// Returns the file of a segment, as scans and the cache of metadata name it.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the data directory has a name that object stores do not allow.
pub(crate) fn file_of_segment(segment: &Arc<Segment>) -> Result<PartitionedFile> {
    let file = PartitionedFile::new_from_meta(ObjectMeta {
        location: segment.object_path()?,
        // A segment never changes. With a fixed time, its cached metadata stays valid.
        last_modified: DateTime::<Utc>::UNIX_EPOCH,
        size: segment.bytes(),
        e_tag: None,
        version: None,
    });
    Ok(file.with_extension(Arc::clone(segment)))
}

/// Binds the scans and parameters of one fragment.
///
/// All sharded scans of a fragment have the same partitions. The shards of all scans are assigned
/// to the partitions by one rule. So equal shards of co-located tables are in the same partition.
#[derive(Debug)]
pub struct Binder {
    storage: Storage,
    runtime_env: Arc<RuntimeEnv>,
    decoded: Arc<DecodedSegments>,
    parquet: TableParquetOptions,
    bindings: TicketBindings,
    partition_of_shard: BTreeMap<u32, usize>,
    partitions: usize,
    /// Builds the leaves that read the rows of other workers, if the fragment relays.
    relay: Option<MemberRelay>,
    max_partitions: usize,
    /// Size up to which a segment is compared with its checksum when it is first needed, in bytes.
    check_bytes: u64,
    segments: Mutex<Vec<Arc<Segment>>>,
}

impl Binder {
    /// Builds a binder for a fragment with these bindings and at most `max_partitions` partitions.
    pub fn new(
        storage: Storage,
        runtime_env: Arc<RuntimeEnv>,
        decoded: Arc<DecodedSegments>,
        parquet: TableParquetOptions,
        bindings: TicketBindings,
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
            decoded,
            parquet,
            bindings,
            partition_of_shard,
            partitions,
            relay: None,
            max_partitions,
            check_bytes: 0,
            segments: Mutex::new(Vec::new()),
        }
    }

    /// Sets the members whose rows the fragment merges, if it relays.
    #[must_use]
    pub(crate) fn with_relay(self, relaying: Option<MemberRelay>) -> Self {
        Self {
            relay: relaying,
            ..self
        }
    }

    /// Sets the size, in bytes, up to which a segment is compared with its checksum when it is
    /// first needed.
    #[must_use]
    pub(crate) fn with_check_bytes(self, check_bytes: usize) -> Self {
        Self {
            check_bytes: check_bytes as u64,
            ..self
        }
    }

    /// Returns the leaf that reads the rows of the ticket's members.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the fragment does not say what the members run.
    pub(crate) fn bind_members(&self, rows: &MemberRows) -> Result<Arc<dyn ExecutionPlan>> {
        let relaying = self.relay.as_ref().ok_or_else(|| {
            Error::invalid(
                "the fragment reads the rows of other workers, but does not say what they run",
            )
        })?;
        Ok(Arc::new(relaying.leaf(rows, self.max_partitions)?))
    }

    /// Returns the segments that were bound. Their files exist as long as these values live.
    pub(crate) fn into_segments(self) -> Vec<Arc<Segment>> {
        self.segments.into_inner()
    }

    /// Returns the encoded value of a parameter.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the ticket has no value for the parameter.
    pub(crate) fn parameter_value(&self, ordinal: u32) -> Result<&Bytes> {
        let values = &self.bindings.values;
        let value = values.get(ordinal as usize);
        value.ok_or_else(|| missing_parameter_error(ordinal, values.len()))
    }

    /// Returns a Parquet scan of the segments.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the scan does not fit its ticket, and `NOT_FOUND` if the table
    /// was dropped.
    pub(crate) fn bind_scan(&self, scan: &ShardScan) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::new(ipc::schema_from_bytes(&scan.table_schema)?);
        let Files {
            groups,
            may_have_pages: have_pages,
        } = self.files(scan)?;
        let mut parquet = self.parquet.clone();
        parquet.global.enable_page_index = have_pages;
        let store = ObjectStoreUrl::local_filesystem();
        let readers = Arc::new(SegmentReaders::new(
            self.runtime_env.object_store(&store)?,
            self.runtime_env.cache_manager.get_file_metadata_cache(),
        ));
        let source = ParquetSource::new(TableSchema::from(stored_schema(&schema)))
            .with_table_parquet_options(parquet)
            .with_pushdown_filters(scan.late_materialisation)
            .with_parquet_file_reader_factory(Arc::<SegmentReaders>::clone(&readers));
        let source = SegmentSource::new(source, readers, Arc::clone(&self.decoded));
        let wanted = scan.projection.iter().map(|column| *column as usize);
        let wanted: Vec<_> = wanted.collect();
        let expiry = scan.expiry.as_ref();
        let cutoff = expiry.and_then(|it| Cutoff::at(self.bindings.as_of_us, it, &schema));
        let mut projection = wanted.clone();
        if let Some(cutoff) = &cutoff
            && !projection.contains(&cutoff.column())
        {
            projection.push(cutoff.column());
        }
        let config = FileScanConfigBuilder::new(store, Arc::new(source))
            .with_file_groups(groups)
            .with_projection_indices(Some(projection.clone()))?
            .build();
        let rows = DataSourceExec::from_data_source(config);
        let rows = with_intervals(rows, &schema, &projection)?;
        let Some(cutoff) = cutoff else {
            return Ok(rows);
        };
        let position = projection.iter().position(|it| *it == cutoff.column());
        let condition = cutoff.condition(&rows.schema(), position.unwrap_or_default())?;
        let columns: Vec<_> = (0..wanted.len()).collect();
        Ok(filter_scan(
            rows,
            condition,
            columns,
            scan.late_materialisation,
        )?)
    }

    fn files(&self, scan: &ShardScan) -> Result<Files> {
        let at = |error: Error| error.at(format!("table {}", scan.table_name));
        let shards = self.bindings.scans.get(scan.ordinal as usize);
        if scan.reference {
            let mut files = Files::new(1);
            let expected = shards.and_then(|shards| shards.expected(0));
            self.add_files(scan, 0, expected, &mut files, 0)
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
                self.add_files(scan, *shard, expected, &mut files, *partition)
                    .map_err(at)?;
            }
        }
        Ok(files)
    }

    fn add_files(
        &self,
        scan: &ShardScan,
        shard: u32,
        expected: Option<ExpectedRows>,
        files: &mut Files,
        partition: usize,
    ) -> Result<()> {
        let bindings = &self.bindings;
        let rows = bindings.visible_rows(&self.storage, scan, shard, expected)?;
        for segment in &rows.segments {
            let file = self.file_of(segment, files)?;
            files.groups[partition].push(file);
        }
        for segment in &rows.partly {
            let file = self.file_of(segment, files)?;
            let selection = visible_rows(segment, &bindings.snapshot)?;
            files.groups[partition].push(file.with_extension(selection));
        }
        if !rows.logged.is_empty() {
            files.groups[partition].push(LoggedBatches::file(rows.logged));
        }
        let mut segments = self.segments.lock();
        segments.extend(rows.segments);
        segments.extend(rows.partly);
        Ok(())
    }

    fn file_of(&self, segment: &Arc<Segment>, files: &mut Files) -> Result<PartitionedFile> {
        segment.check_once(self.check_bytes)?;
        files.may_have_pages |= may_have_several_pages(segment.rows(), segment.bytes());
        file_of_segment(segment)
    }
}

/// Creates the error for a parameter without a value.
pub(super) fn missing_parameter_error(ordinal: u32, values: usize) -> Error {
    Error::invalid(format!(
        "the fragment uses parameter {ordinal}, but the ticket has only {values} values"
    ))
}

/// The files that a scan reads.
struct Files {
    /// The files of each partition.
    groups: Vec<FileGroup>,
    /// True if a segment may have several pages in a column.
    may_have_pages: bool,
}

impl Files {
    fn new(partitions: usize) -> Self {
        Self {
            groups: vec![FileGroup::default(); partitions],
            may_have_pages: false,
        }
    }
}
