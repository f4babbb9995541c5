use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

use super::directory;
use super::programs::Programs;
use crate::logged_process::LoggedProcess;
use crate::ports;

/// Debian's user for PostgreSQL. Root runs all programs as this user.
const USER: &str = "postgres";
/// The settings that are not left to the defaults. The first two are the defaults, too, and are
/// named because the comparison depends on them.
const SETTINGS: [&str; 3] = ["fsync=on", "synchronous_commit=on", "max_connections=300"];
/// Longest time to wait until the server answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two attempts to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An instance of PostgreSQL on loopback. Its user is `postgres`, without a password. Dropping it
/// ends it and deletes its data.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    /// The server process. It is before the directory, so that it ends first.
    process: LoggedProcess,
    _directory: TempDir,
}

impl PostgresServer {
    /// Starts an instance with its data on the file system of the directory `near`. It answers when
    /// this returns.
    ///
    /// # Errors
    /// Returns an error if the instance cannot be created, or does not answer. Its log says why.
    pub async fn start(programs: &Programs, near: &Path) -> Result<Self> {
        let is_root = fs::metadata("/proc/self")?.uid() == 0;
        let directory = directory::create(near, is_root)?;
        if is_root {
            let owner = format!("{USER}:");
            run(Command::new("chown").arg(owner).arg(directory.path()))?;
        }
        let data = directory.path().join("data");
        run(as_user(is_root, &programs.initdb())
            .arg("--pgdata")
            .arg(&data)
            .arg(format!("--username={USER}"))
            .args(["--auth=trust", "--encoding=UTF8", "--no-locale"]))?;
        let [port] = ports::free(1)?[..] else {
            bail!("one port was asked for");
        };
        let mut server = as_user(is_root, &programs.postgres());
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        // It listens on loopback only, and on no socket in the file system.
        server.args(["-h", "127.0.0.1", "-k", ""]);
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let log = directory.path().join("log");
        let program = Path::new(server.get_program());
        let process = LoggedProcess::start("PostgreSQL", program, server.get_args(), log)?;
        let mut started = Self {
            port,
            process,
            _directory: directory,
        };
        let answers = timeout(START_TIMEOUT, started.await_answer()).await;
        answers.with_context(|| {
            format!(
                "PostgreSQL does not answer within {} s: {}",
                START_TIMEOUT.as_secs(),
                started.process.log_tail()
            )
        })??;
        Ok(started)
    }

    /// Returns the address that clients connect to, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the id of the first process, whose children serve the connections.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Returns the errors of the connection.
    pub async fn connect(&self) -> Result<Client> {
        let port = self.port;
        let parameters = format!("host=127.0.0.1 port={port} user={USER} dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
        // The task ends when the client is dropped. The client's calls report its errors.
        tokio::spawn(connection);
        Ok(client)
    }

    async fn await_answer(&mut self) -> Result<()> {
        while self.connect().await.is_err() {
            self.process.ensure_runs()?;
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// Returns a command that runs the program, as [`USER`] if this process is root.
fn as_user(is_root: bool, program: &Path) -> Command {
    if !is_root {
        return Command::new(program);
    }
    // The working directory of this process may be closed to the other user.
    let mut command = Command::new("env");
    command
        .args(["--chdir=/", "setpriv"])
        .args([&format!("--reuid={USER}"), &format!("--regid={USER}")])
        .arg("--init-groups")
        .arg(program);
    command
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} has failed with {}: {said}",
        output.status
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_instance_answers_and_keeps_its_promise_to_sync() {
        let Some(programs) = Programs::find() else {
            eprintln!("PostgreSQL is not installed");
            return;
        };
        let near = tempfile::tempdir().unwrap();
        let server = PostgresServer::start(&programs, near.path()).await.unwrap();
        let client = server.connect().await.unwrap();
        for (setting, value) in [("fsync", "on"), ("synchronous_commit", "on")] {
            let shown = client.query_one(&format!("SHOW {setting}"), &[]).await;
            assert_eq!(shown.unwrap().get::<_, String>(0), value);
        }
        let release = programs.release().unwrap();
        assert!(
            release.starts_with(|c: char| c.is_ascii_digit()),
            "{release}"
        );
    }
}
