use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::Mutex;
use volary_flight_proto::ErrorCode;
use volary_node::metrics::{Histogram, OutcomeCounts, RowCounts, duration_histogram};

use super::StatementStatus;

/// Maximum number of users who have values of their own.
const MAX_USERS: usize = 1000;
/// Stands for all users beyond [`MAX_USERS`]. No user has this name, because names are not empty.
const OTHER_USERS: &str = "";

/// Totals over all statements of the gateway since its start, for its metrics.
#[derive(Debug)]
pub(crate) struct StatementTotals {
    /// How many statements ended, by outcome.
    pub(crate) outcomes: OutcomeCounts,
    /// Time from the arrival of a statement to its end.
    pub(crate) durations: Histogram,
    /// Time that planning took.
    pub(crate) planning: Histogram,
    /// Time that statements waited for a place.
    pub(crate) queued: Histogram,
    /// Rows that clients were sent.
    pub(crate) sent: RowCounts,
    /// Rows that clients have sent.
    pub(crate) received: RowCounts,
    /// Totals by user. Not set unless somebody asked for them.
    users: OnceLock<Mutex<HashMap<String, UserTotals>>>,
}

/// Totals of one user.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UserTotals {
    /// Number of statements that ended.
    pub(crate) statements: u64,
    /// Time from their arrival to their end, in seconds.
    pub(crate) seconds: f64,
}

impl Default for StatementTotals {
    fn default() -> Self {
        Self {
            outcomes: OutcomeCounts::default(),
            durations: duration_histogram(),
            planning: duration_histogram(),
            queued: duration_histogram(),
            sent: RowCounts::default(),
            received: RowCounts::default(),
            users: OnceLock::new(),
        }
    }
}

impl StatementTotals {
    /// Counts by user from now on.
    pub(crate) fn count_users(&self) {
        self.users.get_or_init(Mutex::default);
    }

    pub(super) fn add_ended(&self, status: &StatementStatus, error: Option<ErrorCode>) {
        self.outcomes.add(error);
        let parsing = status.parsing.unwrap_or_default();
        let total = parsing + status.planning + status.queued + status.running;
        self.durations.observe(total.as_secs_f64());
        self.planning.observe(status.planning.as_secs_f64());
        self.queued.observe(status.queued.as_secs_f64());
        if let Some(users) = self.users.get() {
            let mut users = users.lock();
            let user = status.issuer.user.as_str();
            let has_own = users.contains_key(user) || users.len() < MAX_USERS;
            let key = if has_own { user } else { OTHER_USERS };
            let totals = users.entry(key.to_owned()).or_default();
            totals.statements += 1;
            totals.seconds += total.as_secs_f64();
        }
    }

    /// Returns the totals of each user, if they are counted.
    pub(crate) fn by_user(&self) -> Vec<(String, UserTotals)> {
        let Some(users) = self.users.get() else {
            return Vec::new();
        };
        let users = users.lock();
        let totals = users.iter().map(|(user, totals)| (user.clone(), *totals));
        totals.collect()
    }
}
