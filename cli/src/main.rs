//! The one binary of Volary.

use std::process::ExitCode;

/// See the workspace's Cargo.toml for why it is not the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    volary_cli::run::run()
}
