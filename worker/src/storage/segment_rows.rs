use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write_set::WriteSet;

use super::record::SettledRows;

/// The part of a segment that a snapshot sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// No row.
    None,
    /// Some rows.
    Some,
    /// All rows.
    All,
}

/// The rows of a segment, by the writes that added them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentRows {
    /// The last write.
    write: WriteId,
    /// Number of rows that count.
    rows: u64,
    /// The tally of these rows.
    tally: Tally,
    /// The writes, ascending, with the number of their rows, except those of `settled`. Empty if
    /// all rows are of `write`.
    listed: Vec<(WriteId, u64)>,
    /// The rows of writes that are not listed any more.
    settled: Option<SettledRows>,
    /// The writes whose rows are in the file, but do not count any more.
    hidden: WriteSet,
}

impl SegmentRows {
    /// Describes rows that are all of one write.
    pub(super) fn of_write(write: WriteId, rows: u64) -> Self {
        Self {
            write,
            rows,
            tally: [(write, rows)].into_iter().collect(),
            listed: Vec::new(),
            settled: None,
            hidden: WriteSet::default(),
        }
    }

    /// Describes rows of several writes, which are ascending, with the number of their rows.
    /// `write` is the last write if none is listed. `hidden` are the writes of further rows, which
    /// do not count.
    pub(super) fn of_several(
        write: WriteId,
        listed: Vec<(WriteId, u64)>,
        settled: Option<SettledRows>,
        hidden: WriteSet,
    ) -> Self {
        let mut tally: Tally = listed.iter().copied().collect();
        let mut rows = listed.iter().map(|(_, rows)| rows).sum();
        if let Some(settled) = settled {
            tally.add_all(settled.tally);
            rows += settled.rows;
        }
        let last = listed.last().map(|(write, _)| *write);
        let last = last.max(settled.map(|settled| settled.last));
        Self {
            write: last.unwrap_or(write),
            rows,
            tally,
            listed,
            settled,
            hidden,
        }
    }

    /// Returns the last write.
    pub(super) fn write(&self) -> WriteId {
        self.write
    }

    /// Returns the sum of all rows that count. Returns `None` if there are none.
    pub(super) fn sum(&self) -> Option<SettledRows> {
        sum(self.writes(), self.settled)
    }

    /// Returns the number of rows that count.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the tally of the rows that count.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the writes whose rows are in the file, but do not count any more.
    pub(super) fn hidden(&self) -> &WriteSet {
        &self.hidden
    }

    /// Returns the rows of writes that are not listed any more.
    pub(super) fn settled(&self) -> Option<SettledRows> {
        self.settled
    }

    /// Returns the list of several writes.
    pub(super) fn listed(&self) -> &[(WriteId, u64)] {
        &self.listed
    }

    /// Returns the writes, ascending, with the number of their rows, except those of settled rows.
    pub(super) fn writes(&self) -> impl Iterator<Item = (WriteId, u64)> {
        let only = (!self.are_of_several()).then_some((self.write, self.rows));
        self.listed.iter().copied().chain(only)
    }

    /// Returns whether the rows are of several writes. Then the file says the write of each row.
    pub(super) fn are_of_several(&self) -> bool {
        !self.listed.is_empty() || self.settled.is_some()
    }

    /// Returns the number and the tally of the rows that a snapshot sees. Every snapshot sees
    /// settled rows.
    pub(super) fn counted(&self, snapshot: &Snapshot) -> (u64, Tally) {
        if self.are_seen_by(snapshot) {
            return (self.rows, self.tally);
        }
        let settled = self.settled.map(|settled| (settled.rows, settled.tally));
        let (mut rows, mut tally) = settled.unwrap_or_default();
        for (write, write_rows) in self.writes().filter(|(write, _)| snapshot.sees(*write)) {
            rows += write_rows;
            tally.add(write, write_rows);
        }
        (rows, tally)
    }

    /// Returns whether a snapshot sees all rows. Segments may have rows of many thousands of
    /// writes, and nearly every snapshot sees them all. This is found out without looking at each
    /// write. It may be false although all rows are seen: if there is a write between theirs that
    /// the snapshot does not see.
    fn are_seen_by(&self, snapshot: &Snapshot) -> bool {
        if !self.are_of_several() {
            return snapshot.sees(self.write);
        }
        match (self.listed.first(), self.listed.last()) {
            (Some((first, _)), Some((last, _))) => snapshot.sees_all_between(*first, *last),
            _ => true,
        }
    }

    /// Returns whether all rows that count are of writes that a snapshot sees.
    pub(super) fn are_committed(&self, snapshot: &Snapshot) -> bool {
        self.are_seen_by(snapshot) || self.writes().all(|(write, _)| snapshot.sees(write))
    }

