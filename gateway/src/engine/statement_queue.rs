//! A few places are kept for those who look after the gateway: for administrators, and for
//! everybody who lists running statements in order to end one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::execution::runtime_env::RuntimeEnv;
use tracing::Instrument;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_node::admission::{Admission, RunPlace};

use super::session::{Claimant, PlaceOwner};
use crate::config;
use crate::statements::ProgressHandle;

/// Maximum number of statements that wait for the kept places.
const MAX_WAITING_FOR_KEPT_PLACES: usize = 64;

/// The time for which a client may read nothing before its query is ended.
pub(super) const READER_TIMEOUT: Duration = Duration::from_secs(600);

/// Limits how many statements run at a time, and notes which wait and which run.
#[derive(Debug, Clone)]
pub(crate) struct StatementQueue {
    places: Arc<Admission>,
    kept_places: Arc<Admission>,
    reader_timeout_when_full: Duration,
}

impl StatementQueue {
    pub(crate) fn new(config: &config::Query) -> Self {
        let places = Admission::new("statements", config.max_running, config.max_waiting)
            .with_max_waiting_per_session(config.max_waiting_per_session())
            .with_max_running_per_user(config.max_running_per_user());
        let kept_count = config.kept_places.max(1);
        // A single user may take only half of the kept places, rounded up.
        let kept_places = Admission::new("statements", kept_count, MAX_WAITING_FOR_KEPT_PLACES)
            .with_max_running_per_user(kept_count.div_ceil(2));
        Self {
            places: Arc::new(places),
            kept_places: Arc::new(kept_places),
            reader_timeout_when_full: config.unread_timeout,
        }
    }

    /// Waits for a place for a statement, which runs with the memory of `env`. `is_listing` says
    /// whether the statement only lists rows of one system table.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub(super) async fn wait_for_place(
        &self,
        claimant: &Claimant,
        is_listing: bool,
        query_id: QueryId,
        progress: &ProgressHandle,
        env: &Arc<RuntimeEnv>,
    ) -> Result<RunPlace> {
        let asked = Instant::now();
        progress.set_queued();
        let admitted = self.admit(claimant, is_listing);
        let place = admitted.instrument(tracing::debug_span!("queue")).await?;
        progress.set_running(env);
        tracing::debug!(%query_id, waited = ?asked.elapsed(), "the statement has its place");
        Ok(place)
    }

    /// Waits for a place for a part of a statement, which gives the place back between its parts.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub(super) async fn wait_for_turn(&self, claimant: &Claimant) -> Result<RunPlace> {
        self.admit(claimant, false).await
    }

    /// Returns whether statements wait for a place, or would have to.
    pub(super) fn is_full(&self) -> bool {
        self.places.is_full()
    }

    /// Returns the places for all statements.
    pub(super) fn places(&self) -> Arc<Admission> {
        Arc::clone(&self.places)
    }

    /// Returns the kept places.
    pub(super) fn kept_places(&self) -> Arc<Admission> {
        Arc::clone(&self.kept_places)
    }

    /// Returns how long a client may currently go without reading rows. The time may be shorter if
    /// all places are taken, because the client's statement holds a place that others may wait for.
    pub(crate) fn reader_timeout(&self) -> Duration {
        if self.places.is_full() {
            self.reader_timeout_when_full.min(READER_TIMEOUT)
        } else {
            READER_TIMEOUT
        }
    }

    async fn admit(&self, claimant: &Claimant, is_listing: bool) -> Result<RunPlace> {
        let owner = claimant.owner();
        let user_limit = claimant.rights.limits().max_queries;
        let max_queries = user_limit.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let is_administrator =
            matches!(owner, PlaceOwner::User(_)) && claimant.rights.is_unrestricted();
        if !is_listing && !is_administrator {
            return self
                .places
                .enter(&owner, &claimant.caller, max_queries)
                .await;
        }
        match self.places.try_enter(&owner, max_queries) {
            Some(place) => Ok(place),
            None => self.kept_places.enter(&owner, &claimant.caller, None).await,
        }
    }
}
