use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;
use volary_flight_proto::Result;

use crate::args::Args;
use crate::terminal;

/// Prints the completions of all commands and flags for a shell.
///
/// # Errors
/// Returns the error of writing to standard output.
pub fn run(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "volary", &mut script);
    std::io::stdout()
        .lock()
        .write_all(&script)
        .map_err(terminal::output_failed)
}
