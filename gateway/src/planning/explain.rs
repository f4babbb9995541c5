//! EXPLAIN's text, fragments included.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::display::PlanType;
use datafusion::common::format::ExplainFormat;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::logical_expr::{Analyze, Explain};
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan, execute_stream};
use futures::TryStreamExt;
use volary_flight_proto::{Error, Result};

use crate::engine::context::StatementContext;
use crate::gather::GatherExec;

/// The columns of EXPLAIN: `plan_type` and `plan`, text.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("plan_type", DataType::Utf8, false),
        Field::new("plan", DataType::Utf8, false),
    ]))
}

/// The plans of a statement, as rows.
///
/// # Errors
/// Those of planning.
pub async fn explain(
    context: &StatementContext,
    explain: &Explain,
) -> Result<Arc<dyn ExecutionPlan>> {
    if explain.explain_format != ExplainFormat::Indent {
        return Err(Error::invalid(
            "EXPLAIN has one format here; leave FORMAT out",
        ));
    }
    let mut rows = Vec::new();
    if explain.verbose {
        rows.push((
            PlanType::InitialLogicalPlan.to_string(),
            explain.plan.display_indent().to_string(),
        ));
    }
    let logical = context.state.optimize(&explain.plan)?;
    rows.push((
        PlanType::FinalLogicalPlan.to_string(),
        logical.display_indent().to_string(),
    ));
    let physical = context.state.create_physical_plan(&explain.plan).await?;
    rows.push((
        PlanType::FinalPhysicalPlan.to_string(),
        render(&physical, false),
    ));
    to_rows(&rows)
}

/// Runs the statement and shows its plan with what was measured. Its rows are counted and thrown away.
///
/// # Errors
/// Those of the statement.
pub async fn analyze(
    context: &StatementContext,
    analyze: &Analyze,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planning = Instant::now();
    let physical = context.state.create_physical_plan(&analyze.input).await?;
    let planning = planning.elapsed();
    let running = Instant::now();
    let mut stream = execute_stream(Arc::clone(&physical), context.state.task_ctx())?;
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await? {
        rows += batch.num_rows();
    }
    let text = format!(
        "{}query: {} rows={rows} planning={:.2}ms running={:.2}ms\n",
        render(&physical, true),
        context.query_id,
        planning.as_secs_f64() * 1000.0,
        running.elapsed().as_secs_f64() * 1000.0,
    );
    let mut shown = vec![("Plan with Metrics".to_owned(), text)];
    if analyze.verbose {
        add_worker_plans(&physical, &mut shown);
    }
    to_rows(&shown)
}

fn to_rows(rows: &[(String, String)]) -> Result<Arc<dyn ExecutionPlan>> {
    let column = |texts: Vec<&str>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let columns = vec![
        column(rows.iter().map(|(kind, _)| kind.as_str()).collect()),
        column(rows.iter().map(|(_, text)| text.as_str()).collect()),
    ];
    let batch = RecordBatch::try_new(schema(), columns)
        .map_err(datafusion::error::DataFusionError::from)?;
    Ok(MemorySourceConfig::try_new_exec(
        &[vec![batch]],
        schema(),
        None,
    )?)
}

/// The plan, one operator a line, with fragments below their gathers.
pub fn render(plan: &Arc<dyn ExecutionPlan>, with_metrics: bool) -> String {
    let mut text = String::new();
    let mut fragments = 0;
    write_node(plan, 0, with_metrics, &mut fragments, &mut text);
    text
}

fn write_node(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    with_metrics: bool,
    fragments: &mut usize,
    text: &mut String,
) {
    let indent = "  ".repeat(depth);
    let line = one_line(plan, with_metrics);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{indent}{line}");
    if let Some(gather) = plan.downcast_ref::<GatherExec>() {
        if with_metrics {
            for line in gather.reports().to_string().lines() {
                let _ = writeln!(text, "{indent}  | {line}");
            }
        }
        *fragments += 1;
        let _ = writeln!(text, "{indent}  fragment {}:", *fragments);
        write_node(gather.fragment(), depth + 2, false, fragments, text);
        return;
    }
    for child in plan.children() {
        write_node(child, depth + 1, with_metrics, fragments, text);
    }
}

fn one_line(plan: &Arc<dyn ExecutionPlan>, with_metrics: bool) -> String {
    struct OneLine<'a>(&'a dyn ExecutionPlan);
    impl std::fmt::Display for OneLine<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt_as(DisplayFormatType::Default, f)
        }
    }
    let line = OneLine(plan.as_ref()).to_string();
    match plan.metrics().filter(|_| with_metrics) {
        Some(metrics) => {
            let metrics = metrics
                .aggregate_by_name()
                .sorted_for_display()
                .timestamps_removed();
            format!("{line}, metrics=[{metrics}]")
        }
        None => line,
    }
}

/// The plan of each gather's slowest worker, as it ran there.
fn add_worker_plans(plan: &Arc<dyn ExecutionPlan>, shown: &mut Vec<(String, String)>) {
    if let Some(gather) = plan.downcast_ref::<GatherExec>()
        && let Some(slowest) = gather.reports().slowest()
    {
        let title = format!("fragment of worker {} (the slowest)", slowest.worker);
        shown.push((title, slowest.end.plan_metrics));
    }
    for child in plan.children() {
        add_worker_plans(child, shown);
    }
}
