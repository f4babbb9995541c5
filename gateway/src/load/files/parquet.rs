//! By default, DataFusion reads the footer of a Parquet file again for each part of the file. If
//! the file changes in the store, a later footer may differ from the one that was checked.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use datafusion::config::TableParquetOptions;
use datafusion::datasource::file_format::parquet::transform_schema_to_view;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::{self, BoxFuture};
use futures::{FutureExt, TryFutureExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use volary_flight_proto::{Error, Result};

use super::footer;

/// Number of bytes after the footer: the footer's length, and four letters.
const TAIL: u64 = 8;

/// Number of bytes that are read from the end of a file at first. Most footers fit into them.
const FIRST_READ_BYTES: u64 = 512 << 10;

/// Maximum size of a footer in bytes. The whole footer is held in memory, and the decoded footer
/// takes several times its size.
const MAX_FOOTER: u64 = 256 << 20;

/// A file whose footer has been read.
#[derive(Debug, Clone)]
pub(super) struct ParquetFile {
    store: Arc<dyn ObjectStore>,
    metadata: Arc<ParquetMetaData>,
}

impl ParquetFile {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// `DATA_LOSS` for a damaged file. `INVALID_ARGUMENT` for a file whose footer is too large or
    /// encrypted, or whose columns are nested too deeply. Also the errors of the store.
    pub(super) async fn open(store: &Arc<dyn ObjectStore>, file: &ObjectMeta) -> Result<Self> {
        let footer = read_footer(store, file).await?;
        footer::check(&footer)?;
        let metadata =
            ParquetMetaDataReader::decode_metadata(&footer).map_err(from_parquet_error)?;
        Ok(Self {
            store: Arc::clone(store),
            metadata: Arc::new(metadata),
        })
    }

    /// Returns the file's columns, with the types in which the reader returns them.
    ///
    /// # Errors
    /// `DATA_LOSS` for a column whose type is not valid.
    pub(super) fn schema(&self) -> Result<Schema> {
        let file = self.metadata.file_metadata();
        let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata());
        let schema = schema.map_err(from_parquet_error)?;
        let fields = schema.fields().iter();
        let fields = fields.map(|field| Field::clone(field).with_metadata(Default::default()));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(transform_schema_to_view(&schema))
    }

    /// Returns a plan that reads these columns from a part of the file.
    pub(super) fn scan(
        &self,
        url: ObjectStoreUrl,
        part: PartitionedFile,
        schema: &SchemaRef,
    ) -> Arc<dyn ExecutionPlan> {
        let source = ParquetSource::new(TableSchema::from(Arc::clone(schema)))
            .with_table_parquet_options(TableParquetOptions::default())
            .with_parquet_file_reader_factory(Arc::new(self.clone()));
        let config = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file(part)
            .build();
        DataSourceExec::from_data_source(config)
    }
}

async fn read_footer(store: &Arc<dyn ObjectStore>, file: &ObjectMeta) -> Result<Bytes> {
    let size = file.size;
    if size < TAIL {
        return Err(from_parquet_error(ParquetError::General(format!(
            "Parquet files are at least {TAIL} bytes long, but file length is {size}"
        ))));
    }
    let end = read(store, file, size.saturating_sub(FIRST_READ_BYTES)..size).await?;
    let tail = end.last_chunk();
    let tail = tail.ok_or_else(|| damaged_file("the file has changed while it was read"))?;
    let tail = FooterTail::try_new(tail).map_err(from_parquet_error)?;
    if tail.is_encrypted_footer() {
        return Err(Error::invalid(
            "its footer is encrypted, which is not supported; write the file without encryption",
        ));
    }
    let length = tail.metadata_length() as u64;
    if length > MAX_FOOTER {
        return Err(Error::invalid(format!(
            "its footer is {length} bytes long, but at most {MAX_FOOTER} bytes are allowed; write several files, or fewer row groups"
        )));
    }
    let begin = (size - TAIL)
        .checked_sub(length)
        .ok_or_else(|| damaged_file("the footer is longer than the file"))?;
    let first = size - end.len() as u64;
    match begin.checked_sub(first) {
        // The conversion cannot fail: the bytes are in memory, so their offsets fit into `usize`.
        Some(offset) => {
            let begin = usize::try_from(offset).unwrap_or(usize::MAX);
            Ok(end.slice(begin..end.len() - TAIL as usize))
        }
        None => read(store, file, begin..size - TAIL).await,
    }
}

