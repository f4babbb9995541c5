use std::path::Path;

/// What clients send a gateway.
pub mod clients;
/// Fragments, as a gateway makes them of statements.
pub mod fragments;
/// What nodes send each other.
pub mod nodes;
/// Statements.
pub mod statements;

use crate::guard;

/// Says that seeds are to be written, and below which directory.
const DIRECTORY: &str = "VOLARY_FUZZ_WRITE_SEEDS";

/// A seed: its file's name, and the input.
pub type Seed = (String, Vec<u8>);

/// Writes the seeds of a target and ends the process, if the environment says so.
pub(crate) fn write_if_asked(target: &str, seeds: fn() -> Vec<Seed>) {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory).join(target);
    std::fs::create_dir_all(&directory).expect("a directory for seeds");
    for (name, input) in guard::on_large_stack(seeds) {
        std::fs::write(directory.join(name), input).expect("seeds can be written");
    }
    std::process::exit(0);
}

/// An input that begins with a byte that says what it is.
fn seed(name: &str, what: u8, input: impl AsRef<[u8]>) -> Seed {
    (name.to_owned(), [&[what][..], input.as_ref()].concat())
}
