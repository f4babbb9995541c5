use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::WriteId;

/// A set of writes, as ascending ranges that neither overlap nor touch. Writes are numbered one
/// after another, so even a large set usually has few ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriteSet {
    /// The first and the last write of each range.
    ranges: Vec<(u64, u64)>,
}

impl WriteSet {
    /// Returns the set of all writes from `first` to `last`. It is empty if `last` is less.
    pub fn of_range(first: WriteId, last: WriteId) -> Self {
        let mut set = Self::default();
        set.insert_range(first, last);
        set
    }

    /// Returns whether the set has no write.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the last write; `None` if the set is empty.
    pub fn last(&self) -> Option<WriteId> {
        self.ranges.last().map(|(_, last)| WriteId(*last))
    }

    /// Returns whether the set has this write.
    pub fn contains(&self, write: WriteId) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= write.0);
        after > 0 && self.ranges[after - 1].1 >= write.0
    }

    /// Adds all writes from `first` to `last`.
    pub fn insert_range(&mut self, first: WriteId, last: WriteId) {
        let (mut first, mut last) = (first.0, last.0);
        if first > last {
            return;
        }
        // The ranges that overlap or touch the new one.
        let from = self
            .ranges
            .partition_point(|range| range.1.saturating_add(1) < first);
        let to = self
            .ranges
            .partition_point(|range| range.0 <= last.saturating_add(1));
        if let Some(joined) = self
            .ranges
            .get(from..to)
            .filter(|joined| !joined.is_empty())
        {
            first = first.min(joined[0].0);
            last = last.max(joined[joined.len() - 1].1);
        }
        self.ranges.splice(from..to.max(from), [(first, last)]);
    }

    /// Adds a write.
    pub fn insert(&mut self, write: WriteId) {
        self.insert_range(write, write);
    }

    /// Removes a write. Returns whether the set had it.
    pub fn remove(&mut self, write: WriteId) -> bool {
        if !self.contains(write) {
            return false;
        }
        let at = self.ranges.partition_point(|(_, last)| *last < write.0);
        let (first, last) = self.ranges[at];
        let rest = [
            (first, write.0.wrapping_sub(1)),
            (write.0.wrapping_add(1), last),
        ];
        let is_left = [first < write.0, write.0 < last];
        let rest = rest.into_iter().zip(is_left);
        self.ranges.splice(
            at..=at,
            rest.filter(|(_, is_left)| *is_left).map(|(range, _)| range),
        );
        true
    }

    /// Adds all writes of another set.
    pub fn insert_all(&mut self, other: &Self) {
        for (first, last) in &other.ranges {
            self.insert_range(WriteId(*first), WriteId(*last));
        }
    }

    /// Returns the writes that both sets have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        let (mut ours, mut theirs) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            let (first, last) = (our.0.max(their.0), our.1.min(their.1));
            both.insert_range(WriteId(first), WriteId(last));
            if our.1 < their.1 {
                ours.next();
            } else {
                theirs.next();
            }
        }
        both
    }

    /// Returns the set without the writes after `last`.
    #[must_use]
    pub(crate) fn up_to(&self, last: WriteId) -> Self {
        let ranges = self.ranges.iter().filter(|range| range.0 <= last.0);
        Self {
            ranges: ranges.map(|range| (range.0, range.1.min(last.0))).collect(),
        }
    }

    /// Returns the first and the last write of each range, one after the other, for a message.
    pub fn to_bounds(&self) -> Vec<u64> {
        let bounds = self.ranges.iter();
        bounds.flat_map(|(first, last)| [*first, *last]).collect()
    }

    /// Builds the set from the bounds of a message. Ranges that are out of order, or of which a
    /// bound is missing, are put right or left out.
    pub fn from_bounds(bounds: &[u64]) -> Self {
        let mut set = Self::default();
        for bounds in bounds.chunks_exact(2) {
            set.insert_range(WriteId(bounds[0]), WriteId(bounds[1]));
        }
        set
    }
}

impl FromIterator<WriteId> for WriteSet {
    fn from_iter<I: IntoIterator<Item = WriteId>>(writes: I) -> Self {
        let mut set = Self::default();
        writes.into_iter().for_each(|write| set.insert(write));
        set
    }
}

impl fmt::Display for WriteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.ranges.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            f.write_str(separator)?;
            match first == last {
                true => write!(f, "{}", WriteId(*first))?,
                false => write!(f, "{} to {}", WriteId(*first), WriteId(*last))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns pseudo-random numbers below `bound`, the same ones each time.
    fn numbers(bound: u64) -> impl Iterator<Item = u64> {
        let next = |state: &u64| {
            Some(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            )
        };
        std::iter::successors(Some(7), next).map(move |state| (state >> 33) % bound)
    }

    #[test]
    fn it_is_a_set() {
        let mut numbers = numbers(64);
        let mut next = || numbers.next().unwrap();
        for _ in 0..200 {
            let mut set = WriteSet::default();
            let mut expected = BTreeSet::new();
            for _ in 0..40 {
                let (first, length) = (next(), next() % 6 + 1);
                if next() % 3 == 0 {
                    assert_eq!(set.remove(WriteId(first)), expected.remove(&first));
                } else {
                    let last = first + length - 1;
                    set.insert_range(WriteId(first), WriteId(last));
                    expected.extend(first..first + length);
                }
                for write in 0..72 {
                    assert_eq!(set.contains(WriteId(write)), expected.contains(&write));
                }
                let touch = |pair: &[(u64, u64)]| pair[0].1 + 1 >= pair[1].0;
                assert!(!set.ranges.windows(2).any(touch), "{set:?}");
                assert_eq!(set.is_empty(), expected.is_empty());
            }
            let other: BTreeSet<_> = (0..20).map(|_| next()).collect();
            let both: WriteSet = expected
                .intersection(&other)
                .map(|it| WriteId(*it))
                .collect();
            let other: WriteSet = other.into_iter().map(WriteId).collect();
            assert_eq!(set.intersection(&other), both);
            let last = next();
            let up_to: WriteSet = expected
                .range(..=last)
                .map(|write| WriteId(*write))
                .collect();
            assert_eq!(set.up_to(WriteId(last)), up_to);
            assert_eq!(WriteSet::from_bounds(&set.to_bounds()), set);
        }
    }

    #[test]
    fn the_largest_numbers_are_numbers_like_others() {
        let mut set = WriteSet::of_range(WriteId(0), WriteId(u64::MAX));
        assert!(set.remove(WriteId(u64::MAX)) && set.remove(WriteId(0)));
        assert!(set.contains(WriteId(1)) && !set.contains(WriteId(0)));
        set.insert(WriteId(u64::MAX));
        set.insert(WriteId(0));
        assert_eq!(set, WriteSet::of_range(WriteId(0), WriteId(u64::MAX)));
    }

    #[test]
    fn bounds_of_a_message_are_put_right() {
        let set = WriteSet::from_bounds(&[5, 7, 1, 2, 9, 8, 3]);
        assert_eq!(set.to_string(), "wr1 to wr2, wr5 to wr7");
    }
}
