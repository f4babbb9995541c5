//! Where statements wait until they may run.

use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::runtime_env::RuntimeEnv;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_node::admission::{Admission, Place};

use super::session::Caller;
use crate::statements::Noted;

/// Lets so many statements run at a time, and notes which wait and which run.
#[derive(Debug, Clone)]
pub(super) struct Gate(Arc<Admission>);

impl Gate {
    pub(super) fn new(admission: Admission) -> Self {
        Self(Arc::new(admission))
    }

    /// Waits for a place for a statement, which runs with the memory of `env`.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait.
    pub(super) async fn enter(
        &self,
        caller: Caller,
        query_id: QueryId,
        noted: &Noted,
        env: &Arc<RuntimeEnv>,
    ) -> Result<Place> {
        let asked = Instant::now();
        noted.waits();
        let place = self.0.enter_as(&caller).await?;
        noted.runs(env);
        tracing::debug!(%query_id, waited = ?asked.elapsed(), "the statement has its place");
        Ok(place)
    }
}
