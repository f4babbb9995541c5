use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::panic::PanicHookInfo;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::large_stack;
use crate::seeds::{Seed, write_if_asked};

/// Maximum size of a single allocation, in bytes. libFuzzer's `-malloc_limit_mb` needs a sanitizer.
const MAX_ALLOCATION_BYTES: usize = 512 << 20;

/// Maximum processor time for one input, or for one call of an input with several calls.
/// libFuzzer's own `-timeout` uses a signal, which works only if the fuzzing thread receives it.
const MAX_PROCESSOR_TIME: Duration = Duration::from_secs(20);

/// Maximum elapsed time for one input, or for one call of it. It also ends an input that only
/// waits.
const MAX_ELAPSED_TIME: Duration = Duration::from_secs(300);

/// Number of time limits that were started so far.
static TIME_LIMITS_STARTED: AtomicUsize = AtomicUsize::new(0);

/// Number of panics in dependencies so far.
static DEPENDENCY_PANICS: AtomicUsize = AtomicUsize::new(0);

/// The source positions of the panics in dependencies so far.
static PANIC_LOCATIONS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Prepares the process. Call it once, before the first input. `target` is the name of the target,
/// and `seeds` makes the inputs that it starts with.
///
/// A panic in our own code ends the run. A panic in a dependency (arrow, DataFusion, sqlparser)
/// ends it unless the node contains the panic as a failed call. Such a panic is printed once for
/// each source position. It is also counted, so that the target can check whether the node still
/// serves.
pub fn start(target: &str, seeds: fn() -> Vec<Seed>) {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match dependency_location(panic) {
            Some(place) => record_panic(place, panic),
            None => default_hook(panic),
        };
    }));
    std::thread::spawn(watch);
    write_if_asked(target, seeds);
}

/// Returns the number of panics in dependencies so far.
pub(crate) fn dependency_panics() -> usize {
    DEPENDENCY_PANICS.load(Ordering::SeqCst)
}

/// Starts the time limits of an input or of its next call.
pub(crate) fn start_time_limits() {
    TIME_LIMITS_STARTED.fetch_add(1, Ordering::SeqCst);
}

fn watch() {
    let mut last = 0;
    let mut since = (Instant::now(), processor_time());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let current = TIME_LIMITS_STARTED.load(Ordering::SeqCst);
        if current != last || last == 0 {
            last = current;
            since = (Instant::now(), processor_time());
        } else if processor_time() - since.1 > MAX_PROCESSOR_TIME
            || since.0.elapsed() > MAX_ELAPSED_TIME
        {
            eprintln!("an input takes too long");
            std::process::abort();
        }
    }
}

/// Returns the processor time of this process from `/proc` (proc(5): utime and stime, in hundredths
/// of a second).
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name comes before these fields. It may contain spaces, and ends at the last
    // parenthesis.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let fields = fields.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Runs the work for one input on a stack as large as the stacks of a node's threads.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    start_time_limits();
    large_stack::run(work)
}

/// Returns the position of a panic if it is in a dependency. The paths of crates from registries
/// and of the standard library are recognised. Every other panic is in our own code.
fn dependency_location(panic: &PanicHookInfo<'_>) -> Option<String> {
    let location = panic.location()?;
    let file = location.file();
    let file = match file.split_once("/registry/src/") {
        Some((_, file)) => file,
        None => file.strip_prefix("/rustc/")?,
    };
    Some(format!("{file}:{}", location.line()))
}

fn record_panic(place: String, panic: &PanicHookInfo<'_>) {
    DEPENDENCY_PANICS.fetch_add(1, Ordering::SeqCst);
    let mut places = PANIC_LOCATIONS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if places.insert(place) {
        eprintln!("panic in a dependency: {panic}");
    }
}

/// The system's allocator with a limit. An allocation that no message can justify ends the process.
struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

fn check_allocation(bytes: usize) {
    if bytes > MAX_ALLOCATION_BYTES {
        eprintln!("an allocation of {bytes} bytes");
        std::process::abort();
    }
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check_allocation(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check_allocation(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        check_allocation(bytes);
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
