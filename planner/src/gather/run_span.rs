use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Span;
use volary_flight_proto::trace::TraceParent;
use volary_node::traces;

/// The span in which a query is planned, and later the one in which it runs. The gathers of the
/// query are below it in the query's trace. Clones share the value.
///
/// It only names the span: a span ends when nothing holds it any more, and kept plans live longer
/// than the statement that they were made for.
#[derive(Debug, Clone, Default)]
pub struct RunSpan(Arc<Mutex<Option<TraceParent>>>);

impl RunSpan {
    /// Creates a value that names the current span.
    pub fn current() -> Self {
        let span = Self::default();
        span.set_current();
        span
    }

    /// Names the current span from now on.
    pub fn set_current(&self) {
        *self.0.lock() = traces::parent_of(&Span::current());
    }

    /// Creates the span of a gather from this many workers.
    pub(super) fn gather(&self, query_id: impl std::fmt::Display, workers: usize) -> Span {
        let span = tracing::debug_span!(parent: None, "gather", %query_id, workers);
        traces::continue_from(&span, *self.0.lock());
        span
    }
}
