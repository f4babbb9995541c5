//! EXPLAIN ANALYZE is a plan like that of any other query: it runs the statement when its rows are
//! requested. So it waits for its turn like any query, ends at the deadline, and does not run if a
//! client only asks for its FlightInfo.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as DfResult;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Analyze;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{TryStreamExt, stream};
use tokio::sync::OnceCell;
use volary_exec::run::make_runnable;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_node::Runtimes;

use crate::explain::{explain_batch, render_with_metrics, schema};
use crate::gather::GatherExec;

/// Returns the plan of an EXPLAIN ANALYZE. Its columns are those of [`schema`].
///
/// # Errors
/// The errors of planning the statement.
pub async fn analyze(
    state: &SessionState,
    query_id: QueryId,
    runtimes: Runtimes,
    analyze: &Analyze,
) -> Result<Arc<dyn ExecutionPlan>> {
    let started = Instant::now();
    let plan = state.create_physical_plan(&analyze.input).await?;
    let analysis = Analysis {
        plan,
        query_id,
        runtimes,
        planning_time: started.elapsed(),
        verbose: analyze.verbose,
        schema: schema(),
        result: Arc::default(),
    };
    Ok(analysis.into_plan()?)
}

/// A statement that runs at most once, however often its analysis is read. If it ran twice, the
/// measurements in its plan would add up.
#[derive(Debug, Clone)]
struct Analysis {
    plan: Arc<dyn ExecutionPlan>,
    query_id: QueryId,
    runtimes: Runtimes,
    planning_time: Duration,
    verbose: bool,
    schema: SchemaRef,
    result: Arc<OnceCell<RecordBatch>>,
}

impl Analysis {
    fn into_plan(self) -> DfResult<Arc<dyn ExecutionPlan>> {
        let is_infinite = false;
        Ok(Arc::new(StreamingTableExec::try_new(
            Arc::clone(&self.schema),
            vec![Arc::new(self)],
            None,
            [],
            is_infinite,
            None,
        )?))
    }

    /// Runs the statement. Counts its rows and discards them.
    async fn run(&self, task: Arc<TaskContext>) -> DfResult<RecordBatch> {
        let started = Instant::now();
        let (plan, end) = make_runnable(Arc::clone(&self.plan), &task, &self.runtimes)?;
        let rows = execute_stream(Arc::clone(&plan), task)?;
        // The plan runs in a task of its own, so that dropping this future stops the plan.
        let mut stream = self.runtimes.stream_on_cpu(rows, Duration::MAX, end);
        let mut rows = 0;
        while let Some(batch) = stream.try_next().await? {
            rows += batch.num_rows();
        }
        let text = format!(
            "{}query: {} rows={rows} planning={:.2}ms running={:.2}ms\n",
            render_with_metrics(&plan),
            self.query_id,
            self.planning_time.as_secs_f64() * 1000.0,
            started.elapsed().as_secs_f64() * 1000.0,
        );
        let mut shown = vec![("Plan with Metrics".to_owned(), text)];
        if self.verbose {
            add_worker_plans(&plan, &mut shown);
        }
        explain_batch(&shown)
    }
}

impl PartitionStream for Analysis {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let analysis = self.clone();
        let shown = async move {
            let run = || analysis.run(task);
            analysis.result.get_or_try_init(run).await.cloned()
        };
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream::once(shown),
        ))
    }
}

/// Adds the plan of the slowest worker of each gather, with the measurements of that worker.
fn add_worker_plans(plan: &Arc<dyn ExecutionPlan>, shown: &mut Vec<(String, String)>) {
    if let Some(gather) = plan.downcast_ref::<GatherExec>()
        && let Some(slowest) = gather.reports().slowest()
        && let Some(end) = slowest.end
    {
        let title = match gather.relays() {
            None => format!("fragment of worker {} (the slowest)", slowest.worker),
            Some(_) => format!(
                "relay {} (the slowest), and the slowest of its members",
                slowest.worker
            ),
        };
        shown.push((title, end.plan_metrics));
    }
    for child in plan.children() {
        add_worker_plans(child, shown);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_plan::collect;
    use volary_node::runtimes::OwnedRuntimes;

    use super::*;

    /// A source of rows that counts how often it is read.
    #[derive(Debug)]
    struct Counted {
        schema: SchemaRef,
        runs: Arc<AtomicUsize>,
    }

    impl PartitionStream for Counted {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            self.runs.fetch_add(1, Ordering::Relaxed);
            let none = RecordBatch::new_empty(Arc::clone(&self.schema));
            Box::pin(RecordBatchStreamAdapter::new(
                Arc::clone(&self.schema),
                stream::iter([Ok(none)]),
            ))
        }
    }

    #[test]
    fn a_statement_runs_when_its_analysis_is_read_and_only_once() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        runtimes
            .handles()
            .io()
            .clone()
            .block_on(is_run_once(&runtimes));
    }

    async fn is_run_once(runtimes: &OwnedRuntimes) {
        let (schema, runs) = (Arc::new(Schema::empty()), Arc::new(AtomicUsize::new(0)));
        let rows = Counted {
            schema: Arc::clone(&schema),
            runs: Arc::clone(&runs),
        };
        let rows = StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, [], false, None);
        let analysis = Analysis {
            plan: Arc::new(rows.unwrap()),
            query_id: QueryId::new(),
            runtimes: runtimes.handles().clone(),
            planning_time: Duration::ZERO,
            verbose: false,
            schema: super::schema(),
            result: Arc::default(),
        };
        let plan = analysis.into_plan().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        let read = || collect(Arc::clone(&plan), Arc::default());
        let (first, second) = (read().await.unwrap(), read().await.unwrap());
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert_eq!(first, second);
        let text = first[0].column(1).as_string::<i32>().value(0);
        assert!(text.contains("rows=0 planning="), "{text}");
    }
}
