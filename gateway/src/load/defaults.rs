use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::{Field, Schema};
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use volary_catalog::Table;
use volary_flight_proto::Result;

use super::expressions;

/// Computes the values of columns that the rows of a load do not have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    /// The expression of each column of the table. `None` for a column without a default.
    by_column: Arc<[Option<Arc<dyn PhysicalExpr>>]>,
}

impl Defaults {
    /// Plans the defaults of a table as expressions of a statement of this session.
    ///
    /// # Errors
    /// The errors of planning.
    pub(crate) fn new(state: &SessionState, table: &Table) -> Result<Self> {
        let declared = &table.declarations().defaults;
        if declared.is_empty() {
            return Ok(Self::default());
        }
        let fields = table.schema().fields();
        let parsed = declared.iter().map(|(column, text)| {
            let wanted = fields[*column].data_type();
            let parsed = expressions::parse(state, &Schema::empty(), text)?;
            expressions::cast(parsed, &Schema::empty(), wanted)
        });
        let parsed = parsed.collect::<Result<_>>()?;
        let mut by_column = vec![None; fields.len()];
        let planned = expressions::plan(state, &Schema::empty(), parsed)?;
        for (column, expression) in declared.keys().zip(planned) {
            by_column[*column] = Some(expression);
        }
        Ok(Self {
            by_column: by_column.into(),
        })
    }

    /// Returns whether a column of the table has a default.
    pub(super) fn has_default(&self, column: usize) -> bool {
        self.by_column.get(column).is_some_and(Option::is_some)
    }

    /// Returns the values of a column of the table for this number of rows.
    ///
    /// # Errors
    /// The errors of the expression.
    pub(super) fn values(&self, column: usize, field: &Field, rows: usize) -> Result<ArrayRef> {
        let Some(Some(expression)) = self.by_column.get(column) else {
            return Ok(new_null_array(field.data_type(), rows));
        };
        let rows_without_columns = expressions::rows_without_columns(rows)?;
        Ok(expression
            .evaluate(&rows_without_columns)?
            .into_array(rows)?)
    }
}
