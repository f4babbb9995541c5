use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{sleep, timeout};

use super::programs::Programs;
use super::readiness;
use crate::logged_process::LoggedProcess;
use crate::ports;

/// Longest time to wait until all executors have joined.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two checks whether all executors have joined.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const HOST: &str = "127.0.0.1";
/// The flags for the ports of an executor: for clients that fetch results, for the scheduler, and
/// for health checks.
const EXECUTOR_PORT_FLAGS: [&str; 3] = ["--bind-port", "--bind-grpc-port", "--bind-health-port"];

/// The size and the directory of a cluster.
#[derive(Debug, Clone)]
pub struct BallistaOptions {
    /// The programs that the processes run.
    pub programs: Programs,
    /// The directory for logs, and for the data that executors keep for each other.
    pub directory: PathBuf,
    /// The number of executors, at least one.
    pub executors: usize,
    /// The number of processors that the executors share.
    pub cores: usize,
}

/// A scheduler and its executors. Dropping the cluster ends them.
#[derive(Debug)]
pub struct BallistaCluster {
    executors: Vec<LoggedProcess>,
    scheduler: LoggedProcess,
    address: String,
}

impl BallistaCluster {
    /// Starts all processes. All executors have joined when this returns. Settings that are not set
    /// here have Ballista's defaults.
    ///
    /// # Errors
    /// Returns an error if a process cannot be started or ends, or if the executors have not joined
    /// within a minute. The error contains the end of a log, which says why.
    pub async fn start(layout: &BallistaOptions) -> Result<Self> {
        std::fs::create_dir_all(&layout.directory)
            .with_context(|| format!("cannot create {}", layout.directory.display()))?;
        let ports = ports::free(1 + EXECUTOR_PORT_FLAGS.len() * layout.executors)?;
        let Some((&scheduler_port, executor_ports)) = ports.split_first() else {
            bail!("no port for Ballista's scheduler");
        };
        let scheduler = layout.start_scheduler(scheduler_port)?;
        let mut executors = Vec::with_capacity(layout.executors);
        for ports in executor_ports.chunks(EXECUTOR_PORT_FLAGS.len()) {
            executors.push(layout.start_executor(executors.len(), ports, scheduler_port)?);
        }
        let mut cluster = Self {
            executors,
            scheduler,
            address: format!("{HOST}:{scheduler_port}"),
        };
        let joined = timeout(START_TIMEOUT, cluster.await_executors()).await;
        joined.with_context(|| {
            format!(
                "Ballista's executors have not joined within {} s: {}",
                START_TIMEOUT.as_secs(),
                cluster.scheduler.log_tail()
            )
        })??;
        Ok(cluster)
    }

    /// Returns the address that clients connect to, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Checks that all processes run. Call it after a failed query, which may have failed because a
    /// process has ended.
    ///
    /// # Errors
    /// Returns an error if a process has ended. The error contains the end of its log, which says
    /// why.
    pub fn ensure_runs(&mut self) -> Result<()> {
        self.scheduler.ensure_runs()?;
        self.executors
            .iter_mut()
            .try_for_each(LoggedProcess::ensure_runs)
    }

    async fn await_executors(&mut self) -> Result<()> {
        loop {
            self.ensure_runs()?;
            // The scheduler refuses connections until it listens.
            if readiness::is_ready(&self.address).await.unwrap_or(false) {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

impl BallistaOptions {
    fn start_scheduler(&self, port: u16) -> Result<LoggedProcess> {
        let arguments = [
            format!("--bind-host={HOST}"),
            format!("--external-host={HOST}"),
            format!("--bind-port={port}"),
            format!("--min-ready-executors={}", self.executors),
            "--flight-sql".to_owned(),
        ];
        LoggedProcess::start(
            "Ballista's scheduler",
            &self.programs.scheduler,
            arguments,
            self.directory.join("scheduler.log"),
        )
    }

    /// Starts an executor. `ports` are the ports for [`EXECUTOR_PORT_FLAGS`].
    fn start_executor(
        &self,
        number: usize,
        ports: &[u16],
        scheduler_port: u16,
    ) -> Result<LoggedProcess> {
        let work_dir = self.directory.join(format!("executor-{number}"));
        std::fs::create_dir_all(&work_dir)?;
        let ports = EXECUTOR_PORT_FLAGS.iter().zip(ports);
        let mut arguments: Vec<_> = ports.map(|(flag, port)| format!("{flag}={port}")).collect();
        arguments.extend([
            format!("--bind-host={HOST}"),
            format!("--external-host={HOST}"),
            format!("--scheduler-host={HOST}"),
            format!("--scheduler-port={scheduler_port}"),
            // The executor starts at the same time as the scheduler.
            format!(
                "--scheduler-connect-timeout-seconds={}",
                START_TIMEOUT.as_secs()
            ),
            format!("--vcores={}", vcores(self.cores, self.executors)),
            format!("--work-dir={}", work_dir.display()),
        ]);
        LoggedProcess::start(
            &format!("Ballista's executor {number}"),
            &self.programs.executor,
            arguments,
            self.directory.join(format!("executor-{number}.log")),
        )
    }
}

/// Returns the number of processors that each executor may use, rounded up so that none is left
/// idle. The number is at least 1, because 0 would let each executor use all processors.
fn vcores(cores: usize, executors: usize) -> usize {
    cores.div_ceil(executors.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executors_share_the_processors_and_none_is_without() {
        assert_eq!(vcores(16, 4), 4);
        assert_eq!(vcores(6, 4), 2);
        assert_eq!(vcores(2, 4), 1);
        assert_eq!(vcores(2, 1), 2);
        assert_eq!(vcores(0, 0), 1);
    }

    #[tokio::test]
    async fn the_start_ends_with_a_process_that_ends() {
        let directory = tempfile::tempdir().unwrap();
        let layout = BallistaOptions {
            programs: Programs {
                scheduler: PathBuf::from("false"),
                executor: PathBuf::from("false"),
            },
            directory: directory.path().join("ballista"),
            executors: 1,
            cores: 1,
        };
        let error = BallistaCluster::start(&layout)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("Ballista's "), "{error}");
        assert!(error.contains(" has ended with exit status: 1"), "{error}");
    }
}
