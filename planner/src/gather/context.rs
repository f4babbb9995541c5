//! What a gather needs to know of the query it belongs to.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use volary_flight_proto::Error;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;
use volary_gather::Peers;

use crate::gather::config::Gather;
use volary_catalog::Table;

/// The query that is run; an extension of DataFusion's session configuration, so that plans hold no connections.
#[derive(Debug, Clone)]
pub struct QueryContext {
    /// Its id.
    pub query_id: QueryId,
    /// Whose it is, as workers are told it.
    pub owner: u32,
    /// What it sees.
    pub snapshot: Snapshot,
    /// The writes whose rows the catalog had counted when the query was planned, where they are others than those that the query
    /// sees: it has a ticket from before.
    pub counted: Option<Snapshot>,
    /// Which history of writes the catalog has.
    pub lineage: Lineage,
    /// The tables that a plan which is used again reads, as of this query. Empty where the plan has them.
    pub tables: Vec<Arc<Table>>,
    /// The workers.
    pub peers: Arc<dyn Peers>,
    /// Deadlines and sizes.
    pub config: Gather,
    /// Bytes of memory that it may hold on this gateway.
    pub memory: usize,
    /// The session's time zone.
    pub time_zone: String,
    /// Whether workers report their plans with metrics.
    pub with_plan_metrics: bool,
}

impl QueryContext {
    /// That of the task.
    ///
    /// # Errors
    /// `INTERNAL` if the task is none of a query.
    pub fn of(task: &TaskContext) -> Result<Arc<Self>> {
        task.session_config()
            .get_extension::<Self>()
            .ok_or_else(|| DataFusionError::from(Error::internal("a gather without a query")))
    }
}
