use std::sync::Arc;

use datafusion::execution::session_state::SessionState;
use volary_catalog::Catalog;
use volary_node::Runtimes;

use super::leases::ProducerLeases;
use super::progress::LoadRegistry;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::statements::Statements;

/// The parts of the gateway that a load needs.
#[derive(Debug, Clone)]
pub(crate) struct GatewayParts {
    /// Number of the user who writes. Workers share their processors among users.
    pub(crate) owner: u32,
    /// Opens and commits the write.
    pub(crate) catalog: Catalog,
    /// Reaches the workers.
    pub(crate) cluster: Arc<Cluster>,
    /// The runtimes on which rows are split.
    pub(crate) runtimes: Runtimes,
    /// The list of running loads.
    pub(crate) loads: LoadRegistry,
    /// Says which producers write now.
    pub(crate) leases: Arc<ProducerLeases>,
    /// The statements that the loads belong to.
    pub(crate) statements: Arc<Statements>,
    /// The settings: deadlines and allowed roots.
    pub(crate) config: Arc<Config>,
    /// The session with the functions that the checks of tables call.
    pub(crate) base_state: Arc<SessionState>,
}
