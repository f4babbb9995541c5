use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The directory in which Debian has a directory for each release.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs of an installed PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Finds the release that `pg_config` names, or else the newest of Debian's. Returns `None` if
    /// there is none.
    pub fn find() -> Option<Self> {
        configured().or_else(|| newest_in(Path::new(DEBIAN)))
    }

    /// Returns the program that creates the directory of an instance.
    pub(super) fn initdb(&self) -> PathBuf {
        self.directory.join("initdb")
    }

    /// Returns the server.
    pub(super) fn postgres(&self) -> PathBuf {
        self.directory.join("postgres")
    }

    /// Returns the release, as in `15.19`.
    ///
    /// # Errors
    /// Returns an error if the server does not run.
    pub fn release(&self) -> Result<String> {
        let asked = Command::new(self.postgres()).arg("--version").output();
        let answer = asked.with_context(|| format!("cannot run {}", self.postgres().display()))?;
        let text = String::from_utf8_lossy(&answer.stdout);
        let release = text.split_whitespace().nth(2).unwrap_or_default();
        ensure!(!release.is_empty(), "PostgreSQL does not say its release");
        Ok(release.to_owned())
    }

    /// Returns the programs of a directory if they are there. Debian's package libpq-dev has
    /// `pg_config`, but no server.
    fn in_directory(directory: PathBuf) -> Option<Self> {
        let programs = Self { directory };
        let is_there = programs.initdb().is_file() && programs.postgres().is_file();
        is_there.then_some(programs)
    }
}

fn configured() -> Option<Programs> {
    let answer = Command::new("pg_config").arg("--bindir").output().ok()?;
    let directory = String::from_utf8(answer.stdout).ok()?;
    Programs::in_directory(PathBuf::from(directory.trim()))
}

fn newest_in(directory: &Path) -> Option<Programs> {
    let releases = std::fs::read_dir(directory).ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let release: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((release, Programs::in_directory(entry.path().join("bin"))?))
    });
    let newest = releases.max_by_key(|(release, _)| *release)?;
    Some(newest.1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_release_that_has_a_server_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(newest_in(directory.path()), None);
        assert_eq!(newest_in(&directory.path().join("none")), None);
        for (release, programs) in [
            ("9", &["initdb", "postgres"][..]),
            ("15", &["initdb", "postgres"]),
            ("17", &["initdb"]),
            ("common", &["initdb", "postgres"]),
        ] {
            let bin = directory.path().join(release).join("bin");
            fs::create_dir_all(&bin).unwrap();
            for program in programs {
                fs::write(bin.join(program), "").unwrap();
            }
        }
        let found = newest_in(directory.path()).unwrap();
        assert_eq!(found.directory, directory.path().join("15").join("bin"));
    }
}
