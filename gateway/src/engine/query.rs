//! A planned query, and the stream of its rows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{Stream, StreamExt};
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_node::Runtimes;
use volary_node::admission::{Admission, Place};
use volary_node::runtimes::CpuStream;

/// How long a client may read nothing before its query is ended.
const READER_TIMEOUT: Duration = Duration::from_secs(600);

/// A query that is planned. Dropping it, or the stream, ends it on all nodes.
#[derive(Debug)]
pub struct Query {
    /// Its id.
    pub id: QueryId,
    /// Its columns.
    pub schema: SchemaRef,
    /// What it sees.
    pub snapshot: Snapshot,
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) task: Arc<TaskContext>,
    pub(super) runtimes: Runtimes,
    pub(super) admission: Arc<Admission>,
}

impl Query {
    /// Waits for a place and runs the query. The stream's batches have exactly `self.schema`. Deadlines are the caller's, who has
    /// those of the call that the query belongs to.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub async fn start(self) -> Result<CpuStream> {
        let place = self.admission.enter().await?;
        let rows = {
            // Operators spawn their tasks where they are started.
            let _cpu = self.runtimes.cpu().enter();
            execute_stream(self.plan, self.task)?
        };
        let stream = QueryStream {
            rows,
            schema: self.schema,
            _place: place,
        };
        Ok(self
            .runtimes
            .stream_on_cpu(Box::pin(stream), READER_TIMEOUT))
    }
}

/// Rows with exactly the schema that was announced, and the place of their statement among those that run.
struct QueryStream {
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    _place: Place,
}

impl Stream for QueryStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let schema = Arc::clone(&self.schema);
        self.rows.poll_next_unpin(cx).map(|next| {
            // What was planned and what operators declare may differ in nullability and metadata.
            next.map(|batch| {
                let batch = batch?;
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                Ok(RecordBatch::try_new_with_options(
                    schema, columns, &options,
                )?)
            })
        })
    }
}

impl RecordBatchStream for QueryStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
