use crate::ids::WriteId;
use crate::write_set::WriteSet;

/// The writes that a query sees: all writes up to `high`, except the excluded ones. A query has one
/// snapshot for all workers.
///
/// Two kinds of writes are excluded: writes that were not decided when the snapshot was taken, and
/// failed writes whose rows some worker may not have deleted yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshot {
    /// The highest write that may be seen.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// Writes that must not be seen, in ascending order, in a ticket that an earlier release made.
    #[prost(uint64, repeated, tag = "2")]
    pub excluded_writes: Vec<u64>,
    /// The first and the last write of each range of writes that must not be seen, in ascending
    /// order.
    #[prost(uint64, repeated, tag = "3")]
    pub excluded_bounds: Vec<u64>,
}

impl Snapshot {
    /// Returns the snapshot that sees all writes up to `high`, except the excluded ones.
    pub fn new(high: WriteId, excluded: &WriteSet) -> Self {
        Self {
            high: high.0,
            excluded_writes: Vec::new(),
            excluded_bounds: excluded.up_to(high).to_bounds(),
        }
    }

    /// Returns whether the query sees rows of this write.
    pub fn sees(&self, write: WriteId) -> bool {
        if write.0 > self.high {
            return false;
        }
        // An odd number of bounds below the write would mean that it lies within a range. The last
        // write of a range is within it, too.
        let below = self
            .excluded_bounds
            .partition_point(|bound| *bound < write.0);
        let is_bound = self.excluded_bounds.get(below) == Some(&write.0);
        below % 2 == 0 && !is_bound && self.excluded_writes.binary_search(&write.0).is_err()
    }

    /// Returns whether the query sees every write that a query with the other snapshot sees.
    pub fn covers(&self, other: &Self) -> bool {
        let excluded = self.excluded().up_to(WriteId(other.high));
        self.high >= other.high && excluded.intersection(&other.excluded()) == excluded
    }

    /// Returns the snapshot that also does not see these writes.
    #[must_use]
    pub fn without(&self, writes: &WriteSet) -> Self {
        let mut excluded = self.excluded();
        excluded.insert_all(writes);
        Self::new(WriteId(self.high), &excluded)
    }

    fn excluded(&self) -> WriteSet {
        let mut excluded = WriteSet::from_bounds(&self.excluded_bounds);
        for write in &self.excluded_writes {
            excluded.insert(WriteId(*write));
        }
        excluded
    }

    /// Returns whether the query sees all writes from `first` to `last`.
    pub fn sees_all_between(&self, first: WriteId, last: WriteId) -> bool {
        if last.0 > self.high {
            return false;
        }
        // As in `sees`, an odd number of bounds below the first write means that it lies within an
        // excluded range.
        let below = |bounds: &[u64]| bounds.partition_point(|bound| *bound < first.0);
        let next = |bounds: &[u64]| bounds.get(below(bounds)).copied();
        let begins_later = |next: Option<u64>| next.is_none_or(|next| next > last.0);
        below(&self.excluded_bounds) % 2 == 0
            && begins_later(next(&self.excluded_bounds))
            && begins_later(next(&self.excluded_writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sees_all_writes_up_to_it_that_are_not_excluded() {
        let excluded: WriteSet = [2, 3, 4, 7, 9, 12].into_iter().map(WriteId).collect();
        let snapshot = Snapshot::new(WriteId(10), &excluded);
        assert_eq!(snapshot.excluded_bounds, [2, 4, 7, 7, 9, 9]);
        let seen: Vec<_> = (0..14)
            .filter(|write| snapshot.sees(WriteId(*write)))
            .collect();
        assert_eq!(seen, [0, 1, 5, 6, 8, 10]);
        let former = Snapshot {
            high: 4,
            excluded_writes: vec![2, 3],
            excluded_bounds: Vec::new(),
        };
        let seen: Vec<_> = (0..14)
            .filter(|write| former.sees(WriteId(*write)))
            .collect();
        assert_eq!(seen, [0, 1, 4]);
        for one in [&snapshot, &former] {
            for other in [&snapshot, &former, &Snapshot::default()] {
                let expected =
                    (0..14).all(|write| one.sees(WriteId(write)) || !other.sees(WriteId(write)));
                assert_eq!(one.covers(other), expected, "{one:?} {other:?}");
            }
        }
        let without = snapshot.without(&WriteSet::of_range(WriteId(6), WriteId(u64::MAX)));
        let seen: Vec<_> = (0..14)
            .filter(|write| without.sees(WriteId(*write)))
            .collect();
        assert_eq!(seen, [0, 1, 5]);
        assert!(snapshot.covers(&without) && !without.covers(&snapshot));
        for snapshot in [snapshot, former] {
            for (first, last) in
                (0..14).flat_map(|first| (first..14).map(move |last| (first, last)))
            {
                let expected = (first..=last).all(|write| snapshot.sees(WriteId(write)));
                let seen = snapshot.sees_all_between(WriteId(first), WriteId(last));
                assert_eq!(seen, expected, "{first} to {last}");
            }
        }
    }
}