    /// Returns which of the rows in the file a snapshot sees.
    pub(super) fn visibility(&self, snapshot: &Snapshot) -> Visibility {
        let has_hidden = !self.hidden.is_empty();
        let (mut any, mut all) = (self.settled.is_some(), true);
        if self.are_seen_by(snapshot) {
            any = true;
        } else {
            for (write, _) in self.writes() {
                let seen = snapshot.sees(write);
                any |= seen;
                all &= seen;
            }
        }
        match (any, all && !has_hidden) {
            (false, _) => Visibility::None,
            (true, true) => Visibility::All,
            (true, false) => Visibility::Some,
        }
    }

    /// Returns what is left without the rows of these writes, which do not count any more. Settled
    /// rows stay.
    pub(super) fn without(&self, writes: &WriteSet) -> Self {
        let (gone, kept): (Vec<_>, Vec<_>) = self
            .writes()
            .partition(|(write, _)| writes.contains(*write));
        if gone.is_empty() {
            return self.clone();
        }
        let mut hidden = self.hidden.clone();
        gone.iter().for_each(|(write, _)| hidden.insert(*write));
        Self::of_several(self.write, kept, self.settled, hidden)
    }

    /// Settles the rows of all listed writes that `horizon` sees and that are not in `logged`.
    /// Returns `None` if there is nothing to settle.
    pub(super) fn settle(&self, horizon: &Snapshot, logged: &WriteSet) -> Option<Self> {
        let is_settled =
            |(write, _): &(WriteId, u64)| horizon.sees(*write) && !logged.contains(*write);
        let (settled, listed): (Vec<_>, Vec<_>) = self.listed.iter().copied().partition(is_settled);
        if settled.is_empty() {
            return None;
        }
        let sum = sum(settled.into_iter(), self.settled);
        let hidden = self.hidden.clone();
        Some(Self::of_several(self.write, listed, sum, hidden))
    }
}

/// Adds up rows of writes, and rows that are a sum already.
fn sum(
    writes: impl Iterator<Item = (WriteId, u64)>,
    others: Option<SettledRows>,
) -> Option<SettledRows> {
    let writes = writes.map(|(write, rows)| SettledRows::of_write(write, rows));
    SettledRows::sum(writes.chain(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(ids: impl IntoIterator<Item = u64>) -> WriteSet {
        ids.into_iter().map(WriteId).collect()
    }

    #[test]
    fn rows_are_counted_and_seen_as_if_each_write_were_looked_at() {
        let listed: Vec<_> = (1..20).step_by(2).map(|id| (WriteId(id), id)).collect();
        let rows = SegmentRows::of_several(WriteId(0), listed, None, WriteSet::default());
        assert_eq!((rows.write(), rows.rows()), (WriteId(19), 100));
        let horizon = Snapshot::new(WriteId(8), &writes([3]));
        let settled = rows.settle(&horizon, &writes([5])).unwrap();
        let left: Vec<_> = settled.writes().map(|(write, _)| write.0).collect();
        assert_eq!(left, [3, 5, 9, 11, 13, 15, 17, 19]);
        assert_eq!(settled.settle(&horizon, &writes([5])), None);
        let known = settled.settled().unwrap();
        assert_eq!((known.first.0, known.last.0, known.rows), (1, 7, 8));
        assert_eq!(
            (settled.rows(), settled.tally()),
            (rows.rows(), rows.tally())
        );
        let without = rows.without(&writes([5, 19]));
        assert_eq!((without.write(), without.rows()), (WriteId(17), 76));
        for high in 8..22 {
            for excluded in [vec![], vec![3], vec![3, 12], vec![9, 10, 19]] {
                let snapshot = Snapshot::new(WriteId(high), &writes(excluded));
                let seen = rows.writes().filter(|(write, _)| snapshot.sees(*write));
                let seen: Vec<_> = seen.collect();
                let count = seen.iter().map(|(_, rows)| rows).sum();
                let expected = (count, seen.iter().copied().collect());
                assert_eq!(rows.counted(&snapshot), expected);
                assert_eq!(rows.are_committed(&snapshot), seen.len() == 10);
                let visibility = match seen.len() {
                    0 => Visibility::None,
                    10 => Visibility::All,
                    _ => Visibility::Some,
                };
                assert_eq!(rows.visibility(&snapshot), visibility);
                // Each of these snapshots sees what the horizon sees.
                assert!(snapshot.covers(&horizon));
                assert_eq!(settled.counted(&snapshot), expected);
                assert_eq!(settled.visibility(&snapshot), visibility);
                assert_ne!(without.visibility(&snapshot), Visibility::All);
            }
        }
        let only = SegmentRows::of_write(WriteId(4), 7);
        assert_eq!(only.without(&writes([5])), only);
        assert_eq!(only.without(&writes([4])).rows(), 0);
        assert_eq!(
            only.visibility(&Snapshot::new(WriteId(3), &writes([]))),
            Visibility::None
        );
        assert_eq!(
            only.visibility(&Snapshot::new(WriteId(4), &writes([]))),
            Visibility::All
        );
        assert_eq!(only.settle(&horizon, &writes([])), None);
    }
}
