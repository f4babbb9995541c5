//! The one binary of Volary.

use std::process::ExitCode;

use tikv_jemalloc_ctl::{epoch, stats};
use volary_node::memory::ProcessMemory;

/// See the workspace's Cargo.toml for why it is not the system's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ProcessMemory::this().ask_instead_of_the_system(memory_in_use);
    volary_cli::run::run()
}

/// Bytes of the pages in which something is allocated, without those that were freed and not yet given back.
fn memory_in_use() -> usize {
    // Figures are those of the last epoch.
    epoch::advance()
        .and_then(|_| stats::active::read())
        .unwrap_or_default()
}
