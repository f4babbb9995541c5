//! An object store hands each read to a thread that may block, and wakes the reader when the read
//! is done. For the few pages of a small answer, that takes longer than the read itself. What is in
//! the page cache is read here, without another thread. Everything else is read through the object
//! store.
//!
//! What was read is compared with its checksums before it is used. The checksums of pages and bloom
//! filters are in the file's metadata. The checksum of the metadata is in the worker's store.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::metadata::{
    CachedParquetMetaData, DFParquetMetadata,
};
use datafusion::error::Result as DfResult;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, Time,
};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use object_store::local::LocalFileSystem;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use rustix::io::{ReadWriteFlags, preadv2};
use volary_flight_proto::Error;

use super::format::{FORMAT, format_of};
use super::page_checksums::{Damage, PageChecksums};
use crate::storage::Segment;

/// Maximum size of a read from the page cache without another thread, in bytes. A larger read is
/// worth a thread of its own.
pub(crate) const MAX_INLINE_READ_BYTES: u64 = 512 << 10;
/// Name of the metric with the time in which a scan waited for the object store.
pub(crate) const STORE_WAIT_TIME: &str = "time_elapsed_waiting_for_store";

/// Makes the readers of segments, which are files of the local file system.
#[derive(Debug)]
pub(crate) struct SegmentReaders {
    store: Arc<dyn ObjectStore>,
    metadata: Arc<FileMetadataCache>,
    paths: LocalFileSystem,
}

impl SegmentReaders {
    /// Builds the factory of readers. `store` reads what is not in the page cache, and `metadata`
    /// caches the metadata of files.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, metadata: Arc<FileMetadataCache>) -> Self {
        Self {
            store,
            metadata,
            paths: LocalFileSystem::new(),
        }
    }

    /// Returns the cached metadata of the file, or `None` if it was not read yet.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if this release does not know the format of the file.
    pub(crate) fn cached_metadata(
        &self,
        file: &PartitionedFile,
    ) -> Result<Option<Arc<ParquetMetaData>>> {
        let segment = file.extension::<Arc<Segment>>();
        let file = &file.object_meta;
        let metadata = metadata_in_cache(self.metadata.as_ref(), file);
        if let Some(metadata) = &metadata {
            check_format(metadata, file, segment)?;
        }
        Ok(metadata)
    }

    /// Opens the file.
    pub(crate) fn open(&self, file: &ObjectMeta) -> DfResult<File> {
        Ok(File::open(self.paths.path_to_filesystem(&file.location)?)?)
    }
}

impl ParquetFileReaderFactory for SegmentReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> DfResult<Box<dyn AsyncFileReader + Send>> {
        let segment = file.extension::<Arc<Segment>>().map(Arc::clone);
        let file = file.object_meta;
        let path = self.paths.path_to_filesystem(&file.location)?;
        let scanned = MetricBuilder::new(metrics)
            .with_new_label("filename", file.location.to_string())
            .with_category(MetricCategory::Bytes)
            .counter("bytes_scanned", partition);
        let store_wait = MetricBuilder::new(metrics).subset_time(STORE_WAIT_TIME, partition);
        Ok(Box::new(SegmentReader {
            store: Arc::clone(&self.store),
            metadata: Arc::clone(&self.metadata),
            metadata_size_hint,
            file,
            path,
            segment,
            page_checksums: None,
            opened: None,
            scanned,
            store_wait,
        }))
    }
}

struct SegmentReader {
    store: Arc<dyn ObjectStore>,
    metadata: Arc<FileMetadataCache>,
    metadata_size_hint: Option<usize>,
    file: ObjectMeta,
    path: PathBuf,
    /// The segment that the file belongs to.
    segment: Option<Arc<Segment>>,
    /// The checksums of the pages. The outer `None` means that they were not looked for yet. The
    /// inner `None` means that the release that wrote the file took none.
    page_checksums: Option<Option<PageChecksums>>,
    opened: Option<File>,
    scanned: Count,
    /// Time in which the reader waited for the store.
    store_wait: Time,
}

