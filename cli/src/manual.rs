use std::fs;
use std::path::Path;

use clap::CommandFactory;
use volary_flight_proto::{Error, Result};

use crate::args::Args;

/// Writes a page for `volary` and for each of its commands: `volary.1`, `volary-gateway.1`,
/// `volary-gateway-recover.1`.
///
/// # Errors
/// Returns the errors of the file system.
pub fn run(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Args::command(), dir))
        .map_err(|source| {
            let what = format!("cannot write the manual to {}", dir.display());
            Error::io(what, source)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_flags() {
        let dir = tempfile::tempdir().unwrap();
        run(&dir.path().join("man1")).unwrap();
        let page = |name: &str| fs::read_to_string(dir.path().join("man1").join(name)).unwrap();
        assert!(page("volary.1").contains("volary\\-gateway(1)"));
        for (file, said) in [
            ("volary-worker.1", "\\-\\-advertise"),
            ("volary-gateway-recover.1", "\\-\\-data\\-dir"),
            ("volary-doctor-worker.1", "\\-\\-offline"),
            ("volary-secret-new.1", "secret"),
        ] {
            assert!(page(file).contains(said), "{file}: {}", page(file));
        }
    }
}
