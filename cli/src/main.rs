//! The `volary` binary, the only binary of Volary.

use std::process::ExitCode;

use tikv_jemalloc_ctl::{epoch, stats};
use volary_node::memory::ProcessMemory;

/// jemalloc takes the place of the system's allocator. The workspace's Cargo.toml says why.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ProcessMemory::this().set_probe(memory_in_use);
    volary_cli::run::run()
}

/// Returns the size in bytes of the pages that hold allocations. Pages that were freed and not yet
/// returned to the system do not count.
fn memory_in_use() -> usize {
    // jemalloc updates its figures only when the epoch advances.
    epoch::advance()
        .and_then(|_| stats::active::read())
        .unwrap_or_default()
}
