//! DataFusion's memory pool counts what operators report. But much memory is not reported: values
//! that functions make, rows on their way to a client, and plans. The operating system ends a
//! process that needs more memory than its machine has, and all statements with it. So the memory
//! of the process, as the system reports it, is checked before more memory is taken.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::size::MemorySize;

/// The least memory that a process may have for each node beyond the limit of the node's operators.
/// If a fifth of that limit is more, it is used instead.
const MIN_UNREPORTED_BYTES: usize = 512 << 20;
/// Size up to which a value is made without checking the memory of the process, because the check
/// takes some microseconds.
const SMALL_BYTES: usize = 1 << 20;
/// Time for which a probe of the process's memory is recent enough.
const MAX_PROBE_AGE: Duration = Duration::from_millis(20);

static THIS_PROCESS: LazyLock<Arc<ProcessMemory>> = LazyLock::new(|| {
    Arc::new(ProcessMemory {
        allowed: AtomicUsize::new(0),
        reserved: AtomicUsize::new(0),
        used: AtomicUsize::new(0),
        started: Instant::now(),
        probed_at: AtomicU64::new(0),
        max_probe_age: MAX_PROBE_AGE,
        probe: Mutex::new(Box::new(resident_memory())),
    })
});

/// The memory of a process, which all nodes of the process share.
pub struct ProcessMemory {
    /// Allowed memory of all nodes together, in bytes.
    allowed: AtomicUsize,
    /// Bytes of large values that are being made and are only partly allocated.
    reserved: AtomicUsize,
    /// Memory of the process at the last probe, in bytes.
    used: AtomicUsize,
    started: Instant,
    /// Time of the last probe, in microseconds after `started`.
    probed_at: AtomicU64,
    /// Time for which `used` is recent enough.
    max_probe_age: Duration,
    probe: Mutex<Box<dyn FnMut() -> usize + Send>>,
}

impl fmt::Debug for ProcessMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessMemory")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl ProcessMemory {
    /// Returns the memory of this process.
    pub fn this() -> &'static Arc<Self> {
        &THIS_PROCESS
    }

    /// Makes later probes ask `allocator` for the memory of the process instead of the system. The
    /// system's number includes memory that was freed but not returned yet, and such memory does no
    /// harm.
    pub fn set_probe(&self, probe: impl FnMut() -> usize + Send + 'static) {
        *self.probe.lock() = Box::new(probe);
    }

    /// Adds a node whose operators may hold `limit_bytes`.
    pub(super) fn add_node(self: &Arc<Self>, limit_bytes: usize) -> Allowance {
        let bytes = limit_bytes.saturating_add(MIN_UNREPORTED_BYTES.max(limit_bytes / 5));
        self.allowed.fetch_add(bytes, Ordering::Relaxed);
        Allowance {
            process: Arc::clone(self),
            bytes,
        }
    }

    /// Returns the memory of the process now or a moment ago, in bytes.
    pub fn in_use(&self) -> usize {
        self.used()
    }

    /// Returns the memory that the nodes of the process may have together, in bytes.
    pub fn allowed(&self) -> usize {
        self.allowed.load(Ordering::Relaxed)
    }

    /// Returns the excess if the process has, or had a moment ago, more memory than its nodes may
    /// have.
    pub fn excess(&self) -> Option<Excess> {
        self.excess_with(self.used(), 0)
    }

    /// Reserves memory for a value of this many bytes that is to be made. The returned guard holds
    /// the reservation. Small values are always allowed: for them, nothing is reserved and `None`
    /// is returned.
    ///
    /// # Errors
    /// `ResourcesExhausted` if the process would have more memory than its nodes may have. In the
    /// error, `what` names the value that is not made.
    pub fn try_reserve(
        &self,
        bytes: usize,
        what: impl FnOnce() -> String,
    ) -> datafusion::error::Result<Option<ProcessReservation<'_>>> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let reservation = self.try_reserve_large(bytes).map_err(|excess| {
            let (what, size) = (what(), MemorySize::from(bytes));
            DataFusionError::ResourcesExhausted(format!("{what} would take {size} more: {excess}"))
        });
        reservation.map(Some)
    }

    fn try_reserve_large(&self, bytes: usize) -> Result<ProcessReservation<'_>, Excess> {
        let reserved_before = self.reserved.fetch_add(bytes, Ordering::Relaxed);
        // The guard exists before the check, so the bytes are given back even if the value is
        // refused.
        let reservation = ProcessReservation {
            process: self,
            bytes,
        };
        match self.excess_with(self.probe_now(), reserved_before.saturating_add(bytes)) {
            Some(excess) => Err(excess),
            None => Ok(reservation),
        }
    }

    /// Returns the excess if the process would exceed its limit with `more` bytes. A process
    /// without nodes has no limit.
    fn excess_with(&self, used: usize, more: usize) -> Option<Excess> {
        let allowed = self.allowed();
        let is_too_much = allowed > 0 && used.saturating_add(more) > allowed;
        is_too_much.then_some(Excess { used, allowed })
    }

    /// Returns the memory of the process now or a moment ago.
    fn used(&self) -> usize {
        let now = self.started.elapsed();
        let probed_at = self.probed_at.load(Ordering::Relaxed);
        let is_old = now.saturating_sub(Duration::from_micros(probed_at)) >= self.max_probe_age;
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let claim = |now| {
            let claimed = self.probed_at.compare_exchange(
                probed_at,
                now,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            claimed.is_ok()
        };
        // One thread asks, and the others use the previous answer.
        if is_old && claim(now) {
            return self.probe_now();
        }
        self.used.load(Ordering::Relaxed)
    }

    fn probe_now(&self) -> usize {
        let used = (self.probe.lock())();
        self.used.store(used, Ordering::Relaxed);
        used
    }
}

