//! Lets statements wait until they may run.
//!
//! A few places are kept for those who look after the gateway: for administrators, and for
//! everybody who lists running statements in order to end one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::execution::runtime_env::RuntimeEnv;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_node::admission::{Admission, Place};

use super::session::{Claimant, Owner};
use crate::config;
use crate::statements::Noted;

/// Maximum number of statements that wait for the kept places.
const MOST_WAITING_FOR_KEPT: usize = 64;

/// The time for which a client may read nothing before its query is ended.
pub(super) const READER_TIMEOUT: Duration = Duration::from_secs(600);

/// Limits how many statements run at a time, and notes which wait and which run.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    places: Arc<Admission>,
    kept: Arc<Admission>,
    unread_timeout: Duration,
}

impl Gate {
    pub(crate) fn new(config: &config::Query) -> Self {
        let places = Admission::new("statements", config.max_running, config.max_waiting)
            .with_max_waiting_per_session(config.max_waiting_per_session())
            .with_max_running_per_user(config.max_running_per_user());
        let kept = config.kept_places.max(1);
        // No single user may take all of the kept places either.
        let kept = Admission::new("statements", kept, MOST_WAITING_FOR_KEPT)
            .with_max_running_per_user(kept.div_ceil(2));
        Self {
            places: Arc::new(places),
            kept: Arc::new(kept),
            unread_timeout: config.unread_timeout,
        }
    }

    /// Waits for a place for a statement, which runs with the memory of `env`. `is_listing`
    /// says whether the statement only lists what the gateway knows.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub(super) async fn enter(
        &self,
        claimant: &Claimant,
        is_listing: bool,
        query_id: QueryId,
        noted: &Noted,
        env: &Arc<RuntimeEnv>,
    ) -> Result<Place> {
        let asked = Instant::now();
        noted.waits();
        let place = self.place(claimant, is_listing).await?;
        noted.runs(env);
        tracing::debug!(%query_id, waited = ?asked.elapsed(), "the statement has its place");
        Ok(place)
    }

    /// Returns the places for all statements.
    pub(super) fn places(&self) -> Arc<Admission> {
        Arc::clone(&self.places)
    }

    /// Returns the kept places.
    pub(super) fn kept_places(&self) -> Arc<Admission> {
        Arc::clone(&self.kept)
    }

    /// Returns how long a client may currently go without reading rows. The time may be shorter if
    /// all places are taken, because the client's statement holds a place that others may wait for.
    pub(crate) fn reader_timeout(&self) -> Duration {
        if self.places.is_full() {
            self.unread_timeout.min(READER_TIMEOUT)
        } else {
            READER_TIMEOUT
        }
    }

    async fn place(&self, claimant: &Claimant, is_listing: bool) -> Result<Place> {
        let owner = claimant.owner();
        let most = claimant.rights.limits().max_queries;
        let most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let is_administrator = matches!(owner, Owner::User(_)) && claimant.rights.is_unrestricted();
        if !is_listing && !is_administrator {
            return self.places.enter_of(&owner, &claimant.caller, most).await;
        }
        match self.places.try_enter_of(&owner, most) {
            Some(place) => Ok(place),
            None => self.kept.enter_of(&owner, &claimant.caller, None).await,
        }
    }
}
