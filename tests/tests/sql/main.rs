//! Runs the files of `tests/sql` on clusters of 1, 3 and 7 workers, through Flight SQL. Each file
//! on each cluster is one test: `aggregates::7_workers`. `tests/sql/README.md` describes the files.
//!
//! One command runs one file: `cargo test --release -p volary-tests --test sql -- aggregates`.

/// Implements the client that the files are run with: a session of Flight SQL.
mod client;
/// Runs one file on a cluster.
mod file;
/// Converts values to their text form in the files.
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use sqllogictest::harness::{Arguments, Trial, run as run_trials};

use self::file::SharedCluster;

/// Numbers of workers of the clusters.
const WORKERS: [usize; 3] = [1, 3, 7];
/// Number of workers of the only cluster that runs when expected rows are recorded.
const RECORDING_WORKERS: usize = 3;
/// If this environment variable is set, the cluster's answers are written into the files.
const RECORD: &str = "VOLARY_RECORD_SQL";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let record = std::env::var_os(RECORD).is_some();
    let files = match files() {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{}: {error}", directory().display());
            return ExitCode::FAILURE;
        }
    };
    let workers: &[usize] = if record {
        &[RECORDING_WORKERS]
    } else {
        &WORKERS
    };
    let clusters: Vec<_> = workers
        .iter()
        .map(|workers| Arc::new(SharedCluster::new(*workers)))
        .collect();
    let mut trials = Vec::new();
    for file in files {
        for cluster in &clusters {
            let (file, cluster) = (file.clone(), Arc::clone(cluster));
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            trials.push(Trial::test(
                format!("{stem}::{}", cluster.label()),
                move || Ok(cluster.run_file(&file, record)?),
            ));
        }
    }
    let conclusion = run_trials(&arguments, trials);
    for cluster in clusters {
        cluster.stop();
    }
    conclusion.exit_code()
}

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/sql"))
}

/// Returns the files in `tests/sql`. Files in directories below it are for `include` only.
fn files() -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