impl SegmentReader {
    /// Returns the bytes of these ranges, if they are few and the system has them in memory.
    fn read_cached_ranges(&mut self, ranges: &[Range<u64>]) -> Option<Vec<Bytes>> {
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.scanned
            .add(usize::try_from(wanted).unwrap_or(usize::MAX));
        if wanted > MAX_INLINE_READ_BYTES {
            return None;
        }
        let file = match self.opened.take() {
            Some(file) => file,
            None => File::open(&self.path).ok()?,
        };
        let read = ranges.iter().map(|range| read_cached(&file, range));
        let read = read.collect();
        self.opened = Some(file);
        read
    }

    async fn read(&mut self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let read = match self.read_cached_ranges(&ranges) {
            Some(read) => yield_if_due(read).await?,
            None => {
                let reading = self.store.get_ranges(&self.file.location, &ranges);
                let read = count_waits(reading, &self.store_wait).await;
                read.map_err(|error| ParquetError::External(Box::new(error)))?
            }
        };
        if self.page_checksums.is_none() {
            let metadata = self.metadata(None).await?;
            self.note_page_checksums(&metadata)?;
        }
        if let Some(Some(checksums)) = &self.page_checksums {
            let compared = checksums.check_all(&ranges, &read);
            compared.map_err(|damaged| self.segment_damage_error(damaged))?;
        }
        Ok(read)
    }

    async fn metadata(
        &mut self,
        options: Option<&ArrowReaderOptions>,
    ) -> Result<Arc<ParquetMetaData>> {
        let page_index = options.map(ArrowReaderOptions::column_index_policy);
        if !self.is_metadata_cached(page_index) {
            count_waits(self.check_tail(), &self.store_wait).await?;
        }
        let metadata = DFParquetMetadata::new(&self.store, &self.file)
            .with_file_metadata_cache(Some(Arc::clone(&self.metadata)))
            .with_metadata_size_hint(self.metadata_size_hint)
            .with_page_index_policy(page_index);
        let fetching = count_waits(metadata.fetch_metadata(), &self.store_wait);
        let fetched = fetching.await.map_err(|error| {
            let failed = format!("the metadata of {} cannot be read", self.path.display());
            ParquetError::External(Box::new(error.context(failed)))
        })?;
        check_format(&fetched, &self.file, self.segment.as_ref())?;
        Ok(fetched)
    }

    /// Returns whether the metadata is in memory, so that nothing of the file is read for it.
    fn is_metadata_cached(&self, page_index: Option<PageIndexPolicy>) -> bool {
        let known = metadata_in_cache(self.metadata.as_ref(), &self.file);
        known.is_some_and(|known| {
            page_index == Some(PageIndexPolicy::Skip)
                || known.column_index().is_some() && known.offset_index().is_some()
        })
    }

    /// Compares the file's metadata and indexes with their checksum, before anything relies on
    /// them.
    async fn check_tail(&self) -> Result<()> {
        let checksums = self
            .segment
            .as_ref()
            .and_then(|segment| segment.checksums());
        let Some(checksums) = checksums else {
            return Ok(());
        };
        let start = self.file.size.saturating_sub(checksums.tail_bytes);
        let tail = self
            .store
            .get_range(&self.file.location, start..self.file.size)
            .await;
        let tail = tail.map_err(|error| ParquetError::External(Box::new(error)))?;
        if checksums.matches_tail(&tail) {
            return Ok(());
        }
        let what = format!(
            "the checksum of its last {} bytes does not match",
            tail.len()
        );
        Err(self.segment_damage_error(Damage(what)))
    }

    fn note_page_checksums(&mut self, metadata: &ParquetMetaData) -> Result<()> {
        if self.page_checksums.is_none() {
            let known = PageChecksums::of(metadata);
            self.page_checksums =
                Some(known.map_err(|damaged| self.segment_damage_error(damaged))?);
        }
        Ok(())
    }

    fn segment_damage_error(&self, damaged: Damage) -> ParquetError {
        damage_error(self.segment.as_ref(), damaged)
    }
}

