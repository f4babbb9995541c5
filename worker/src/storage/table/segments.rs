use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Table;
use crate::storage::record::SettledRows;
use crate::storage::segment::Segment;
use crate::storage::shard::{Segments, Shard};
use crate::storage::store::{Delta, Outcome};

/// New segments with the rows of others, or with rows of the log.
#[derive(Debug)]
pub(in crate::storage) struct Replacement {
    /// The segments that go. There are none if the rows were in the log.
    pub(in crate::storage) old: Segments,
    /// The segments that come.
    pub(in crate::storage) new: Segments,
    /// The rows that have expired, and that the new segments do not have.
    pub(in crate::storage) expired: Option<SettledRows>,
}

/// Segments, each with another one of the same file that takes its place.
pub(in crate::storage) type Changed = Vec<(Arc<Segment>, Arc<Segment>)>;

impl Table {
    /// Decides to add segments, whose files are durable.
    pub(in crate::storage) fn decide_addition(&self, segments: &[Arc<Segment>]) -> Result<Delta> {
        self.check_shards(segments.iter().map(|segment| segment.shard()))?;
        for segment in segments {
            self.tombstones.check_write(segment.write())?;
        }
        let mut delta = self.decide_removal(&[]);
        let records = segments.iter().map(|segment| (self.id(), segment.record()));
        delta.added.extend(records);
        delta.directories.push(Arc::clone(&self.directory));
        Ok(delta)
    }

    /// Learns what became of an addition.
    pub(in crate::storage) fn settle_addition(
        &self,
        segments: Vec<Arc<Segment>>,
        outcome: Outcome,
    ) {
        self.settle_uncertain(outcome);
        if matches!(outcome, Outcome::NotMade(_)) {
            return; // The files are deleted with the segments.
        }
        // If it is unknown whether the store names the files, they are kept, and an abort of their
        // write finds them.
        let mut shards = self.shards.write();
        let mut changed = BTreeSet::new();
        for segment in segments {
            segment.mark_named();
            self.totals.add(&segment);
            changed.insert(segment.shard());
            let is_new = !shards.contains_key(&segment.shard());
            self.totals.add_shards(usize::from(is_new));
            let known = shards.entry(segment.shard()).or_default();
            known.segments.push(segment);
        }
        for shard in changed {
            if let Some(known) = shards.get_mut(&shard) {
                // The sort is stable: the segments of a write keep their order.
                known.segments.sort_by_key(|segment| segment.write());
            }
        }
    }

    /// Decides to remove segments. What the store may have made of earlier replacements is undone:
    /// their old segments are those that are read.
    pub(in crate::storage) fn decide_removal(&self, segments: &[Arc<Segment>]) -> Delta {
        let mut delta = Delta::default();
        let file = |segment: &Arc<Segment>| (self.id(), segment.name().to_owned());
        for uncertain in self.uncertain.lock().iter() {
            let old = uncertain.old.iter();
            delta
                .added
                .extend(old.map(|segment| (self.id(), segment.record())));
            delta.removed.extend(uncertain.new.iter().map(file));
            if uncertain.expired.is_some() {
                let shards = self.shards.read();
                let shard = uncertain.old.first().map_or(0, |segment| segment.shard());
                let expired = shards.get(&shard).and_then(|known| known.expired);
                delta.expired.push(((self.id(), shard), expired));
            }
        }
        delta.removed.extend(segments.iter().map(file));
        delta
    }

    /// Removes segments, which the store does not name any more. Their files are deleted when
    /// nobody uses them.
    pub(in crate::storage) fn forget(&self, segments: &[Arc<Segment>]) {
        self.settle_uncertain(Outcome::Made);
        self.remove_from(&mut self.shards.write(), segments);
    }

    fn remove_from(&self, shards: &mut BTreeMap<u32, Shard>, segments: &[Arc<Segment>]) {
        let gone: BTreeSet<_> = segments.iter().map(Arc::as_ptr).collect();
        let changed: BTreeSet<_> = segments.iter().map(|segment| segment.shard()).collect();
        for shard in changed {
            let Some(known) = shards.get_mut(&shard) else {
                continue;
            };
            let removed = known
                .segments
                .extract_if(.., |segment| gone.contains(&Arc::as_ptr(segment)));
            for segment in removed {
                segment.mark_garbage();
                self.totals.remove(&segment);
            }
        }
    }

