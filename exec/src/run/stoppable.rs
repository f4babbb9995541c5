//! A task can be ended only between two of its polls. A join whose filter passes almost no rows
//! works through all pairs of rows within one poll. It keeps its thread even if its reader is gone
//! or its deadline has passed. The filters made here check whether the query has ended, and fail if
//! it has. Expressions whose functions make large values or compute for long are evaluated for few
//! rows at a time, with the same check before each evaluation.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;
use tokio_util::sync::CancellationToken;
use volary_flight_proto::{Error, ErrorCode};

use crate::value_limit::calls_bounded_function;
use crate::value_limit::row_retry::{self, Refusal};
use volary_node::runtimes::turns::yield_to_new_work;

/// Returns a copy of the filter that fails once `ended` is cancelled.
///
/// # Errors
/// Fails if the filter's expression cannot be traversed.
pub(super) fn make_filter_stoppable(
    filter: &JoinFilter,
    ended: &CancellationToken,
) -> Result<JoinFilter> {
    let expression = make_stoppable(filter.expression(), ended)?;
    let columns = filter.column_indices().to_vec();
    Ok(JoinFilter::new(
        expression,
        columns,
        Arc::clone(filter.schema()),
    ))
}

/// Returns a wrapper of the expression that fails once `ended` is cancelled.
///
/// # Errors
/// Fails if the expression cannot be traversed.
pub(super) fn make_stoppable(
    expression: &Arc<dyn PhysicalExpr>,
    ended: &CancellationToken,
) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(Arc::new(StoppableExpr {
        expression: Arc::clone(expression),
        ended: ended.clone(),
        can_take_fewer_rows: calls_bounded_function(expression)?,
    }))
}

/// Fails if the query has ended. Gives way to new work if this thread has computed for long.
///
/// # Errors
/// `CANCELLED` if the query has ended.
pub(super) fn check_not_ended(ended: &CancellationToken) -> Result<()> {
    yield_to_new_work(|| ended.is_cancelled());
    if ended.is_cancelled() {
        let error = Error::new(ErrorCode::Cancelled, "the query has ended");
        return Err(DataFusionError::from(error));
    }
    Ok(())
}

/// An expression that fails when its query has ended.
#[derive(Debug, Clone)]
struct StoppableExpr {
    expression: Arc<dyn PhysicalExpr>,
    ended: CancellationToken,
    /// Says whether a function of the expression may ask for fewer rows at once.
    can_take_fewer_rows: bool,
}

impl StoppableExpr {
    /// Evaluates the expression piece by piece, for as many rows at once as its functions accept.
    fn evaluate_in_pieces(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let (rows, mut at_once, mut begin) = (batch.num_rows(), batch.num_rows(), 0);
        let mut pieces = Vec::new();
        loop {
            check_not_ended(&self.ended)?;
            let piece = batch.slice(begin, at_once.min(rows - begin));
            match row_retry::evaluate(|| self.expression.evaluate(&piece)) {
                Ok(value) if piece.num_rows() == rows => return Ok(value),
                Ok(value) => {
                    pieces.push(value.into_array(piece.num_rows())?);
                    begin += piece.num_rows();
                }
                Err(Refusal::TooManyRows(fewer)) => at_once = fewer,
                Err(Refusal::Failed(error)) => return Err(error),
            }
            if begin == rows {
                let pieces: Vec<_> = pieces.iter().map(AsRef::as_ref).collect();
                return Ok(ColumnarValue::Array(concat(&pieces)?));
            }
        }
    }
}

impl PhysicalExpr for StoppableExpr {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expression.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.can_take_fewer_rows {
            return self.evaluate_in_pieces(batch);
        }
        check_not_ended(&self.ended)?;
        self.expression.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expression]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(expression), true) => make_stoppable(&expression, &self.ended),
            _ => internal_err!("an expression that can be stopped has one child"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt_sql(f)
    }
}

impl fmt::Display for StoppableExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

// Equality is that of the wrapped expression, because both compute the same.
impl PartialEq for StoppableExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expression.as_ref() == other.expression.as_ref()
    }
}

impl Eq for StoppableExpr {}

impl Hash for StoppableExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}
