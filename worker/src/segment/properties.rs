//! The format of the Parquet files of segments.
//!
//! Any Parquet tool can read these files. What Arrow knows beyond Parquet's types (seconds,
//! durations, dictionaries) is in the usual `ARROW:schema` entry. Views are not recorded there:
//! they are only a layout in memory, and older readers do not know them.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{
    ARROW_SCHEMA_META_KEY, ArrowSchemaConverter, ArrowWriter, encode_arrow_schema,
};
use parquet::basic::{Compression, Encoding};
use parquet::column::page_store::PageStoreFactory;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::schema::without_views;
use crate::config;
use crate::storage::ChecksummedFile;
use crate::write::layout::{Layout, ORDER};

/// Share of absent keys that a bloom filter wrongly reports as present.
const BLOOM_FALSE_POSITIVES: f64 = 0.01;
/// Size of a dictionary above which a column continues without one, in bytes. Parquet's usual 1 MiB
/// is for larger row groups. In the row groups of segments, it allows dictionaries with almost as
/// many values as there are rows. These take much time and save no space.
const MAX_DICTIONARY_BYTES: usize = 128 << 10;
/// Name of the writer, in the form that Parquet's specification asks for. Readers parse it to know
/// whose statistics they may trust.
const CREATED_BY: &str = concat!("volary version ", env!("CARGO_PKG_VERSION"));

/// How the segments of a table are written.
#[derive(Debug)]
pub(crate) struct Format {
    schema: SchemaRef,
    options: ArrowWriterOptions,
    /// Size above which a shard continues in another file, in bytes.
    pub(crate) segment_bytes: usize,
}

impl Format {
    /// Builds the format for the segments of a table.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` for a compression or a column type that Parquet does not have.
    pub(crate) fn new(layout: &Layout, config: &config::Storage) -> Result<Self> {
        let invalid = |what: &str, source: ParquetError| {
            Error::with_source(ErrorCode::InvalidArgument, what, source)
        };
        let compression: Compression = config
            .compression
            .parse()
            .map_err(|source| invalid("worker.storage.compression is none of Parquet's", source))?;
        let schema = layout.schema();
        let sorting = sorting_columns(layout)
            .map_err(|source| invalid("a column's type cannot be kept in Parquet files", source))?;
        let arrow_schema = KeyValue::new(
            ARROW_SCHEMA_META_KEY.to_owned(),
            encode_arrow_schema(&without_views(schema)),
        );
        let mut properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(compression)
            .set_dictionary_enabled(true)
            .set_dictionary_page_size_limit(MAX_DICTIONARY_BYTES)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(config.row_group_rows))
            .set_sorting_columns(Some(sorting))
            .set_key_value_metadata(Some(vec![arrow_schema]));
        let path_of = |column: usize| ColumnPath::new(vec![schema.field(column).name().clone()]);
        // Parquet's bounds leave NaN out, but for a query NaN is the largest value
        // (apache/datafusion#15812).
        for (column, field) in schema.fields().iter().enumerate() {
            if field.data_type().is_floating() {
                properties = properties
                    .set_column_statistics_enabled(path_of(column), EnabledStatistics::None);
            }
        }
        if let Some(key) = layout.sort_key().first()
            && is_integral(schema.field(*key).data_type())
        {
            properties = properties
                .set_column_dictionary_enabled(path_of(*key), false)
                .set_column_encoding(path_of(*key), Encoding::DELTA_BINARY_PACKED);
        }
        if let Some(key) = layout.shard_key() {
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

    /// Creates a writer of the table's columns. It keeps pages in `pages` until a row group is
    /// complete.
    pub(crate) fn writer(
        &self,
        file: ChecksummedFile,
        pages: Arc<dyn PageStoreFactory>,
    ) -> Result<ArrowWriter<ChecksummedFile>, ParquetError> {
        let options = self.options.clone().with_page_store_factory(pages);
        ArrowWriter::try_new_with_options(file, Arc::clone(&self.schema), options)
    }
}

/// Returns the error for a segment whose file cannot be written.
pub(crate) fn failed(path: &Path, error: ParquetError) -> Error {
    Error::io_within(format!("cannot write segment {}", path.display()), error)
}

/// Returns whether values are stored as Parquet's integers. The differences of such values are
/// small when they are sorted.
fn is_integral(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}

/// Returns the sort key in Parquet's form. Parquet also numbers the leaves of nested columns.
fn sorting_columns(layout: &Layout) -> Result<Vec<SortingColumn>, ParquetError> {
    let parquet = ArrowSchemaConverter::new().convert(layout.schema())?;
    let leaf_of = |root: &usize| {
        let leaf =
            (0..parquet.num_columns()).find(|leaf| parquet.get_column_root_idx(*leaf) == *root);
        leaf.and_then(|leaf| i32::try_from(leaf).ok())
    };
    let sorted = layout.sort_key().iter().map_while(leaf_of);
    Ok(sorted
        .map(|column_idx| SortingColumn {
            column_idx,
            descending: ORDER.descending,
            nulls_first: ORDER.nulls_first,
        })
        .collect())
}
