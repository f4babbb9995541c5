//! A worker that missed several starts of the gateway cannot judge a lineage by itself. It reports
//! the incarnations that it knows, and [`CatalogState::judge_lineage`] finds the last one that the
//! catalog knows, too. [`Lineage`] explains incarnations.

use uuid::Uuid;
use volary_flight_proto::lineage::{Incarnation, Lineage};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Catalog;
use super::draft::Draft;
use super::records::{ClusterRecord, IncarnationRecord, Record};
use super::state::CatalogState;

/// Maximum number of incarnations that are kept, the latest ones. A worker that knows none of them
/// cannot be judged.
const MAX_INCARNATIONS: usize = 1000;

/// The gateway's verdict on the incarnations that a worker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineageVerdict {
    /// The worker may adopt this lineage.
    Adopt(Lineage),
    /// The worker has rows of failed writes, or of writes from `from_write` on, that may have been
    /// committed in a history that this catalog does not know. An operator has agreed to lose these
    /// rows.
    SetAside(Lineage),
    /// The worker has such rows, and nobody has agreed to lose them. The catalog is older than the
    /// worker's rows, or has another history.
    Conflict,
}

/// Begins a new incarnation. The previous incarnation is forgotten if it gave out no write, because
/// then no worker has rows of it. An incarnation that recovered the catalog is kept.
pub(super) fn begin_incarnation(draft: &mut Draft) -> Result<()> {
    let first_write = draft.state().cluster.next_write;
    let mut lineage = draft.state().lineage.as_ref().clone();
    lineage
        .incarnations
        .pop_if(|last| last.first_write == first_write && !last.recovered);
    lineage.incarnations.push(IncarnationRecord {
        id: new_incarnation_id(),
        first_write,
        recovered: std::mem::take(&mut lineage.recovers),
        base_commits: Some(draft.state().commits()),
    });
    let surplus = lineage.incarnations.len().saturating_sub(MAX_INCARNATIONS);
    lineage.incarnations.drain(..surplus);
    draft.put_lineage(lineage)
}

fn new_incarnation_id() -> u32 {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    u32::try_from(random >> 32).unwrap_or_default().max(1)
}

impl Catalog {
    /// Makes the next start of the gateway recover the catalog: workers set aside the rows of
    /// writes that the catalog does not know, instead of the gateway refusing all statements.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn recover(&self) -> Result<()> {
        self.change_with_ballast(|draft| {
            let mut lineage = draft.state().lineage.as_ref().clone();
            lineage.recovers = true;
            draft.put_lineage(lineage)
        })
        .await
    }
}

impl CatalogState {
    /// Returns the lineage that calls to workers carry.
    pub fn lineage(&self) -> Lineage {
        let incarnations = &self.lineage.incarnations;
        let Some(last) = incarnations.last() else {
            return Lineage::default();
        };
        let before = incarnations.len().checked_sub(2);
        Lineage {
            incarnation: last.id,
            ancestor: before.map_or(0, |before| incarnations[before].id),
            from_write: last.first_write,
            base_commits: last.base_commits,
        }
    }

    /// Returns the verdict on a worker that knows these incarnations, oldest first, has rows of
    /// writes up to `max_write`, and has heard of `heard_commits` committed writes.
    pub fn judge_lineage(
        &self,
        known: &[Incarnation],
        max_write: u64,
        heard_commits: u64,
    ) -> LineageVerdict {
        let ours = &self.lineage.incarnations;
        let position_of = |id: u32| ours.iter().position(|own| own.id == id);
        let common = known
            .iter()
            .enumerate()
            .rev()
            .find_map(|(theirs, known)| Some((theirs, position_of(known.id)?)));
        // The next incarnations, of the catalog and of the worker, after the last common one.
        let (ancestor, own_next, their_next) = match common {
            Some((theirs, own)) => (known[theirs].id, own + 1, theirs + 1),
            None => (0, 0, 0),
        };
        let own_first = ours.get(own_next).map(|next| next.first_write);
        let their_first = known.get(their_next).map(|next| next.first_write);
        let from_write = match (own_first, their_first) {
            (Some(own), Some(their)) => own.min(their),
            (own, their) => own.or(their).unwrap_or(self.cluster.next_write),
        };
        let base_commits = ours.get(own_next).and_then(|next| next.base_commits);
        let lineage = Lineage {
            ancestor,
            from_write,
            base_commits,
            ..self.lineage()
        };
        if max_write < from_write && lineage.has_all_commits(heard_commits) {
            return LineageVerdict::Adopt(lineage);
        }
        let was_recovered = ours.iter().skip(own_next).any(|own| own.recovered);
        // A worker that knows no later incarnation may have lost its list, and its rows may belong
        // to this catalog. Then only an operator who has just recovered the catalog has agreed to
        // lose them.
        let is_forked = their_first.is_some();
        let is_recovering = ours.last().is_some_and(|last| last.recovered);
        if was_recovered && (is_forked || is_recovering) {
            LineageVerdict::SetAside(lineage)
        } else {
            LineageVerdict::Conflict
        }
    }

