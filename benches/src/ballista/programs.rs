use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The release that Volary is compared with. `make ballista` installs this release.
const RELEASE: &str = "55.0.0";

/// The paths of Ballista's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub(super) scheduler: PathBuf,
    pub(super) executor: PathBuf,
}

/// The error of a program that is not installed. Only the comparison with Ballista needs the
/// programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingProgram {
    program: PathBuf,
}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no {}; `make ballista` installs it",
            self.program.display()
        )
    }
}

impl Error for MissingProgram {}

impl Programs {
    /// Finds the programs in a directory.
    ///
    /// # Errors
    /// Returns [`MissingProgram`] if a program does not exist, and another error if a program does
    /// not run or has another release.
    pub fn find(directory: &Path) -> Result<Self> {
        let programs = Self {
            scheduler: directory.join("ballista-scheduler"),
            executor: directory.join("ballista-executor"),
        };
        let both = [&programs.scheduler, &programs.executor];
        if let Some(program) = both.into_iter().find(|program| !program.is_file()) {
            let program = program.clone();
            return Err(MissingProgram { program }.into());
        }
        for program in both {
            check_release(program)?;
        }
        Ok(programs)
    }
}

/// Checks the release of a program, because the description of the comparison names the release.
fn check_release(program: &Path) -> Result<()> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if release(&printed) != Some(RELEASE) {
        bail!(
            "{} is not release {RELEASE}; its version is {:?}; `make ballista` installs the right release",
            program.display(),
            printed.trim()
        );
    }
    Ok(())
}

/// Returns the release in a text such as `ballista-scheduler 55.0.0`.
fn release(printed: &str) -> Option<&str> {
    let (_, release) = printed.trim().split_once(' ')?;
    Some(release)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_release_is_what_comes_after_the_name() {
        assert_eq!(release("ballista-scheduler 55.0.0\n"), Some("55.0.0"));
        let candidate = release("ballista-executor 55.0.0-rc1\n");
        assert_eq!(candidate, Some("55.0.0-rc1"));
        assert_eq!(release(""), None);
    }

    #[test]
    fn programs_that_are_not_there_or_others_are_told_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let install_shell_as = |name: &str| symlink("/bin/sh", directory.path().join(name));
        install_shell_as("ballista-scheduler").unwrap();
        let error = Programs::find(directory.path()).unwrap_err();
        assert!(error.is::<MissingProgram>(), "{error:#}");
        let text = error.to_string();
        assert!(text.starts_with("there is no /"), "{text}");
        let advice = "/ballista-executor; `make ballista` installs it";
        assert!(text.ends_with(advice), "{text}");
        install_shell_as("ballista-executor").unwrap();
        let error = Programs::find(directory.path()).unwrap_err();
        assert!(!error.is::<MissingProgram>(), "{error:#}");
        let text = error.to_string();
        assert!(text.contains("is not release 55.0.0"), "{text}");
    }
}
