use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use volary_flight_proto::Error;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;
use volary_gather::Peers;

use super::run_span::RunSpan;
use crate::gather::config::Gather;
use volary_catalog::Table;

/// The query that is run. It is an extension of DataFusion's session configuration, so that plans
/// hold no connections.
#[derive(Debug, Clone)]
pub struct QueryContext {
    /// The id of the query.
    pub query_id: QueryId,
    /// The owner of the query, as the number that is sent to workers.
    pub owner: u32,
    /// The snapshot of the query.
    pub snapshot: Snapshot,
    /// The writes whose rows the catalog had counted when the query was planned. `None` if they are
    /// the writes that the query sees. They differ if the query has a ticket with an older
    /// snapshot.
    pub counted_writes: Option<Snapshot>,
    /// The time at which the statement began, in microseconds since 1970. Rows that had expired by
    /// then are left out.
    pub as_of_us: i64,
    /// The lineage of the catalog: the history of writes that it belongs to.
    pub lineage: Lineage,
    /// The current state of the tables that a reused plan reads. Empty if the plan itself has the
    /// current state.
    pub tables: Vec<Arc<Table>>,
    /// The workers of the cluster.
    pub peers: Arc<dyn Peers>,
    /// The settings of the gather: deadlines and sizes.
    pub config: Gather,
    /// Maximum memory that the query may hold on this gateway, in bytes.
    pub memory: usize,
    /// Says whether workers report their plans with metrics.
    pub with_plan_metrics: bool,
    /// The span in which the query is planned or runs.
    pub span: RunSpan,
}

impl QueryContext {
    /// Returns the query that a task belongs to.
    ///
    /// # Errors
    /// `INTERNAL` if the task does not belong to a query.
    pub fn from_task(task: &TaskContext) -> Result<Arc<Self>> {
        task.session_config()
            .get_extension::<Self>()
            .ok_or_else(|| DataFusionError::from(Error::internal("a gather without a query")))
    }
}
