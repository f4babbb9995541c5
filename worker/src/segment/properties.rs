use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding};
use parquet::column::page_store::PageStoreFactory;
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::format::format_entry;
use super::intervals::stored_schema;
use super::schema::schema_entry;
use crate::config;
use crate::storage::{ChecksummedFile, WRITE_COLUMN};

/// The order of rows in a file. `ORDER BY key` has the same order by default, so that a scan in
/// this order need not sort.
pub(crate) const ORDER: SortOptions = SortOptions {
    descending: false,
    nulls_first: false,
};

/// Number of rows after which a column continues in another page. It is Parquet's default, because
/// the files of earlier releases have pages of this size.
const PAGE_ROWS: usize = 20_000;
/// Size after which a column continues in another page, in bytes. This is Parquet's default, too.
const PAGE_BYTES: usize = 1 << 20;
/// Share of absent keys that a bloom filter wrongly reports as present.
const BLOOM_FALSE_POSITIVES: f64 = 0.01;
/// Size of a dictionary above which a column continues without one, in bytes. Parquet's usual 1 MiB
/// is for larger row groups. In the row groups of segments, it allows dictionaries with almost as
/// many values as there are rows. These take much time and save no space.
const MAX_DICTIONARY_BYTES: usize = 128 << 10;
/// Name of the writer, in the form that Parquet's specification asks for. Readers parse it to know
/// whose statistics they may trust.
const CREATED_BY: &str = concat!("volary version ", env!("CARGO_PKG_VERSION"));

/// How the files of a table's segments are written.
#[derive(Debug)]
pub(crate) struct SegmentProperties {
    /// The columns of the files.
    schema: SchemaRef,
    options: ArrowWriterOptions,
    /// Size above which a shard continues in another file, in bytes.
    pub(crate) segment_bytes: usize,
}

impl SegmentProperties {
    /// Builds the properties for the files of a table. `shard_key` and `sort_key` are positions in
    /// its `schema`.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` for a compression or a column type that Parquet does not have.
    pub(crate) fn new(
        schema: &SchemaRef,
        shard_key: Option<usize>,
        sort_key: &[usize],
        config: &config::StorageConfig,
    ) -> Result<Self> {
        Self::with_columns(schema, shard_key, sort_key, config, None)
    }

    /// Builds the properties for files with rows of several writes, up to this number. The files
    /// have the columns of the table's `schema`, and a last column with the write of each row.
    ///
    /// # Errors
    /// Returns the errors of [`Self::new`].
    pub(crate) fn of_several_writes(
        schema: &SchemaRef,
        shard_key: Option<usize>,
        sort_key: &[usize],
        config: &config::StorageConfig,
        writes: usize,
    ) -> Result<Self> {
        let write = Arc::new(Field::new(WRITE_COLUMN, DataType::UInt64, false));
        let fields = schema.fields().iter().cloned().chain([write]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self::with_columns(&schema, shard_key, sort_key, config, Some(writes))
    }

    fn with_columns(
        schema: &SchemaRef,
        shard_key: Option<usize>,
        sort_key: &[usize],
        config: &config::StorageConfig,
        writes: Option<usize>,
    ) -> Result<Self> {
        let invalid = |what: &str, source: ParquetError| {
            Error::with_source(ErrorCode::InvalidArgument, what, source)
        };
        let compression: Compression = config.compression.parse().map_err(|source| {
            invalid(
                "worker.storage.compression is not a compression of Parquet",
                source,
            )
        })?;
        let schema = &stored_schema(schema);
        let sorting = sorting_columns(schema, sort_key).map_err(|source| {
            invalid("a column's type cannot be stored in Parquet files", source)
        })?;
        let metadata = vec![format_entry(), schema_entry(schema)];
        let mut properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(compression)
            .set_dictionary_enabled(true)
            .set_dictionary_page_size_limit(MAX_DICTIONARY_BYTES)
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(config.row_group_rows))
            .set_sorting_columns(Some(sorting))
            .set_key_value_metadata(Some(metadata));
        let path_of = |column: usize| ColumnPath::new(vec![schema.field(column).name().clone()]);
        // Parquet's bounds leave NaN out, but for a query NaN is the largest value
        // (apache/datafusion#15812).
        for (column, field) in schema.fields().iter().enumerate() {
            if field.data_type().is_floating() {
                properties = properties
                    .set_column_statistics_enabled(path_of(column), EnabledStatistics::None);
            }
        }
        if let Some(key) = sort_key.first()
            && is_integral(schema.field(*key).data_type())
        {
            properties = properties
                .set_column_dictionary_enabled(path_of(*key), false)
                .set_column_encoding(path_of(*key), Encoding::DELTA_BINARY_PACKED);
        }
        // The rows of a file are sorted by other columns, so their writes come in no order. Numbers
        // of a dictionary are shorter than differences, if a dictionary has room for all writes.
        if writes.is_some_and(|writes| writes > MAX_DICTIONARY_BYTES / size_of::<u64>()) {
            let path = path_of(schema.fields().len() - 1);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        if let Some(key) = shard_key {
            let path = path_of(key);
            // The filter has room for a row group of distinct keys. When the row group is complete,
            // the filter is folded to the size that it needs.
            let keys = u64::try_from(config.row_group_rows).unwrap_or(u64::MAX);
            properties = properties
                .set_column_bloom_filter_fpp(path.clone(), BLOOM_FALSE_POSITIVES)
                .set_column_bloom_filter_max_ndv(path, keys);
        }
        Ok(Self {
            schema: Arc::clone(schema),
            options: ArrowWriterOptions::new()
                .with_properties(properties.build())
                .with_skip_arrow_metadata(true),
            segment_bytes: config.segment.bytes(),
        })
    }

    /// Returns the columns of the files.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Creates a writer of the table's columns. It keeps pages in `pages` until a row group is
    /// complete.
    pub(super) fn writer(
        &self,
        file: ChecksummedFile,
        pages: Arc<dyn PageStoreFactory>,
    ) -> Result<ArrowWriter<ChecksummedFile>, ParquetError> {
        let options = self.options.clone().with_page_store_factory(pages);
        ArrowWriter::try_new_with_options(file, Arc::clone(&self.schema), options)
    }
}

/// Returns whether a column of a file may have several pages. The page index is useful only then.
///
/// The release that wrote the file is not known here. If the size of pages ever changes, this
/// function must compare with the smallest size that any release has written.
pub(crate) fn may_have_several_pages(rows: u64, bytes: u64) -> bool {
    rows > PAGE_ROWS as u64 || bytes > PAGE_BYTES as u64
}

/// Returns whether values are stored as Parquet's integers. The differences of such values are
/// small when they are sorted.
fn is_integral(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}

/// Returns the sort key in Parquet's form, which numbers leaf columns.
fn sorting_columns(
    schema: &Schema,
    sort_key: &[usize],
) -> Result<Vec<SortingColumn>, ParquetError> {
    let parquet = ArrowSchemaConverter::new().convert(schema)?;
    let leaf_of = |root: &usize| {
        let leaf =
            (0..parquet.num_columns()).find(|leaf| parquet.get_column_root_idx(*leaf) == *root);
        leaf.and_then(|leaf| i32::try_from(leaf).ok())
    };
    let sorted = sort_key.iter().map_while(leaf_of);
    Ok(sorted
        .map(|column_idx| SortingColumn {
            column_idx,
            descending: ORDER.descending,
            nulls_first: ORDER.nulls_first,
        })
        .collect())
}
