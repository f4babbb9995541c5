//! A lone write is a group of its own and starts at once. Writes that come while a group of their
//! table is in flight wait for it, and are the next group. So groups grow with the load, and no
//! write waits for a timer.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// A write that may share a group with others.
pub(super) trait GroupMember {
    /// Returns the size of the rows.
    fn bytes(&self) -> usize;
}

/// The writes that wait, by table.
#[derive(Debug)]
pub(super) struct Batcher<K, M> {
    queues: Mutex<Queues<K, M>>,
    max_group_bytes: usize,
}

#[derive(Debug)]
struct Queues<K, M> {
    /// The tables of which a group is in flight, each with its waiting writes and their numbers.
    by_table: HashMap<K, VecDeque<(u64, M)>>,
    /// The number of the next write. No number is used twice.
    next_number: u64,
}

/// The place of a write in the queue. Dropping it takes the write out, unless its group has begun.
#[derive(Debug)]
#[must_use = "the write is taken out of the queue when this is dropped"]
pub(super) struct Place<K: Copy + Eq + Hash, M> {
    batcher: Arc<Batcher<K, M>>,
    key: K,
    number: u64,
}

/// The right to commit the groups of a table, one after another. Whoever has it must take groups
/// until there is none.
#[derive(Debug)]
pub(super) struct GroupRunner<K: Copy + Eq + Hash, M> {
    batcher: Arc<Batcher<K, M>>,
    key: K,
    has_ended: bool,
}

impl<K: Copy + Eq + Hash, M: GroupMember> Batcher<K, M> {
    /// Creates a batcher. A group has at most `max_group_bytes`, or one member.
    pub(super) fn new(max_group_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::new(Queues {
                by_table: HashMap::new(),
                next_number: 0,
            }),
            max_group_bytes,
        })
    }

    /// Queues a write to the table `key`. If no group of the table is in flight, the caller must
    /// run the groups.
    pub(super) fn join(
        self: &Arc<Self>,
        key: K,
        member: M,
    ) -> (Place<K, M>, Option<GroupRunner<K, M>>) {
        let mut queues = self.queues.lock();
        let number = queues.next_number;
        queues.next_number += 1;
        let is_idle = !queues.by_table.contains_key(&key);
        let waiting = queues.by_table.entry(key).or_default();
        waiting.push_back((number, member));
        drop(queues);
        let place = Place {
            batcher: Arc::clone(self),
            key,
            number,
        };
        let runner = is_idle.then(|| GroupRunner {
            batcher: Arc::clone(self),
            key,
            has_ended: false,
        });
        (place, runner)
    }

    /// Returns the number of writes that wait for a table's group in flight.
    #[cfg(test)]
    fn waiting(&self, key: K) -> usize {
        let queues = self.queues.lock();
        queues.by_table.get(&key).map_or(0, VecDeque::len)
    }
}

impl<K: Copy + Eq + Hash, M> Drop for Place<K, M> {
    fn drop(&mut self) {
        let mut queues = self.batcher.queues.lock();
        let Some(waiting) = queues.by_table.get_mut(&self.key) else {
            return;
        };
        let found = waiting.binary_search_by_key(&self.number, |(number, _)| *number);
        let taken = found.ok().and_then(|index| waiting.remove(index));
        // The write is dropped after the lock is released, because that may wake its caller.
        drop(queues);
        drop(taken);
    }
}

impl<K: Copy + Eq + Hash, M: GroupMember> GroupRunner<K, M> {
    /// Returns the next group, in the order of arrival. Returns `None` if no write waits. Then the
    /// next write to the table gets a new runner.
    pub(super) fn next_group(&mut self) -> Option<Vec<M>> {
        let mut queues = self.batcher.queues.lock();
        let waiting = queues.by_table.get_mut(&self.key)?;
        let mut group = Vec::new();
        let mut bytes = 0_usize;
        while let Some((_, member)) = waiting.front() {
            bytes = bytes.saturating_add(member.bytes());
            if bytes > self.batcher.max_group_bytes && !group.is_empty() {
                break;
            }
            group.extend(waiting.pop_front().map(|(_, member)| member));
        }
        if group.is_empty() {
            queues.by_table.remove(&self.key);
            self.has_ended = true;
            return None;
        }
        Some(group)
    }
}

