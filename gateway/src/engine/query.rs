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
use tokio::time::{Sleep, sleep};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, ErrorCode, Result};
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
    pub(super) timeout: Duration,
}

impl Query {
    /// Waits for a place and runs the query. The stream's batches have exactly `self.schema`.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait, `DEADLINE_EXCEEDED` if it waits too long.
    pub async fn start(self) -> Result<CpuStream> {
        let place = tokio::time::timeout(self.timeout, self.admission.enter())
            .await
            .map_err(|_| timed_out(self.timeout))??;
        let rows = {
            // Operators spawn their tasks where they are started.
            let _cpu = self.runtimes.cpu().enter();
            execute_stream(self.plan, self.task)?
        };
        let stream = QueryStream {
            rows,
            schema: self.schema,
            deadline: Box::pin(sleep(self.timeout)),
            timeout: self.timeout,
            _place: place,
        };
        Ok(self
            .runtimes
            .stream_on_cpu(Box::pin(stream), READER_TIMEOUT))
    }
}

fn timed_out(timeout: Duration) -> Error {
    Error::new(
        ErrorCode::DeadlineExceeded,
        format!("the statement ran longer than {timeout:?} (gateway.query.timeout) and was ended"),
    )
}

/// Rows within the statement's time, with exactly the schema that was announced.
struct QueryStream {
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    deadline: Pin<Box<Sleep>>,
    timeout: Duration,
    _place: Place,
}

impl Stream for QueryStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(timed_out(self.timeout).into())));
        }
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