/// Refuses a file in a newer format than this release knows, because it could be misread.
fn check_format(
    metadata: &ParquetMetaData,
    file: &ObjectMeta,
    segment: Option<&Arc<Segment>>,
) -> Result<()> {
    let format = format_of(metadata).map_err(|damaged| damage_error(segment, damaged))?;
    if format <= FORMAT {
        return Ok(());
    }
    let name = match segment {
        Some(segment) => format!(
            "shard {} of table {}: segment {}",
            segment.shard(),
            segment.table(),
            segment.relative_path()
        ),
        None => format!("segment /{}", file.location),
    };
    let writer = metadata.file_metadata().created_by();
    let writer = writer.map_or_else(String::new, |writer| format!(" ({writer})"));
    let error = Error::invalid(format!(
        "{name} has format {format}, but this release reads up to format {FORMAT}; start the worker with the release that wrote the file{writer}, or a newer one"
    ));
    Err(ParquetError::External(Box::new(error)))
}

/// Returns the error for a segment whose file is not as it was written. No later query reads the
/// segment.
pub(crate) fn damage_error(segment: Option<&Arc<Segment>>, damaged: Damage) -> ParquetError {
    match segment {
        Some(segment) => ParquetError::External(Box::new(segment.note_damage(damaged.0))),
        None => ParquetError::External(Box::new(damaged)),
    }
}

fn metadata_in_cache(
    metadata: &FileMetadataCache,
    file: &ObjectMeta,
) -> Option<Arc<ParquetMetaData>> {
    let known = metadata.get(&file.location)?;
    if !known.is_valid_for(file) {
        return None;
    }
    let known = known.file_metadata.as_any();
    let known = known.downcast_ref::<CachedParquetMetaData>()?;
    Some(Arc::clone(known.parquet_metadata()))
}

/// Reads a range of the file that the system has in memory. Returns `None` if the read would have
/// to wait for a part of it, or if the range cannot be read.
pub(crate) fn read_cached(file: &File, range: &Range<u64>) -> Option<Bytes> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let mut rest = [IoSliceMut::new(&mut bytes[filled..])];
        let offset = range.start + filled as u64;
        match preadv2(file, &mut rest, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(_) => return None,
            Ok(read) => filled += read,
        }
    }
    Some(bytes.into())
}

/// Does the work, and adds the time in which it waits to `waited`. The polls are not added, because
/// the scan measures how long it computes.
async fn count_waits<T>(work: impl Future<Output = T>, waited: &Time) -> T {
    let mut work = pin!(work);
    let mut since = None::<Instant>;
    poll_fn(|cx| {
        if let Some(since) = since.take() {
            waited.add_duration(since.elapsed());
        }
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            since = Some(Instant::now());
        }
        polled
    })
    .await
}

/// Reads a range of the file, and waits for the disk if necessary. Returns `None` if the range
/// cannot be read. May block.
pub(crate) fn read_waiting(file: &File, range: &Range<u64>) -> Option<Bytes> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start).ok()?;
    Some(bytes.into())
}

/// Returns what was read, and yields to other tasks first if necessary. A reader that never yields
/// would keep them waiting, and would not notice that its query has ended.
async fn yield_if_due<T>(read: T) -> Result<T> {
    tokio::task::coop::consume_budget().await;
    Ok(read)
}

impl AsyncFileReader for SegmentReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let read = self.read(vec![range]);
        read.map_ok(|read| read.into_iter().next().unwrap_or_default())
            .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.read(ranges).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let metadata = self.metadata(options).await?;
            self.note_page_checksums(&metadata)?;
            Ok(metadata)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_written_just_now_is_read_at_once() {
        let path = std::env::temp_dir().join(format!("volary-reads-{}", uuid::Uuid::new_v4()));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"a segment of a shard").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // Some file systems cannot tell whether a read would block. There, `read_cached` reads
        // nothing.
        if let Some(read) = read_cached(&file, &(2..9)) {
            assert_eq!(read, "segment");
        }
        assert!(read_cached(&file, &(2..90)).is_none());
        assert_eq!(read_cached(&file, &(2..2)), Some(Bytes::new()));
    }
}
