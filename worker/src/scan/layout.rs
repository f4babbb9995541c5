//! What the files of segments have.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

/// What a file has for a scan: the same for all that were written alike.
#[derive(Debug)]
pub(super) struct Layout {
    file_schema: TypePtr,
    /// How columns are read; none if the file's are not the table's, of its types.
    pub(super) columns: Option<Columns>,
}

/// The columns that are read.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) levels: FieldLevels,
    /// Columns of the file, ascending.
    pub(super) leaves: Vec<usize>,
}

impl Layout {
    /// Of these columns of the table.
    pub(super) fn new(
        metadata: &Arc<ParquetMetaData>,
        table_schema: &SchemaRef,
        columns: &[usize],
    ) -> Self {
        let file = metadata.file_metadata().schema_descr();
        Self {
            file_schema: file.root_schema_ptr(),
            columns: Columns::new(metadata, table_schema, columns),
        }
    }

    /// Whether it is that of this file, too.
    pub(super) fn is_of(&self, file: &SchemaDescriptor) -> bool {
        let file = file.root_schema_ptr();
        Arc::ptr_eq(&self.file_schema, &file) || self.file_schema == file
    }
}

impl Columns {
    fn new(
        metadata: &Arc<ParquetMetaData>,
        table_schema: &SchemaRef,
        columns: &[usize],
    ) -> Option<Self> {
        let file = metadata.file_metadata().schema_descr();
        let wanted = table_schema.fields();
        let there = file.root_schema().get_fields();
        let mut names = wanted.iter().zip(there);
        if wanted.len() != there.len()
            || !names.all(|(wanted, there)| wanted.name() == there.name())
        {
            return None;
        }
        // It is an error where the table's types are not made without casts.
        let options = ArrowReaderOptions::new().with_schema(Arc::clone(table_schema));
        ArrowReaderMetadata::try_new(Arc::clone(metadata), options).ok()?;
        let mask = ProjectionMask::roots(file, columns.iter().copied());
        let leaves = (0..file.num_columns()).filter(|leaf| mask.leaf_included(*leaf));
        Some(Self {
            leaves: leaves.collect(),
            levels: parquet_to_arrow_field_levels(file, mask, Some(wanted)).ok()?,
        })
    }
}