    /// Checks that the cluster record and the lineage record are of the same time. The cluster
    /// record is written with every change, and names the incarnation that made the change.
    pub(super) fn check_lineage(&self) -> Result<()> {
        let last = self.lineage.incarnations.last().map(|last| last.id);
        if last == self.cluster.incarnation {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::DataLoss,
            format!(
                "the catalog's records {} and {} are from different times; restore the catalog from a backup",
                ClusterRecord::PREFIX,
                super::records::LineageRecord::PREFIX
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::LineageRecord;
    use volary_flight_proto::ids::ClusterId;

    fn state(incarnations: &[(u32, u64, bool)], next_write: u64) -> CatalogState {
        let mut cluster = ClusterRecord::new(ClusterId::new(), "00".repeat(32));
        cluster.next_write = next_write;
        let mut state = CatalogState::new(cluster, 1).unwrap();
        let record = |(id, first_write, recovered): &(u32, u64, bool)| IncarnationRecord {
            id: *id,
            first_write: *first_write,
            recovered: *recovered,
            base_commits: None,
        };
        state.lineage = std::sync::Arc::new(LineageRecord {
            incarnations: incarnations.iter().map(record).collect(),
            recovers: false,
        });
        state
    }

    fn known(incarnations: &[(u32, u64)]) -> Vec<Incarnation> {
        let known = |(id, first_write): &(u32, u64)| Incarnation {
            id: *id,
            first_write: *first_write,
        };
        incarnations.iter().map(known).collect()
    }

    fn lineage(incarnation: u32, ancestor: u32, from_write: u64) -> Lineage {
        Lineage {
            incarnation,
            ancestor,
            from_write,
            base_commits: None,
        }
    }

    #[test]
    fn a_worker_that_was_left_behind_follows_if_it_has_nothing_later() {
        let state = state(&[(10, 1, false), (20, 4, false), (30, 9, false)], 12);
        assert_eq!(state.lineage(), lineage(30, 20, 9));
        let behind = known(&[(10, 1)]);
        let follows = LineageVerdict::Adopt(lineage(30, 10, 4));
        assert_eq!(state.judge_lineage(&behind, 3, 0), follows);
        // The worker has a write that this catalog gave out only in an incarnation that the worker
        // does not know.
        let conflicts = LineageVerdict::Conflict;
        assert_eq!(state.judge_lineage(&behind, 4, 0), conflicts);
        // One worker is new, and another one has rows from before there were incarnations.
        let follows = LineageVerdict::Adopt(lineage(30, 0, 1));
        assert_eq!(state.judge_lineage(&[], 0, 0), follows);
        assert_eq!(state.judge_lineage(&[], 3, 0), LineageVerdict::Conflict);
    }

    #[test]
    fn a_copy_of_a_running_catalog_is_older_than_the_commits_that_a_worker_has_heard_of() {
        let mut restored = state(&[(10, 1, false), (20, 4097, false)], 4097);
        let lineage = std::sync::Arc::make_mut(&mut restored.lineage);
        lineage.incarnations[1].base_commits = Some(7);
        let known = known(&[(10, 1)]);
        // The numbers of the lost writes are among those that the copy had reserved.
        let conflict = restored.judge_lineage(&known, 12, 8);
        assert_eq!(conflict, LineageVerdict::Conflict);
        let follows = restored.judge_lineage(&known, 12, 7);
        assert!(matches!(follows, LineageVerdict::Adopt(_)), "{follows:?}");
    }

    #[test]
    fn a_fork_is_where_either_side_went_on() {
        // This catalog went on from write 6, and the worker's incarnation went on from write 4.
        let forked = known(&[(10, 1), (25, 4)]);
        let conflict = LineageVerdict::Conflict;
        let restored = [(10, 1, false), (30, 6, false)];
        assert_eq!(state(&restored, 7).judge_lineage(&forked, 5, 0), conflict);
        assert_eq!(
            state(&restored, 7).judge_lineage(&forked, 3, 0),
            LineageVerdict::Adopt(lineage(30, 10, 4))
        );
    }

    #[test]
    fn rows_are_set_aside_only_if_the_catalog_was_recovered_after_the_fork() {
        let forked = known(&[(10, 1), (25, 4)]);
        let recovered = state(&[(10, 1, false), (30, 4, true), (40, 8, false)], 9);
        let sets_aside = LineageVerdict::SetAside(lineage(40, 10, 4));
        assert_eq!(recovered.judge_lineage(&forked, 5, 0), sets_aside);
        // Long after the recovery, the worker's list may be an old copy.
        let conflict = LineageVerdict::Conflict;
        assert_eq!(recovered.judge_lineage(&known(&[(10, 1)]), 5, 0), conflict);
        let before = state(&[(5, 1, true), (10, 2, false), (30, 4, false)], 9);
        let conflict = LineageVerdict::Conflict;
        assert_eq!(before.judge_lineage(&forked, 5, 0), conflict);
    }
}