/// The memory that a node adds to what its process may use. Dropping this value subtracts it again.
#[derive(Debug)]
pub(super) struct Allowance {
    process: Arc<ProcessMemory>,
    bytes: usize,
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.process
            .allowed
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The reserved memory of a large value that is being made.
#[derive(Debug)]
pub struct ProcessReservation<'a> {
    process: &'a ProcessMemory,
    bytes: usize,
}

impl Drop for ProcessReservation<'_> {
    fn drop(&mut self) {
        let bytes = self.bytes;
        self.process.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The excess of a process that has, or would have, more memory than it may.
#[derive(Debug, Clone, Copy)]
pub struct Excess {
    /// Memory that the process has, in bytes.
    pub used: usize,
    /// Memory that the process may have, in bytes.
    pub allowed: usize,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the node's process uses {} of memory, and may use at most {}, which follows from memory.limit; retry when fewer queries run",
            MemorySize::from(self.used),
            MemorySize::from(self.allowed)
        )
    }
}

/// Returns a function that asks the system for the memory of this process. It returns 0 if the
/// system does not report it.
fn resident_memory() -> impl FnMut() -> usize + Send {
    let mut system = System::new();
    let pid = Pid::from_u32(std::process::id());
    move || {
        // A process may have thousands of threads, and listing them takes milliseconds.
        let only_memory = ProcessRefreshKind::nothing().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, only_memory);
        let process = system.process(pid);
        process.map_or(0, |process| {
            usize::try_from(process.memory()).unwrap_or(usize::MAX)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Creates a process, and a function that sets the memory that it reports.
    pub(in crate::memory) fn process() -> (Arc<ProcessMemory>, impl Fn(usize)) {
        let used = Arc::new(AtomicUsize::new(0));
        let said = Arc::clone(&used);
        let process = ProcessMemory {
            allowed: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            started: Instant::now(),
            probed_at: AtomicU64::new(0),
            max_probe_age: Duration::ZERO,
            probe: Mutex::new(Box::new(move || said.load(Ordering::Relaxed))),
        };
        let set_used = move |bytes| used.store(bytes, Ordering::Relaxed);
        (Arc::new(process), set_used)
    }

    #[test]
    fn nodes_of_one_process_share_its_memory() {
        let (process, set_used) = process();
        set_used(600 * MIB);
        assert!(process.try_reserve_large(1).is_ok());
        let _first = process.add_node(10 * MIB);
        let excess = process.try_reserve_large(1).unwrap_err();
        assert_eq!(excess.allowed, 522 * MIB);
        let said = excess.to_string();
        assert!(
            said.contains("uses 600.0 MiB of memory, and may use at most 522.0 MiB"),
            "{said}"
        );
        let second = process.add_node(10_000 * MIB);
        assert_eq!(process.allowed.load(Ordering::Relaxed), 12_522 * MIB);
        assert!(process.try_reserve_large(1).is_ok());
        assert!(process.excess().is_none());
        drop(second);
        assert!(process.try_reserve_large(1).is_err());
        assert!(process.excess().is_some());
    }

    #[test]
    fn what_is_being_made_counts_before_it_is_there() {
        let (process, set_used) = process();
        let _node = process.add_node(100 * MIB);
        set_used(12 * MIB);
        let first = process.try_reserve_large(300 * MIB).unwrap();
        let second = process.try_reserve_large(300 * MIB).unwrap();
        assert!(process.try_reserve_large(MIB).is_err());
        drop(first);
        let _third = process.try_reserve_large(300 * MIB).unwrap();
        drop(second);
        assert!(process.try_reserve_large(301 * MIB).is_err());
        assert_eq!(process.reserved.load(Ordering::Relaxed), 300 * MIB);
    }

    #[test]
    fn the_system_is_not_asked_all_the_time() {
        let (mut process, set_used) = process();
        Arc::get_mut(&mut process).unwrap().max_probe_age = Duration::MAX;
        let _node = process.add_node(0);
        assert!(process.excess().is_none());
        set_used(1 << 40);
        assert!(process.excess().is_none());
        // Making a large value asks the system.
        process.try_reserve_large(MIB).unwrap_err();
        assert!(process.excess().is_some());
    }

    #[test]
    fn the_system_says_what_this_process_has() {
        let mut probe = resident_memory();
        let held = std::hint::black_box(vec![1_u8; 256 * MIB]);
        let with_it = probe();
        assert!(with_it > 256 * MIB, "{with_it}");
        drop(held);
    }
}
