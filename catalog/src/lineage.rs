//! The incarnations of the catalog, by which workers find out that it was restored from a backup.
//!
//! See [`Lineage`] for what they are. A worker that was left behind by several starts cannot judge a lineage by itself: it
//! says which incarnations it knows, and [`State::agree`] finds the last one that both know.

use uuid::Uuid;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::lineage::{Incarnation, Lineage};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Catalog;
use super::draft::Draft;
use super::records::{ClusterRecord, IncarnationRecord, Record};
use super::state::State;

/// Incarnations that are kept, the latest ones: a worker that has heard of none of them cannot be judged.
const MOST_KEPT: usize = 1000;

/// What a gateway makes of the incarnations that a worker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// The worker may adopt this.
    Follows(Lineage),
    /// The worker has rows of writes from `from_write` on that the catalog has not given out, or gave out again. An operator
    /// has agreed to lose them.
    SetsAside(Lineage),
    /// It has such rows, and nobody has agreed to lose them: the catalog is older than the worker, or of another history.
    Conflicts {
        /// The first write that this catalog does not know as the worker's.
        from_write: WriteId,
    },
}

/// Begins another incarnation. One that gave out no write is forgotten: no worker has rows of it.
pub(super) fn begin_incarnation(draft: &mut Draft) -> Result<()> {
    let first_write = draft.state().cluster.next_write;
    let mut lineage = draft.state().lineage.as_ref().clone();
    lineage
        .incarnations
        .pop_if(|last| last.first_write == first_write && !last.recovered);
    lineage.incarnations.push(IncarnationRecord {
        id: new_id(),
        first_write,
        recovered: std::mem::take(&mut lineage.recovers),
    });
    let surplus = lineage.incarnations.len().saturating_sub(MOST_KEPT);
    lineage.incarnations.drain(..surplus);
    draft.put_lineage(lineage)
}

fn new_id() -> u32 {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    u32::try_from(random >> 32).unwrap_or_default().max(1)
}

impl Catalog {
    /// Lets the next start go on although workers have rows of writes that the catalog does not know: they set these rows
    /// aside.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn recover(&self) -> Result<()> {
        self.change(|draft| {
            let mut lineage = draft.state().lineage.as_ref().clone();
            lineage.recovers = true;
            draft.put_lineage(lineage)
        })
        .await
    }
}

impl State {
    /// What calls of workers say of the catalog's history.
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
        }
    }

    /// What becomes of a worker that knows these incarnations, the oldest first, and has rows of writes up to `max_write`.
    pub fn agree(&self, known: &[Incarnation], max_write: u64) -> Agreement {
        let ours = &self.lineage.incarnations;
        let position_of = |id: u32| ours.iter().position(|own| own.id == id);
        let common = known
            .iter()
            .enumerate()
            .rev()
            .find_map(|(theirs, known)| Some((theirs, position_of(known.id)?)));
        // What followed on the last incarnation that both know, here and there.
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
        let lineage = Lineage {
            ancestor,
            from_write,
            ..self.lineage()
        };
        if max_write < from_write {
            return Agreement::Follows(lineage);
        }
        let was_recovered = ours.iter().skip(own_next).any(|own| own.recovered);
        // A worker that knows no other incarnation may have lost its own list, and its rows may be this catalog's: then only the
        // operator who has just recovered the catalog has agreed.
        let is_forked = their_first.is_some();
        let is_recovering = ours.last().is_some_and(|last| last.recovered);
        if was_recovered && (is_forked || is_recovering) {
            Agreement::SetsAside(lineage)
        } else {
            Agreement::Conflicts {
                from_write: WriteId(from_write),
            }
        }
    }

    /// The cluster record is written with every change, and says which incarnation made it.
    pub(super) fn check_lineage(&self) -> Result<()> {
        let last = self.lineage.incarnations.last().map(|last| last.id);
        if last == self.cluster.incarnation {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::DataLoss,
            format!(
                "the catalog's records {} and {} are not of the same time; restore the catalog from a backup",
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

    fn state(incarnations: &[(u32, u64, bool)], next_write: u64) -> State {
        let mut cluster = ClusterRecord::new(ClusterId::new(), "00".repeat(32));
        cluster.next_write = next_write;
        let mut state = State::new(cluster, 1).unwrap();
        let record = |(id, first_write, recovered): &(u32, u64, bool)| IncarnationRecord {
            id: *id,
            first_write: *first_write,
            recovered: *recovered,
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
        }
    }

    #[test]
    fn a_worker_that_was_left_behind_follows_if_it_has_nothing_later() {
        let state = state(&[(10, 1, false), (20, 4, false), (30, 9, false)], 12);
        assert_eq!(state.lineage(), lineage(30, 20, 9));
        let behind = known(&[(10, 1)]);
        let follows = Agreement::Follows(lineage(30, 10, 4));
        assert_eq!(state.agree(&behind, 3), follows);
        // It wrote under an incarnation that gave out nothing by the word of this catalog.
        let from_write = WriteId(4);
        let conflicts = Agreement::Conflicts { from_write };
        assert_eq!(state.agree(&behind, 4), conflicts);
        // A new worker, and one with rows of before there were incarnations.
        let follows = Agreement::Follows(lineage(30, 0, 1));
        assert_eq!(state.agree(&[], 0), follows);
        let from_write = WriteId(1);
        assert_eq!(state.agree(&[], 3), Agreement::Conflicts { from_write });
    }

    #[test]
    fn a_fork_is_where_either_side_went_on() {
        // This catalog went on from 6, the worker's from 4.
        let forked = known(&[(10, 1), (25, 4)]);
        let from_write = WriteId(4);
        let conflict = Agreement::Conflicts { from_write };
        let restored = [(10, 1, false), (30, 6, false)];
        assert_eq!(state(&restored, 7).agree(&forked, 5), conflict);
        assert_eq!(
            state(&restored, 7).agree(&forked, 3),
            Agreement::Follows(lineage(30, 10, 4))
        );
    }

    #[test]
    fn rows_are_set_aside_only_if_the_catalog_was_recovered_after_the_fork() {
        let forked = known(&[(10, 1), (25, 4)]);
        let recovered = state(&[(10, 1, false), (30, 4, true), (40, 8, false)], 9);
        let sets_aside = Agreement::SetsAside(lineage(40, 10, 4));
        assert_eq!(recovered.agree(&forked, 5), sets_aside);
        // Long after the recovery, a worker's own list is an old copy.
        let from_write = WriteId(4);
        let conflict = Agreement::Conflicts { from_write };
        assert_eq!(recovered.agree(&known(&[(10, 1)]), 5), conflict);
        let before = state(&[(5, 1, true), (10, 2, false), (30, 4, false)], 9);
        let from_write = WriteId(4);
        let conflict = Agreement::Conflicts { from_write };
        assert_eq!(before.agree(&forked, 5), conflict);
    }
}
