use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::arrow::array::RecordBatch;
#[cfg(test)]
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::listing::PartitionedFile;
use object_store::ObjectMeta;
use object_store::path::Path;

/// Rows of a shard that are in memory. A scan gets them in the place of a file.
#[derive(Debug, Clone)]
pub(crate) struct LoggedBatches(Arc<Vec<RecordBatch>>);

impl LoggedBatches {
    /// Returns a file that stands for the rows, which have the columns of segments.
    pub(crate) fn file(batches: Vec<RecordBatch>) -> PartitionedFile {
        let file = PartitionedFile::new_from_meta(ObjectMeta {
            location: Path::from("log"),
            last_modified: DateTime::<Utc>::UNIX_EPOCH,
            size: 0,
            e_tag: None,
            version: None,
        });
        file.with_extension(Self(Arc::new(batches)))
    }

    /// Returns the columns of the rows.
    #[cfg(test)]
    pub(crate) fn schema(&self) -> SchemaRef {
        self.0[0].schema()
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.0.iter().map(|batch| batch.num_rows() as u64).sum()
    }

    /// Returns the rows.
    pub(super) fn batches(&self) -> &[RecordBatch] {
        &self.0
    }
}
