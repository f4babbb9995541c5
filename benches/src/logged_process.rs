use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A shell script that runs a program and kills it at the end of the script's standard input.
/// Programs of others do not read their input, so without the script they would outlive a parent
/// process that is killed. The shell replaces itself with the program (`exec`), so that the process
/// id and the exit status of the child are those of the program. A background process waits for the
/// end of the input.
const KILL_AT_END_OF_INPUT: &str =
    r#"exec 3<&0; { read -r line <&3; kill -KILL $$ 2>/dev/null; } & exec "$@" 3<&- </dev/null"#;

/// Number of lines of the log that an error shows. The log itself is deleted.
const LINES_SHOWN: usize = 20;

/// A process of another project. Dropping it kills the process, because nobody needs what it has
/// written.
#[derive(Debug)]
pub(crate) struct LoggedProcess {
    name: String,
    /// The child process. It holds the standard input, to which nothing is ever written.
    child: Child,
    log: PathBuf,
}

impl LoggedProcess {
    /// Starts the process. `name` is its name in errors. All its output goes to the file `log`.
    ///
    /// # Errors
    /// Returns the errors of the operating system. A missing program is not an error here:
    /// [`Self::ensure_runs`] reports that the process has ended.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: PathBuf,
    ) -> Result<Self> {
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new("sh")
            .args(["-c", KILL_AT_END_OF_INPUT, "sh"])
            .arg(program)
            .args(arguments)
            // The level of the log is left to the programs' defaults, as all other settings are.
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Checks that the process runs.
    ///
    /// # Errors
    /// Returns an error if the process has ended. The error contains the end of its log, which says
    /// why.
    pub(crate) fn ensure_runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} has ended with {status}: {}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Returns the last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        match fs::read(&self.log) {
            Ok(log) => last_lines(&String::from_utf8_lossy(&log), LINES_SHOWN),
            Err(error) => format!("its log cannot be read: {error}"),
        }
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        // The process may have ended already. Errors are ignored, because nobody could handle them
        // here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let skipped = lines.len().saturating_sub(count);
    lines[skipped..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_process_ends_with_its_input() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut process = LoggedProcess::start("one", Path::new("sleep"), ["1000"], log).unwrap();
        process.ensure_runs().unwrap();
        // When a parent process is killed, the operating system closes the input in the same way.
        // Neither this nor `wait` sends a signal, so the signal comes from the script.
        drop(process.child.stdin.take());
        let status = process.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn the_end_of_its_log_says_why_a_process_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = ["-c", "echo listening; echo 'no more memory' >&2; exit 3"];
        let mut process = LoggedProcess::start("one", Path::new("sh"), script, log).unwrap();
        // `wait` would close the input, and the script would then kill the process.
        let error = loop {
            match process.ensure_runs() {
                Ok(()) => std::thread::yield_now(),
                Err(error) => break error.to_string(),
            }
        };
        let said = "one has ended with exit status: 3: listening\nno more memory";
        assert_eq!(error, said);
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
