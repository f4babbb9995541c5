//! The list of workers that know a fragment is only a hint: a worker that was restarted, or that
//! has dropped a fragment in favour of others, asks for it.

use std::sync::Arc;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::ids::WorkerId;

/// Maximum number of fragments that are remembered. The least recently used one is forgotten first.
const MAX_FRAGMENTS: u64 = 1024;
/// Workers with this number or a larger one are sent the fragment every time. This limits the bits
/// of a fragment to 8 KiB.
const MAX_WORKERS: u64 = 1 << 16;

/// The workers that know each fragment.
#[derive(Debug)]
pub struct KnownFragments(Cache<FragmentId, Arc<FragmentHolders>>);

impl Default for KnownFragments {
    fn default() -> Self {
        Self::new()
    }
}

impl KnownFragments {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self(
            Cache::builder()
                .max_capacity(MAX_FRAGMENTS)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        )
    }

    /// Returns the workers that know a fragment.
    pub fn holders(&self, fragment: FragmentId) -> Arc<FragmentHolders> {
        self.0.get_with(fragment, Arc::default)
    }
}

/// The workers that know a fragment. Each worker has one bit, at the position of its number.
#[derive(Debug, Default)]
pub struct FragmentHolders(Mutex<Vec<u64>>);

impl FragmentHolders {
    /// Returns whether the worker knows the fragment.
    pub fn contains(&self, worker: WorkerId) -> bool {
        bit_of(worker).is_some_and(|(word, bit)| {
            let words = self.0.lock();
            words.get(word).is_some_and(|bits| bits & bit != 0)
        })
    }

    /// Notes that the worker knows the fragment.
    pub fn insert(&self, worker: WorkerId) {
        if let Some((word, bit)) = bit_of(worker) {
            let mut words = self.0.lock();
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= bit;
        }
    }

    /// Notes that the worker does not know the fragment any more.
    pub fn remove(&self, worker: WorkerId) {
        if let Some((word, bit)) = bit_of(worker)
            && let Some(bits) = self.0.lock().get_mut(word)
        {
            *bits &= !bit;
        }
    }
}

/// Returns the index of the worker's word, and the worker's bit within it.
fn bit_of(worker: WorkerId) -> Option<(usize, u64)> {
    if worker.0 >= MAX_WORKERS {
        return None;
    }
    let word = usize::try_from(worker.0 / 64).ok()?;
    Some((word, 1 << (worker.0 % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_query_learns_of_a_fragments_workers_others_know() {
        let known = KnownFragments::new();
        let (fragment, other) = (FragmentId::of(b"a"), FragmentId::of(b"b"));
        let workers = [0, 1, 63, 64, 2160, MAX_WORKERS - 1].map(WorkerId);
        for worker in workers {
            assert!(!known.holders(fragment).contains(worker));
            known.holders(fragment).insert(worker);
        }
        for worker in workers {
            assert!(known.holders(fragment).contains(worker));
            assert!(!known.holders(other).contains(worker));
        }
        known.holders(fragment).remove(WorkerId(64));
        assert!(!known.holders(fragment).contains(WorkerId(64)));
        assert!(known.holders(fragment).contains(WorkerId(63)));
        // A worker that was never noted can be removed, too.
        known.holders(other).remove(WorkerId(64));
    }

    #[test]
    fn workers_with_very_large_numbers_are_not_remembered() {
        let known = FragmentHolders::default();
        for worker in [MAX_WORKERS, u64::MAX].map(WorkerId) {
            known.insert(worker);
            assert!(!known.contains(worker));
            known.remove(worker);
        }
        assert!(known.0.lock().is_empty());
    }

    #[test]
    fn the_fragment_that_was_not_used_for_the_longest_time_is_forgotten() {
        let known = KnownFragments::new();
        let fragment = |number: u64| FragmentId::of(&number.to_le_bytes());
        let worker = WorkerId(1);
        for number in 0..=MAX_FRAGMENTS {
            known.holders(fragment(number)).insert(worker);
            known.0.run_pending_tasks();
        }
        assert!(!known.holders(fragment(0)).contains(worker));
        assert!(known.holders(fragment(MAX_FRAGMENTS)).contains(worker));
    }
}
