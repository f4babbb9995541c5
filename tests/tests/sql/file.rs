use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use arrow::array::AsArray;
use sqllogictest::{
    Normalizer, Record, Runner, default_normalizer, parse_file, strict_column_validator,
};
use volary_cli::LocalOptions;
use volary_tests::cluster::{TestCluster, data_directory, run};

use super::client::Session;

/// Statements that list what a file has created, each with the words around the name in DROP.
const LISTINGS: [(&str, &str, &str); 4] = [
    (
        "SELECT name FROM system.schemas WHERE name <> 'public'",
        "SCHEMA",
        " CASCADE",
    ),
    (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'VIEW'",
        "VIEW",
        "",
    ),
    (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type <> 'VIEW'",
        "TABLE",
        "",
    ),
    ("SELECT name FROM system.saved_queries", "QUERY", ""),
];

/// A cluster that runs the files one after the other. It starts with the first file.
pub(super) struct SharedCluster {
    workers: usize,
    cluster: Mutex<Option<TestCluster>>,
}

impl SharedCluster {
    /// Creates a cluster that has not started yet.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers,
            cluster: Mutex::new(None),
        }
    }

    /// Returns the label for `onlyif` and `skipif`, such as `3_workers`. It is also the name of the
    /// test within its file.
    pub(super) fn label(&self) -> String {
        match self.workers {
            1 => "1_worker".to_owned(),
            workers => format!("{workers}_workers"),
        }
    }

    /// Runs a file. If `record` is set, writes the cluster's answers into the file.
    ///
    /// # Errors
    /// Returns the records with unexpected answers, or else what the file has not dropped at its
    /// end.
    pub(super) fn run_file(&self, file: &Path, record: bool) -> Result<(), String> {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        run(self.run_on(&mut cluster, file, record)).map_err(|error| format!("{error:#}"))
    }

    async fn run_on(
        &self,
        cluster: &mut Option<TestCluster>,
        file: &Path,
        record: bool,
    ) -> anyhow::Result<()> {
        if cluster.is_none() {
            // The largest cluster shows that calls over connections have the same rows.
            let calls = |options: &mut LocalOptions| options.in_process_calls = self.workers < 7;
            *cluster = Some(TestCluster::start_with(self.workers, calls).await?);
        }
        let cluster = cluster.as_mut().context("the cluster has not started")?;
        let ran = self.run_records(cluster, file, record).await;
        // What is left is dropped even if the file has failed, so that the next file can run.
        let leftovers = drop_everything(cluster).await;
        ran?;
        match leftovers?.as_slice() {
            [] => Ok(()),
            left => bail!("the file does not drop {}", left.join(", ")),
        }
    }

    /// Stops the nodes.
    pub(super) fn stop(&self) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = cluster.take() {
            run(cluster.stop());
        }
    }

    async fn run_records(
        &self,
        cluster: &TestCluster,
        file: &Path,
        record: bool,
    ) -> anyhow::Result<()> {
        let uri = cluster.nodes().uri();
        // Drivers describe each statement before they run it. On one of the clusters, the session
        // does so, too.
        let describes = self.workers == 3;
        let mut runner = Runner::new(|| Session::open(&uri, describes));
        runner.with_validator(same_rows);
        runner.with_column_validator(strict_column_validator);
        runner.add_label(&self.label());
        runner.set_var("DATA".to_owned(), data_directory().display().to_string());
        if record {
            let recorded = runner.update_test_file(
                file,
                " ",
                same_rows,
                default_normalizer,
                strict_column_validator,
            );
            return recorded.await.map_err(|error| anyhow!("{error}"));
        }
        let mut failures = Vec::new();
        for record in parse_file(file)? {
            if matches!(record, Record::Halt { .. }) {
                break;
            }
            if let Err(error) = runner.run_async(record).await {
                failures.push(error.to_string());
            }
        }
        match failures.as_slice() {
            [] => Ok(()),
            failures => bail!("{} failed\n\n{}", failures.len(), failures.join("\n")),
        }
    }
}

/// Returns whether the rows are exactly the expected lines. White space is not normalized, because
/// it matters within quoted values.
fn same_rows(_: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    let actual = actual.iter().map(|row| row.join(" "));
    actual.eq(expected.iter().map(String::as_str))
}

/// Drops all schemas, views, tables and saved queries, and returns their names.
async fn drop_everything(cluster: &mut TestCluster) -> anyhow::Result<Vec<String>> {
    let mut dropped = Vec::new();
    for (listing, kind, how) in LISTINGS {
        let rows = cluster.sql(listing).await?;
        for name in rows.column(0).as_string::<i32>().iter().flatten() {
            let thing = format!("{kind} \"{name}\"");
            cluster.sql(&format!("DROP {thing}{how}")).await?;
            dropped.push(thing);
        }
    }
    Ok(dropped)
}
