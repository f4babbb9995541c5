use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

use crate::storage::WRITE_COLUMN;

/// What a scan needs to know about the schema of a file. It is the same for all files with the same
/// schema.
#[derive(Debug)]
pub(super) struct FileLayout {
    file_schema: TypePtr,
    /// How the columns are read; `None` if the file has other columns than the table, or if a
    /// column cannot be read in the table's type.
    pub(super) columns: Option<ReadColumns>,
}

/// The columns that are read.
#[derive(Debug)]
pub(super) struct ReadColumns {
    pub(super) levels: FieldLevels,
    /// The leaf columns of the file that are read, in ascending order.
    pub(super) leaves: Vec<usize>,
}

impl FileLayout {
    /// Builds the layout for these columns of the table.
    pub(super) fn new(
        metadata: &Arc<ParquetMetaData>,
        table_schema: &SchemaRef,
        columns: &[usize],
    ) -> Self {
        let file = metadata.file_metadata().schema_descr();
        Self {
            file_schema: file.root_schema_ptr(),
            columns: ReadColumns::new(metadata, table_schema, columns),
        }
    }

    /// Returns whether the layout fits another file, too.
    pub(super) fn fits(&self, file: &SchemaDescriptor) -> bool {
        let file = file.root_schema_ptr();
        Arc::ptr_eq(&self.file_schema, &file) || self.file_schema == file
    }
}

impl ReadColumns {
    fn new(
        metadata: &Arc<ParquetMetaData>,
        table_schema: &SchemaRef,
        columns: &[usize],
    ) -> Option<Self> {
        let file = metadata.file_metadata().schema_descr();
        let table_fields = table_schema.fields();
        let file_fields = file.root_schema().get_fields();
        let mut names = table_fields.iter().zip(file_fields);
        // A segment with rows of several writes has a last column with the write of each row.
        let further = file_fields.get(table_fields.len()..).unwrap_or_default();
        if table_fields.len() > file_fields.len()
            || further.iter().any(|field| field.name() != WRITE_COLUMN)
            || !names.all(|(wanted, there)| wanted.name() == there.name())
        {
            return None;
        }
        let write = Arc::new(Field::new(WRITE_COLUMN, DataType::UInt64, false));
        let fields = table_fields.iter().cloned();
        let fields: Fields = fields
            .chain(further.iter().map(|_| Arc::clone(&write)))
            .collect();
        // This fails if the table's types cannot be made without casts.
        let schema = Arc::new(Schema::new(fields.clone()));
        let options = ArrowReaderOptions::new().with_schema(schema);
        ArrowReaderMetadata::try_new(Arc::clone(metadata), options).ok()?;
        let mask = ProjectionMask::roots(file, columns.iter().copied());
        let leaves = (0..file.num_columns()).filter(|leaf| mask.leaf_included(*leaf));
        Some(Self {
            leaves: leaves.collect(),
            levels: parquet_to_arrow_field_levels(file, mask, Some(&fields)).ok()?,
        })
    }
}
