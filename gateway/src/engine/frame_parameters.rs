//! DataFusion plans the offsets of window frames as constants, as in `ROWS BETWEEN 2 PRECEDING AND
//! CURRENT ROW`. So parameters among them get their values before the statement is planned.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use arrow::record_batch::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, NamedWindowExpr, Query, SetExpr, Value, VisitMut, VisitorMut, WindowFrameBound,
    WindowSpec, WindowType,
};
use volary_flight_proto::{Error, Result, SqlState};

/// The parameters of a statement that are offsets of window frames. Their values are in the
/// statement already.
#[derive(Debug, Default)]
pub(super) struct FrameParameters(BTreeSet<String>);

impl FrameParameters {
    /// Replaces the parameters in window frames by their values. Without values, the statement is
    /// only described: any offset will do.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a value that is no number of rows.
    pub(super) fn replace(
        statement: &mut DfStatement,
        values: Option<&RecordBatch>,
    ) -> Result<Self> {
        let mut replacer = Replacer {
            values,
            replaced: BTreeSet::new(),
        };
        let visited = match statement {
            DfStatement::Statement(ast) => ast.visit(&mut replacer),
            DfStatement::Explain(explain) => return Self::replace(&mut explain.statement, values),
            _ => ControlFlow::Continue(()),
        };
        match visited {
            ControlFlow::Continue(()) => Ok(Self(replacer.replaced)),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Returns the names of the parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }

    /// Returns whether there are none. Otherwise the plan of the statement holds only for the
    /// values with which it was planned.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct Replacer<'a> {
    values: Option<&'a RecordBatch>,
    replaced: BTreeSet<String>,
}

impl VisitorMut for Replacer<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if let SetExpr::Select(select) = query.body.as_mut() {
            for window in &mut select.named_window {
                if let NamedWindowExpr::WindowSpec(window) = &mut window.1 {
                    self.replace_in(window)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Function(function) = expression
            && let Some(WindowType::WindowSpec(window)) = &mut function.over
        {
            self.replace_in(window)?;
        }
        ControlFlow::Continue(())
    }
}

impl Replacer<'_> {
    fn replace_in(&mut self, window: &mut WindowSpec) -> ControlFlow<Error> {
        let Some(frame) = &mut window.window_frame else {
            return ControlFlow::Continue(());
        };
        for bound in [Some(&mut frame.start_bound), frame.end_bound.as_mut()] {
            if let Some(
                WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows)),
            ) = bound
                && let Expr::Value(offset) = rows.as_mut()
                && let Value::Placeholder(name) = &offset.value
            {
                let rows = match self.rows(name) {
                    Ok(rows) => rows,
                    Err(error) => return ControlFlow::Break(error),
                };
                self.replaced.insert(name.clone());
                offset.value = Value::Number(rows.to_string(), false);
            }
        }
        ControlFlow::Continue(())
    }

    fn rows(&self, name: &str) -> Result<u64> {
        let Some(values) = self.values else {
            return Ok(0);
        };
        let number = name
            .strip_prefix('$')
            .and_then(|number| number.parse().ok());
        let column = number
            .and_then(|number: usize| number.checked_sub(1))
            .filter(|_| values.num_rows() == 1)
            .and_then(|index| values.columns().get(index));
        // The number of values is checked when the other parameters are bound.
        let Some(column) = column else {
            return Ok(0);
        };
        let given = ScalarValue::try_from_array(column, 0)?;
        let given_type = given.data_type();
        let rows = given.cast_to(&DataType::Int64).ok().filter(|rows| {
            // A cast cuts off the fraction of a number.
            let is_same = |back: ScalarValue| back == given;
            given_type.is_string() || rows.cast_to(&given_type).is_ok_and(is_same)
        });
        match rows {
            Some(ScalarValue::Int64(Some(rows))) if rows >= 0 => Ok(rows.unsigned_abs()),
            _ => Err(Error::invalid(format!(
                "parameter {name} is {given}, but the frame of a window needs a number of rows that is not negative"
            ))
            .with_sqlstate(SqlState::InvalidParameterValue)),
        }
    }
}