async fn read(store: &Arc<dyn ObjectStore>, file: &ObjectMeta, range: Range<u64>) -> Result<Bytes> {
    let length = range.end - range.start;
    let bytes = store.get_range(&file.location, range).await;
    let bytes = bytes.map_err(DataFusionError::from)?;
    if bytes.len() as u64 != length {
        return Err(damaged_file("the file has changed while it was read"));
    }
    Ok(bytes)
}

fn damaged_file(what: &str) -> Error {
    from_parquet_error(ParquetError::General(what.to_owned()))
}

fn from_parquet_error(error: ParquetError) -> Error {
    DataFusionError::from(error).into()
}

impl ParquetFileReaderFactory for ParquetFile {
    fn create_reader(
        &self,
        _: usize,
        file: PartitionedFile,
        _: Option<usize>,
        _: &ExecutionPlanMetricsSet,
    ) -> DfResult<Box<dyn AsyncFileReader + Send>> {
        Ok(Box::new(PageFetcher {
            file: self.clone(),
            path: file.object_meta.location,
        }))
    }
}

/// Reads the pages of a file.
struct PageFetcher {
    file: ParquetFile,
    path: Path,
}

impl AsyncFileReader for PageFetcher {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        let bytes = self.file.store.get_range(&self.path, range);
        bytes.map_err(from_store_error).boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        let read = async move {
            let bytes = self.file.store.get_ranges(&self.path, &ranges).await;
            bytes.map_err(from_store_error)
        };
        read.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        future::ready(Ok(Arc::clone(&self.file.metadata))).boxed()
    }
}

fn from_store_error(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;
    use datafusion::parquet::arrow::ArrowWriter;
    use datafusion::prelude::SessionContext;
    use futures::TryStreamExt;
    use object_store::PutPayload;
    use object_store::memory::InMemory;
    use volary_flight_proto::ErrorCode;

    use super::*;

    async fn stored(bytes: Vec<u8>) -> (Arc<dyn ObjectStore>, ObjectMeta) {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let path = Path::from("rows.parquet");
        store.put(&path, PutPayload::from(bytes)).await.unwrap();
        let file = store.head(&path).await.unwrap();
        (store, file)
    }

    fn written(rows: i64) -> Vec<u8> {
        let numbers = Int64Array::from_iter_values(0..rows);
        let batch = RecordBatch::try_from_iter([("k", Arc::new(numbers) as _)]).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_file_is_read_by_the_footer_that_was_checked() {
        let (store, file) = stored(written(1_000)).await;
        let opened = ParquetFile::open(&store, &file).await.unwrap();
        let schema = Arc::new(opened.schema().unwrap());
        let url = ObjectStoreUrl::parse("memory:///").unwrap();
        let context = SessionContext::new();
        context.register_object_store(url.as_ref(), store);
        let plan = opened.scan(url, PartitionedFile::new_from_meta(file), &schema);
        let rows = plan.execute(0, context.task_ctx()).unwrap();
        let rows: Vec<_> = rows.try_collect().await.unwrap();
        let numbers = rows.iter().flat_map(|batch| {
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            numbers.values().to_vec()
        });
        assert!(numbers.eq(0..1_000));
    }

    #[tokio::test]
    async fn a_file_that_is_cut_short_is_damaged() {
        let whole = written(10);
        for length in [4, 8, whole.len() / 2, whole.len() - 1] {
            let (store, file) = stored(whole[..length].to_vec()).await;
            let error = ParquetFile::open(&store, &file).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
        }
        let mut long = b"PAR1\xff\xff\x00\x00PAR1".to_vec();
        let (store, file) = stored(long.clone()).await;
        let error = ParquetFile::open(&store, &file).await.unwrap_err();
        assert!(error.message().contains("longer than the file"), "{error}");
        long[4..8].fill(0xff);
        let (store, file) = stored(long).await;
        let error = ParquetFile::open(&store, &file).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
}
