use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use parking_lot::Mutex;
use volary_catalog::{CatalogState, Table};
use volary_flight_proto::control::TableExpiry;
use volary_flight_proto::snapshot::Snapshot;

/// Number of past snapshots within the lifetime of a ticket.
const STEPS: u32 = 16;
/// Maximum number of past snapshots. More are needed only if a statement runs for days.
const MOST: usize = 4096;

/// What every query knows that began after a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PastState {
    /// The writes that were committed.
    pub(super) snapshot: Snapshot,
    /// The moment, in microseconds since 1970.
    pub(super) time_us: i64,
    /// How long the rows of tables were kept, for those tables whose rows expire.
    pub(super) expiries: Vec<TableExpiry>,
}

impl PastState {
    /// Returns what queries know that begin from now on.
    pub(super) fn now(catalog: &CatalogState) -> Self {
        Self {
            time_us: Utc::now().timestamp_micros(),
            snapshot: catalog.snapshot(),
            expiries: expiries(catalog),
        }
    }

    /// Returns how long the rows of tables are kept now. Tables whose retention has changed since
    /// are left out: a query that began before the change still sees rows by the old one.
    pub(super) fn unchanged_expiries(&self, catalog: &CatalogState) -> Vec<TableExpiry> {
        let mut now = expiries(catalog);
        now.retain(|expiry| self.expiries.contains(expiry));
        now
    }
}

fn expiries(catalog: &CatalogState) -> Vec<TableExpiry> {
    let expiry = |table: &Arc<Table>| {
        Some(TableExpiry {
            table_id: table.id().0,
            expiry: Some(table.retention()?.expiry()),
        })
    };
    catalog.tables().filter_map(expiry).collect()
}

/// Remembers what was committed in the past. So it is known which writes every query sees that may
/// still ask a worker, and workers need not tell these writes apart any more. It is also known
/// which rows have expired for all of these queries.
#[derive(Debug)]
pub(super) struct Horizon {
    /// Time for which a ticket is valid.
    lifetime: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was committed at these times, that of the latest time last.
    past: VecDeque<(Instant, PastState)>,
    /// What every query knows that may still ask a worker; `None` if that is not known yet.
    reached: Option<PastState>,
}

impl Horizon {
    /// Creates the horizon of a gateway whose tickets are valid for this time.
    pub(super) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            state: Mutex::default(),
        }
    }

    /// Returns what every query knows that may still ask a worker. Returns `None` if that is not
    /// known yet: the tickets of a former gateway may still be valid.
    pub(super) fn reached(&self) -> Option<PastState> {
        self.state.lock().reached.clone()
    }

    /// Notes what is known now, and when the oldest running statement began, if one runs.
    pub(super) fn note(&self, current: impl FnOnce() -> PastState, oldest: Option<Instant>) {
        self.note_at(Instant::now(), current, oldest);
    }

    fn note_at(&self, now: Instant, current: impl FnOnce() -> PastState, oldest: Option<Instant>) {
        let mut state = self.state.lock();
        let last = state.past.back().map(|(noted, _)| *noted);
        let is_due = |last| now.saturating_duration_since(last) >= self.lifetime / STEPS;
        if last.is_none_or(is_due) && state.past.len() < MOST {
            state.past.push_back((now, current()));
        }
        // A statement may begin with a ticket that is as old as a ticket may be.
        let begun = oldest.map_or(now, |oldest| oldest.min(now));
        while let Some((_, past)) = state
            .past
            .pop_front_if(|(noted, _)| begun.saturating_duration_since(*noted) > self.lifetime)
        {
            state.reached = Some(past);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_second(high: u64) -> PastState {
        PastState {
            snapshot: Snapshot {
                high,
                ..Snapshot::default()
            },
            ..PastState::default()
        }
    }

    #[test]
    fn the_horizon_follows_at_a_distance_and_waits_for_running_statements() {
        let horizon = Horizon::new(Duration::from_secs(160));
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let reached = || horizon.reached().map(|past| past.snapshot.high);
        let note = |seconds, oldest: Option<u64>| {
            horizon.note_at(at(seconds), || at_second(seconds), oldest.map(at));
        };
        for seconds in 0..=160 {
            note(seconds, None);
            assert_eq!(reached(), None, "{seconds}");
        }
        note(161, None);
        assert_eq!(reached(), Some(0));
        note(195, None);
        assert_eq!(reached(), Some(30));
        // A statement that began at 195 may have had a ticket from 35.
        for seconds in 196..1000 {
            note(seconds, Some(195));
            assert_eq!(reached(), Some(30), "{seconds}");
        }
        note(1000, None);
        assert!(reached() > Some(800));
        assert!(horizon.state.lock().past.len() < 20);
    }
}