    /// Decides to replace segments of a shard by others with the same rows.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, `CANCELLED` if some of the segments are not
    /// there any more, and the errors for a shard with a fault.
    pub(in crate::storage) fn decide_replacement(
        &self,
        replacement: &Replacement,
    ) -> Result<Delta> {
        let Replacement { old, new, expired } = replacement;
        self.check_shards(old.iter().chain(new).map(|segment| segment.shard()))?;
        {
            let shards = self.shards.read();
            let is_here = |segment: &Arc<Segment>| {
                let known = shards.get(&segment.shard());
                known.is_some_and(|known| known.segments.iter().any(|it| Arc::ptr_eq(it, segment)))
            };
            if !old.iter().all(is_here) {
                return Err(Error::new(
                    ErrorCode::Cancelled,
                    format!(
                        "segments of table {} were removed while they were merged",
                        self.id()
                    ),
                ));
            }
        }
        let mut delta = self.decide_removal(old);
        let records = new.iter().map(|segment| (self.id(), segment.record()));
        delta.added.extend(records);
        delta.directories.push(Arc::clone(&self.directory));
        if let (Some(expired), Some(segment)) = (expired, old.first()) {
            let shard = segment.shard();
            let shards = self.shards.read();
            let before = shards.get(&shard).and_then(|known| known.expired);
            let all = SettledRows::sum(before.into_iter().chain([*expired]));
            delta.expired.push(((self.id(), shard), all));
        }
        Ok(delta)
    }

    /// Learns what became of a replacement.
    pub(in crate::storage) fn settle_replacement(
        &self,
        replacement: Replacement,
        outcome: Outcome,
    ) {
        self.settle_uncertain(outcome);
        let Replacement { old, new, expired } = replacement;
        match outcome {
            // The new files are deleted with their segments.
            Outcome::NotMade(_) => {}
            Outcome::Unknown => {
                new.iter().for_each(|segment| segment.mark_named());
                let uncertain = Replacement { old, new, expired };
                self.uncertain.lock().push(uncertain);
            }
            Outcome::Made => {
                let mut shards = self.shards.write();
                for segment in new {
                    segment.mark_named();
                    self.totals.add(&segment);
                    let known = shards.entry(segment.shard()).or_default();
                    known.segments.push(segment);
                    known.segments.sort_by_key(|segment| segment.write());
                }
                if let (Some(expired), Some(segment)) = (expired, old.first()) {
                    let known = shards.entry(segment.shard()).or_default();
                    self.totals.add_expired(expired.rows);
                    known.expired = SettledRows::sum(known.expired.into_iter().chain([expired]));
                }
                self.remove_from(&mut shards, &old);
            }
        }
    }

    /// Learns what became of a change. If it was made, earlier replacements were not.
    pub(super) fn settle_uncertain(&self, outcome: Outcome) {
        if outcome == Outcome::Made {
            let mut uncertain = self.uncertain.lock();
            let new = uncertain.drain(..).flat_map(|replacement| replacement.new);
            new.for_each(|segment| segment.mark_garbage());
        }
    }

    /// Returns segments of a shard whose rows can be settled, with what they become.
    pub(in crate::storage) fn settle(
        &self,
        shard: u32,
        horizon: &Snapshot,
        logged: &WriteSet,
    ) -> Changed {
        let shards = self.shards.read();
        let segments = shards.get(&shard).map_or(&[][..], |known| &known.segments);
        let settled = segments.iter().filter_map(|segment| {
            let rows = segment.by_write().settle(horizon, logged)?;
            Some((Arc::clone(segment), Arc::new(segment.with_rows(rows))))
        });
        settled.collect()
    }

    /// Decides to say something else about the rows of segments.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped.
    pub(in crate::storage) fn decide_changes(&self, changed: &Changed) -> Result<Delta> {
        self.tombstones.check_table(self.id())?;
        let records = changed.iter().map(|(_, new)| (self.id(), new.record()));
        Ok(Delta {
            added: records.collect(),
            ..Delta::default()
        })
    }

    /// Replaces segments by others of the same files.
    pub(in crate::storage) fn change(&self, changed: Changed) {
        let mut shards = self.shards.write();
        for (old, new) in changed {
            let known = shards.get_mut(&old.shard());
            let segments = known.map(|known| &mut known.segments);
            let segments = segments.into_iter().flatten();
            for segment in segments.filter(|segment| Arc::ptr_eq(segment, &old)) {
                self.totals.remove(&old);
                self.totals.add(&new);
                *segment = Arc::clone(&new);
            }
        }
        for known in shards.values_mut() {
            known.segments.sort_by_key(|segment| segment.write());
        }
    }
}
