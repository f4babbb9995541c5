use std::fmt::{self, Write as _};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::display::PlanType;
use datafusion::common::format::ExplainFormat;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DfResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Explain, LogicalPlan};
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use volary_exec::run::is_hidden;
use volary_flight_proto::{Error, Result};

use crate::gather::GatherExec;

/// Separates the name of a result's column from a number that makes it unique. EXPLAIN shows it as
/// a colon.
pub const COLUMN_MARK: char = '\u{1f}';

/// Returns the columns of EXPLAIN: `plan_type` and `plan`, both text.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("plan_type", DataType::Utf8, false),
        Field::new("plan", DataType::Utf8, false),
    ]))
}

/// The plans of a statement that EXPLAIN explains.
pub struct ExplainedPlans<'a> {
    explain: &'a Explain,
    optimized: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
}

impl<'a> ExplainedPlans<'a> {
    /// Plans the explained statement.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if EXPLAIN has a FORMAT. The errors of planning.
    pub async fn make(state: &SessionState, explain: &'a Explain) -> Result<Self> {
        if explain.explain_format != ExplainFormat::Indent {
            return Err(Error::invalid(
                "EXPLAIN has only one format; leave FORMAT out",
            ));
        }
        let optimized = state.optimize(&explain.plan)?;
        let planner = state.query_planner();
        let physical = planner.create_physical_plan(&optimized, state).await?;
        Ok(Self {
            explain,
            optimized,
            physical,
        })
    }

    /// Returns the physical plan of the explained statement.
    pub fn physical(&self) -> &Arc<dyn ExecutionPlan> {
        &self.physical
    }

    /// Returns a plan whose rows show these plans. Its columns are those of [`schema`].
    /// `generic_plan` says whether the statement uses a generic plan; if it is `None`, there is no
    /// row about it.
    ///
    /// # Errors
    /// `INTERNAL` if the rows cannot be put together.
    pub fn show(&self, generic_plan: Option<&str>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut rows = Vec::new();
        if self.explain.verbose {
            rows.push((
                PlanType::InitialLogicalPlan.to_string(),
                self.explain.plan.display_indent().to_string(),
            ));
        }
        rows.push((
            PlanType::FinalLogicalPlan.to_string(),
            self.optimized.display_indent().to_string(),
        ));
        rows.extend(generic_plan.map(|text| ("generic_plan".to_owned(), text.to_owned())));
        // Whoever reads only one row reads the last one.
        rows.push((
            PlanType::FinalPhysicalPlan.to_string(),
            render(&self.physical),
        ));
        Ok(MemorySourceConfig::try_new_exec(
            &[vec![explain_batch(&rows)?]],
            schema(),
            None,
        )?)
    }
}

/// Returns the rows of EXPLAIN for pairs of plan type and text.
pub(crate) fn explain_batch(rows: &[(String, String)]) -> DfResult<RecordBatch> {
    let kinds = rows.iter().map(|(kind, _)| Some(kind));
    let texts = rows
        .iter()
        .map(|(_, text)| Some(text.replace(COLUMN_MARK, ":")));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(kinds.collect::<StringArray>()),
        Arc::new(texts.collect::<StringArray>()),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// Renders the plan with one operator per line, and with fragments below their gathers.
fn render(plan: &Arc<dyn ExecutionPlan>) -> String {
    PlanRenderer::default().finish(plan)
}

/// Renders the plan like `render`, with the measurements of operators and gathers.
pub(crate) fn render_with_metrics(plan: &Arc<dyn ExecutionPlan>) -> String {
    let rendering = PlanRenderer {
        with_metrics: true,
        ..PlanRenderer::default()
    };
    rendering.finish(plan)
}

#[derive(Default)]
struct PlanRenderer {
    with_metrics: bool,
    fragments: usize,
    text: String,
}

impl PlanRenderer {
    fn finish(mut self, plan: &Arc<dyn ExecutionPlan>) -> String {
        self.add(plan, 0);
        self.text
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>, depth: usize) {
        if is_hidden(plan.as_ref()) {
            for child in plan.children() {
                self.add(child, depth);
            }
            return;
        }
        self.add_line(depth, operator_line(plan, self.with_metrics));
        let Some(gather) = plan.downcast_ref::<GatherExec>() else {
            for child in plan.children() {
                self.add(child, depth + 1);
            }
            return;
        };
        if self.with_metrics {
            for line in gather.reports().to_string().lines() {
                self.add_line(depth + 1, format_args!("| {line}"));
            }
        }
        if let Some(relays) = gather.relays() {
            self.add_line(depth + 1, "relay:");
            self.add_without_metrics(&relays.plan, depth + 2);
        }
        self.fragments += 1;
        let title = format!("fragment {}:", self.fragments);
        self.add_line(depth + 1, title);
        self.add_without_metrics(gather.fragment(), depth + 2);
    }

    /// Adds a plan that ran on workers, without metrics: its operators on the gateway have measured
    /// nothing.
    fn add_without_metrics(&mut self, plan: &Arc<dyn ExecutionPlan>, depth: usize) {
        let with_metrics = std::mem::replace(&mut self.with_metrics, false);
        self.add(plan, depth);
        self.with_metrics = with_metrics;
    }

    fn add_line(&mut self, depth: usize, line: impl fmt::Display) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "{}{line}", "  ".repeat(depth));
    }
}

fn operator_line(plan: &Arc<dyn ExecutionPlan>, with_metrics: bool) -> String {
    struct OneLine<'a>(&'a dyn ExecutionPlan);
    impl fmt::Display for OneLine<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
