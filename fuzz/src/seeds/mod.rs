use std::path::Path;

/// Makes seeds from what clients send to a gateway.
pub mod clients;
/// Makes seeds from the fragments that a gateway makes from statements.
pub mod fragments;
/// Makes seeds from what nodes send to each other.
pub mod nodes;
/// Makes seeds from the texts of statements.
pub mod statements;

use crate::large_stack;

/// Environment variable that makes a target write its seeds. Its value is the directory for them.
const DIRECTORY: &str = "VOLARY_FUZZ_WRITE_SEEDS";

/// A seed: the name of its file, and the input.
pub type Seed = (String, Vec<u8>);

/// If the environment asks for it, writes the seeds of a target and ends the process.
pub(crate) fn write_if_asked(target: &str, seeds: fn() -> Vec<Seed>) {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory).join(target);
    std::fs::create_dir_all(&directory).expect("a directory for seeds");
    for (name, input) in large_stack::run(seeds) {
        std::fs::write(directory.join(name), input).expect("seeds can be written");
    }
    std::process::exit(0);
}

/// Returns a seed whose input begins with the byte `what`.
fn seed(name: &str, what: u8, input: impl AsRef<[u8]>) -> Seed {
    (name.to_owned(), [&[what][..], input.as_ref()].concat())
}
