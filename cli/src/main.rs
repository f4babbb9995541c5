//! The one binary of Volary.

use std::process::ExitCode;

fn main() -> ExitCode {
    volary_cli::run::run()
}
