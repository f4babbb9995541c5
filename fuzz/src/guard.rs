use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::panic::PanicHookInfo;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::seeds::{Seed, write_if_asked};

/// The largest single allocation. libFuzzer's `-malloc_limit_mb` needs a sanitizer.
const MOST_BYTES: usize = 512 << 20;

/// As the nodes' own threads have it.
const STACK_BYTES: usize = 16 << 20;

/// The most processor time that one input takes. libFuzzer's `-timeout` is a signal, which it hears only if the fuzzing thread is the one that gets it.
const MOST_TIME: Duration = Duration::from_secs(20);

/// And the most time by the clock, for one that only waits.
const MOST_PATIENCE: Duration = Duration::from_secs(300);

/// Inputs so far that may take long.
static INPUTS: AtomicUsize = AtomicUsize::new(0);

/// Panics of dependencies so far.
static CONTAINED: AtomicUsize = AtomicUsize::new(0);

/// Where they were.
static PLACES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// To be called once, before the first input. `target`: its name; `seeds`: what it begins with.
///
/// A panic in our own code ends the run. One in a dependency (arrow, DataFusion, sqlparser) ends it unless the node contains it, as
/// a failed call: it is told here once for each place, and counted, so that the target can ask whether the node still serves.
pub fn start(target: &str, seeds: fn() -> Vec<Seed>) {
    let ends_the_run = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match place_in_dependency(panic) {
            Some(place) => note(place, panic),
            None => ends_the_run(panic),
        };
    }));
    std::thread::spawn(watch);
    write_if_asked(target, seeds);
}

/// So many panics of dependencies were contained so far.
pub fn contained() -> usize {
    CONTAINED.load(Ordering::SeqCst)
}

/// Something begins that must end in time.
pub(crate) fn begins() {
    INPUTS.fetch_add(1, Ordering::SeqCst);
}

fn watch() {
    let mut input = 0;
    let mut since = (Instant::now(), time_used());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let current = INPUTS.load(Ordering::SeqCst);
        if current != input || input == 0 {
            input = current;
            since = (Instant::now(), time_used());
        } else if time_used() - since.1 > MOST_TIME || since.0.elapsed() > MOST_PATIENCE {
            eprintln!("an input takes too long");
            std::process::abort();
        }
    }
}

/// Processor time of this process, from `/proc` (proc(5): utime and stime, in hundredths of a second).
fn time_used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before them may have spaces, and ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let fields = fields.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Does `work` on a stack as large as those of a node's threads.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    begins();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, work).expect("there are threads");
        running
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Crates of registries and the standard library say where they are; whatever else panics is ours.
fn place_in_dependency(panic: &PanicHookInfo<'_>) -> Option<String> {
    let location = panic.location()?;
    let file = location.file();
    let file = match file.split_once("/registry/src/") {
        Some((_, file)) => file,
        None => file.strip_prefix("/rustc/")?,
    };
    Some(format!("{file}:{}", location.line()))
}

fn note(place: String, panic: &PanicHookInfo<'_>) {
    CONTAINED.fetch_add(1, Ordering::SeqCst);
    let mut places = PLACES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if places.insert(place) {
        eprintln!("panic in a dependency: {panic}");
    }
}

/// The system's allocator, which refuses what no message can justify.
struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

fn check(bytes: usize) {
    if bytes > MOST_BYTES {
        eprintln!("an allocation of {bytes} bytes");
        std::process::abort();
    }
}

// SAFETY: all is the system's allocator's.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        check(bytes);
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
