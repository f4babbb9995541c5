//! Joins that can be stopped while they make no rows.
//!
//! A task ends between two of its polls. A join whose filter lets next to nothing pass works through all pairs of rows within one
//! poll: its reader may be long gone, its deadline passed, and it keeps a thread. Here such filters see that the query has
//! ended.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;
use tokio_util::sync::CancellationToken;
use volary_flight_proto::{Error, ErrorCode};

/// The same filter, which fails once `ended` is cancelled.
pub(super) fn stoppable(filter: &JoinFilter, ended: &CancellationToken) -> JoinFilter {
    let watching = Watching {
        filter: Arc::clone(filter.expression()),
        ended: ended.clone(),
    };
    let columns = filter.column_indices().to_vec();
    JoinFilter::new(Arc::new(watching), columns, Arc::clone(filter.schema()))
}

/// A filter that fails when its query has ended.
#[derive(Debug, Clone)]
struct Watching {
    filter: Arc<dyn PhysicalExpr>,
    ended: CancellationToken,
}

impl PhysicalExpr for Watching {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.filter.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.filter.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.ended.is_cancelled() {
            let error = Error::new(ErrorCode::Cancelled, "the query has ended");
            return Err(DataFusionError::from(error));
        }
        self.filter.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.filter]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(filter), true) => Ok(Arc::new(Self {
                filter,
                ended: self.ended.clone(),
            })),
            _ => internal_err!("a watching filter has one filter"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt_sql(f)
    }
}

impl fmt::Display for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt(f)
    }
}

// What it computes is what the filter computes.
impl PartialEq for Watching {
    fn eq(&self, other: &Self) -> bool {
        self.filter.as_ref() == other.filter.as_ref()
    }
}

impl Eq for Watching {}

impl Hash for Watching {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.filter.hash(state);
    }
}
