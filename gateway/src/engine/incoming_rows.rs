use std::fmt;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use volary_flight_proto::Result;

/// Rows that are still arriving from a client.
pub struct IncomingRows {
    /// The columns of the rows.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
}

impl fmt::Debug for IncomingRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingRows")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
