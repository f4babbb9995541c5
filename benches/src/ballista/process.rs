//! One of Ballista's processes, from its start to its end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Ballista's programs do not look at their standard input, so a shell sees to it that they end with it: also when the process that started
/// them is killed, and nothing of it is dropped. The shell becomes the program, whose process id and end are therefore those of the child;
/// what waits for the end of the input runs beside it.
const ENDS_WITH_ITS_INPUT: &str =
    r#"exec 3<&0; { read -r line <&3; kill -KILL $$ 2>/dev/null; } & exec "$@" 3<&- </dev/null"#;

/// Lines of a log that an error shows: the log itself goes away.
const LINES_SHOWN: usize = 20;

/// A process. Dropping it kills it: what it has written is of no use to anybody.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    /// With its standard input, to which nothing is ever written.
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it. `name` is for errors; all that it prints goes to the file `log`.
    ///
    /// # Errors
    /// Those of the operating system. That there is no such program shows when the process [runs](Self::ensure_runs) no more.
    pub(super) fn start(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: PathBuf,
    ) -> Result<Self> {
        let printed =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new("sh")
            .args(["-c", ENDS_WITH_ITS_INPUT, "sh"])
            .arg(program)
            .args(arguments)
            // How much they log is a setting as all others: the programs' own.
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(printed.try_clone()?)
            .stderr(printed)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// If it has ended: the end of its log says why.
    pub(super) fn ensure_runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} has ended with {status}: {}", self.name, self.log_end());
        }
        Ok(())
    }

    /// The last lines of its log.
    pub(super) fn log_end(&self) -> String {
        match fs::read(&self.log) {
            Ok(log) => last_lines(&String::from_utf8_lossy(&log), LINES_SHOWN),
            Err(error) => format!("its log cannot be read: {error}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; and nobody is left to be told.
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
        let mut process = Process::start("one", Path::new("sleep"), ["1000"], log).unwrap();
        process.ensure_runs().unwrap();
        // As the operating system closes it when the process that started it is killed. Waiting would close it, too, but kill nothing.
        drop(process.child.stdin.take());
        let status = process.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn the_end_of_its_log_says_why_a_process_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = ["-c", "echo listening; echo 'no more memory' >&2; exit 3"];
        let mut process = Process::start("one", Path::new("sh"), script, log).unwrap();
        // Waiting would close its input, and so end it.
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
