use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use volary_catalog::{Constraint, ConstraintKind, RelationName, Table};
use volary_flight_proto::{Error, Result, SqlState};

use super::expressions;

/// Maximum number of characters of a value in an error.
const MAX_SHOWN_CHARS: usize = 60;

/// Refuses rows that violate a check of their table.
#[derive(Debug)]
pub(crate) struct Checks {
    table: Arc<Table>,
    checks: Vec<Check>,
}

#[derive(Debug)]
struct Check {
    name: String,
    condition: String,
    /// Positions of the columns that the condition names.
    columns: Vec<usize>,
    expression: Arc<dyn PhysicalExpr>,
}

impl Checks {
    /// Plans the checks of a table. `base_state` is the session with the functions that they call.
    ///
    /// # Errors
    /// The errors of planning.
    pub(crate) fn new(base_state: &SessionState, table: &Arc<Table>) -> Result<Self> {
        let constraints = table.declarations().constraints.iter();
        let declared: Vec<_> = constraints
            .filter_map(|constraint| match &constraint.kind {
                ConstraintKind::Check {
                    condition,
                    enforced: true,
                } => Some((constraint, condition)),
                _ => None,
            })
            .collect();
        let checks = if declared.is_empty() {
            // Each write passes here, and most tables have no checks.
            Vec::new()
        } else {
            plan(base_state, table, declared)?
        };
        Ok(Self {
            table: Arc::clone(table),
            checks,
        })
    }

    /// Returns the table.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Refuses the rows if a condition is false for one of them. The rows have the columns of the
    /// table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the check and the values of its columns. The errors of computing the
    /// condition.
    pub(super) fn check(&self, rows: &RecordBatch) -> Result<()> {
        for check in &self.checks {
            let holds = check
                .expression
                .evaluate(rows)?
                .into_array(rows.num_rows())?;
            let holds = holds.as_boolean();
            let is_false = |row: &usize| holds.is_valid(*row) && !holds.value(*row);
            if let Some(row) = (0..rows.num_rows()).find(is_false) {
                return Err(check.violated(self.table.name(), rows, row));
            }
        }
        Ok(())
    }
}

fn plan(
    base_state: &SessionState,
    table: &Table,
    declared: Vec<(&Constraint, &String)>,
) -> Result<Vec<Check>> {
    let mut state = base_state.clone();
    // Without this call, now() cannot be planned.
    state.mark_start_execution();
    let schema = table.schema();
    let conditions = declared.iter().map(|(_, condition)| {
        let parsed = expressions::parse(&state, schema, condition)?;
        expressions::cast(parsed, schema, &DataType::Boolean)
    });
    let planned = expressions::plan(&state, schema, conditions.collect::<Result<_>>()?)?;
    let checks = declared.into_iter().zip(planned);
    let checks = checks.map(|((constraint, condition), expression)| Check {
        name: constraint.name.clone(),
        condition: condition.clone(),
        columns: constraint.columns.clone(),
        expression,
    });
    Ok(checks.collect())
}

impl Check {
    fn violated(&self, table: &RelationName, rows: &RecordBatch, row: usize) -> Error {
        let mut shown = String::new();
        for column in &self.columns {
            let name = rows.schema_ref().field(*column).name();
            let value = shown_value(rows.column(*column).as_ref(), row);
            let separator = if shown.is_empty() { "" } else { ", " };
            // Writing to a string never fails.
            let _never_fails = write!(shown, "{separator}{name} = {value}");
        }
        Error::invalid(format!(
            "table {table}: a row violates the check \"{}\", which demands {}; the row has {shown}; correct the row",
            self.name, self.condition
        ))
        .with_sqlstate(SqlState::CheckViolation)
    }
}

fn shown_value(column: &dyn Array, row: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    let value = ArrayFormatter::try_new(column, &options)
        .and_then(|formatter| formatter.value(row).try_to_string())
        .unwrap_or_else(|_| "a value that cannot be shown".to_owned());
    match value.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    }
}