impl<K: Copy + Eq + Hash, M> Drop for GroupRunner<K, M> {
    fn drop(&mut self) {
        if !self.has_ended {
            // The runner's task was cancelled. The waiting writes are dropped, which their callers
            // notice.
            let left = self.batcher.queues.lock().by_table.remove(&self.key);
            drop(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Write(&'static str, usize);

    impl GroupMember for Write {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    fn names(group: Option<Vec<Write>>) -> Option<Vec<&'static str>> {
        group.map(|group| group.into_iter().map(|write| write.0).collect())
    }

    #[test]
    fn a_lone_write_waits_for_nobody_and_those_that_come_meanwhile_share_a_group() {
        let batcher = Batcher::new(100);
        let (alone, runner) = batcher.join("t", Write("a", 1));
        let mut runner = runner.unwrap();
        assert_eq!(names(runner.next_group()), Some(vec!["a"]));
        let (_b, none) = batcher.join("t", Write("b", 1));
        assert!(none.is_none());
        let (_c, none) = batcher.join("t", Write("c", 1));
        assert!(none.is_none());
        // Another table has groups of its own.
        let (_other, other) = batcher.join("u", Write("d", 1));
        assert_eq!(names(other.unwrap().next_group()), Some(vec!["d"]));
        assert_eq!(batcher.waiting("t"), 2);
        assert_eq!(names(runner.next_group()), Some(vec!["b", "c"]));
        assert_eq!(names(runner.next_group()), None);
        let (_e, next_runner) = batcher.join("t", Write("e", 1));
        let mut next_runner = next_runner.unwrap();
        // What has ended touches no write that came later.
        drop((alone, runner));
        assert_eq!(names(next_runner.next_group()), Some(vec!["e"]));
    }

    #[test]
    fn a_write_that_is_cancelled_before_its_group_begins_is_taken_out() {
        let batcher = Batcher::new(100);
        let (first, runner) = batcher.join(1, Write("a", 1));
        let mut runner = runner.unwrap();
        assert_eq!(names(runner.next_group()), Some(vec!["a"]));
        let (second, _) = batcher.join(1, Write("b", 1));
        let (_third, _) = batcher.join(1, Write("c", 1));
        drop(second);
        drop(first);
        assert_eq!(names(runner.next_group()), Some(vec!["c"]));
    }

    #[test]
    fn a_group_has_a_largest_size_and_a_single_write_may_exceed_it() {
        let batcher = Batcher::new(10);
        let (_a, runner) = batcher.join(1, Write("a", 50));
        let places: Vec<_> = [("b", 6), ("c", 4), ("d", 1), ("e", 50), ("f", 1)]
            .map(|(name, bytes)| batcher.join(1, Write(name, bytes)))
            .into();
        let mut runner = runner.unwrap();
        let mut groups = Vec::new();
        while let Some(group) = names(runner.next_group()) {
            groups.push(group.join(""));
        }
        assert_eq!(groups, ["a", "bc", "d", "e", "f"]);
        drop(places);
    }

    #[test]
    fn a_runner_that_is_gone_leaves_no_write_behind() {
        let batcher = Batcher::new(10);
        let (_a, runner) = batcher.join(1, Write("a", 1));
        let (_b, _) = batcher.join(1, Write("b", 1));
        drop(runner);
        assert_eq!(batcher.waiting(1), 0);
        let (_c, runner) = batcher.join(1, Write("c", 1));
        assert_eq!(names(runner.unwrap().next_group()), Some(vec!["c"]));
    }
}
