//! The nodes of a cluster run on free ports, in a directory that is deleted with the cluster.

use std::fs::File;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;
use volary_cli::client::Client;
use volary_cli::settings::Settings;
use volary_cli::{LocalCluster, LocalOptions};
use volary_exec::text_casts::cast_column;
use volary_exec::uuids::UUID;
use volary_flight_proto::{Error, ErrorCode};
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;

use crate::reference::{DataFusionReference, difference};

/// Memory of each cluster. It is small, because many clusters run at the same time.
const MEMORY: MemorySize = MemorySize::Bytes(1 << 30);
/// Timeout of each statement. A statement that hangs then fails, and the error contains its text.
/// No statement takes more than a few seconds, even in an unoptimised build.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of target partitions of a gateway. It does not depend on the machine, so that plans are
/// the same everywhere.
const GATEWAY_PARTITIONS: usize = 4;
/// Number of target partitions of each worker. It is above 1, so that fragments have several
/// partitions.
const WORKER_PARTITIONS: usize = 3;

/// Runs a test within the runtimes of its clusters. Call it outside of any other runtime.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    static RUNTIMES: OnceLock<OwnedRuntimes> = OnceLock::new();
    let runtimes = RUNTIMES.get_or_init(|| match OwnedRuntimes::start(None) {
        Ok(runtimes) => runtimes,
        Err(error) => panic!("cannot start the runtimes: {error}"),
    });
    let handles = runtimes.handles().clone();
    HANDLES.get_or_init(|| handles.clone());
    handles.io().block_on(test)
}

static HANDLES: OnceLock<volary_node::Runtimes> = OnceLock::new();

/// A table of a test: its name, the options of CREATE TABLE, and its rows.
#[derive(Debug, Clone)]
pub struct TestTable {
    /// The name of the table.
    pub name: String,
    /// The options inside `WITH (…)`.
    pub options: String,
    /// The rows. All batches have the same schema, and each batch is written by itself. There is at
    /// least one batch.
    pub batches: Vec<RecordBatch>,
}

impl TestTable {
    /// Creates a table that is sharded by a column.
    pub fn sharded(name: &str, key: &str, shards: u32, rows: RecordBatch) -> Self {
        Self {
            name: name.to_owned(),
            options: format!("shard_key = '{key}', shards = {shards}"),
            batches: vec![rows],
        }
    }

    /// Creates a table without a shard key.
    pub fn in_any_shard(name: &str, shards: u32, rows: RecordBatch) -> Self {
        Self {
            name: name.to_owned(),
            options: format!("shards = {shards}"),
            batches: vec![rows],
        }
    }

    /// Creates a reference table, which is on every worker as a whole.
    pub fn reference(name: &str, rows: RecordBatch) -> Self {
        Self {
            name: name.to_owned(),
            options: "reference = true".to_owned(),
            batches: vec![rows],
        }
    }
}

/// A gateway with its workers and one client session.
pub struct TestCluster {
    nodes: LocalCluster,
    client: Client,
    workers: usize,
    directory: TempDir,
}

impl TestCluster {
    /// Starts a cluster with this number of workers, and a session.
    ///
    /// # Errors
    /// Returns the errors of the nodes.
    pub async fn start(workers: usize) -> Result<Self> {
        Self::start_with(workers, |_| {}).await
    }

    /// Starts a cluster with this number of workers and with changed settings, and a session.
    ///
    /// # Errors
    /// Returns the errors of the nodes.
    pub async fn start_with(
        workers: usize,
        change: impl FnOnce(&mut LocalOptions),
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let runtimes = HANDLES
            .get()
            .context("clusters must be started within run()")?;
        let mut settings = Settings::default();
        settings.local.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        settings.local.data_dir = directory.path().join("nodes");
        settings.local.workers = workers;
        settings.local.memory = MEMORY;
        settings.gateway.query.target_partitions = Some(GATEWAY_PARTITIONS);
        settings.worker.execution.target_partitions = Some(WORKER_PARTITIONS);
        settings.gateway.load.allowed_roots = vec![
            directory.path().display().to_string(),
            data_directory().display().to_string(),
        ];
        let mut options = LocalOptions::new(settings, runtimes.clone());
        change(&mut options);
        let nodes = LocalCluster::start(options).await?;
        let client = Client::connect(&nodes.uri()).await?;
        Ok(Self {
            nodes,
            client,
            workers,
            directory,
        })
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &LocalCluster {
        &self.nodes
    }

    /// Returns a directory that COPY may read. It is deleted with the cluster.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a statement in the session and collects its rows.
    ///
    /// # Errors
    /// Returns the errors of the statement, and `DEADLINE_EXCEEDED` if the statement hangs.
    pub async fn sql(&mut self, sql: &str) -> volary_flight_proto::Result<RecordBatch> {
        let answer = tokio::time::timeout(STATEMENT_TIMEOUT, self.client.collect(sql)).await;
        answer.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!(
                    "no answer within {STATEMENT_TIMEOUT:?} from {} workers: {sql}",
                    self.workers
                ),
            ))
        })
    }

    /// Runs the statements of a file such as `tests/queries/*/schema.sql`.
    ///
    /// # Errors
    /// Returns the errors of the statements and of reading the file.
    pub async fn run_file(&mut self, file: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        for statement in lines.join("\n").split(';') {
            if !statement.trim().is_empty() {
                self.sql(statement).await.context(statement.to_owned())?;
            }
        }
        Ok(())
    }

    /// Creates a table with exactly the types of its rows, and loads the rows.
    ///
    /// # Errors
    /// Returns the errors of the statements.
    pub async fn load(&mut self, table: &TestTable) -> Result<()> {
        let name = &table.name;
        let rows = table
            .batches
            .first()
            .with_context(|| format!("table {name}: no batch, so no schema"))?;
        let columns: Vec<_> = rows
            .schema()
            .fields()
            .iter()
            .map(|field| {
                format!(
                    "arrow_cast(NULL, '{}') AS {}",
                    field.data_type(),
                    field.name()
                )
            })
            .collect();
        self.sql(&format!(
            "CREATE TABLE {name} WITH ({}) AS SELECT {} WHERE false",
            table.options,
            columns.join(", ")
        ))
        .await?;
        for batch in &table.batches {
            let path = self.directory.path().join(format!("{name}.parquet"));
            let mut writer = ArrowWriter::try_new(File::create(&path)?, batch.schema(), None)?;
            writer.write(batch)?;
            writer.close()?;
            self.sql(&format!("COPY {name} FROM '{}'", path.display()))
                .await?;
        }
        Ok(())
    }

    /// Returns the physical plan of a query, as EXPLAIN shows it.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn physical_plan(&mut self, sql: &str) -> Result<String> {
        let rows = self.sql(&format!("EXPLAIN {sql}")).await?;
        let kinds = rows.column(0).as_string::<i32>();
        let plans = rows.column(1).as_string::<i32>();
        kinds
            .iter()
            .zip(plans)
            .find(|(kind, _)| *kind == Some("physical_plan"))
            .and_then(|(_, plan)| plan.map(str::to_owned))
            .context("EXPLAIN shows no physical plan")
    }

    /// Stops all nodes.
    pub async fn stop(self) {
        self.nodes.shutdown().await;
    }
}

/// What an answer must have in common with the answer of DataFusion alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The rows, in any order.
    Rows,
    /// The rows in the same order.
    Sequence,
}

/// DataFusion alone and clusters of several sizes, all with the same tables.
pub struct TestClusters {
    reference: DataFusionReference,
    clusters: Vec<TestCluster>,
}

impl TestClusters {
    /// Starts one cluster for each number of workers. Their answers are compared with `reference`.
    /// In every other cluster, the gateway calls the workers over connections.
    ///
    /// # Errors
    /// Returns the errors of the nodes.
    pub async fn start(reference: DataFusionReference, workers: &[usize]) -> Result<Self> {
        let mut clusters = Vec::new();
        for (position, workers) in workers.iter().enumerate() {
            let calls = |options: &mut LocalOptions| options.in_process_calls = position % 2 == 0;
            clusters.push(TestCluster::start_with(*workers, calls).await?);
        }
        Ok(Self {
            reference,
            clusters,
        })
    }

    /// Returns the clusters.
    pub fn clusters_mut(&mut self) -> &mut [TestCluster] {
        &mut self.clusters
    }

    /// Loads a table into DataFusion and into all clusters.
    ///
    /// # Errors
    /// Returns the errors of the statements.
    pub async fn load(&mut self, table: &TestTable) -> Result<()> {
        self.reference
            .register(&table.name, table.batches.clone())?;
        for cluster in &mut self.clusters {
            cluster.load(table).await?;
        }
        Ok(())
    }

    /// Drops a table from DataFusion and from all clusters.
    ///
    /// # Errors
    /// Returns the errors of the statements.
    pub async fn drop_table(&mut self, name: &str) -> Result<()> {
        self.reference.context().deregister_table(name)?;
        self.run(&format!("DROP TABLE IF EXISTS {name}")).await
    }

    /// Runs a statement on each cluster.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        for cluster in &mut self.clusters {
            cluster.sql(sql).await.context(sql.to_owned())?;
        }
        Ok(())
    }

    /// Runs a query everywhere. If the answer of a cluster differs from that of DataFusion alone,
    /// returns a text with the difference and the plan.
    ///
    /// # Errors
    /// Returns an error if DataFusion alone cannot answer.
    pub async fn difference(&mut self, sql: &str, same: Comparison) -> Result<Option<String>> {
        let expected = to_client_types(self.reference.query(sql).await?)?;
        for cluster in &mut self.clusters {
            let found = match cluster.sql(sql).await {
                Ok(rows) => difference(&expected, &[rows], same == Comparison::Sequence),
                Err(error) => Some(format!("error: {error:?}")),
            };
            if let Some(found) = found {
                let plan = cluster.physical_plan(sql).await;
                return Ok(Some(format!(
                    "{} workers\n{sql}\n{found}\n{}",
                    cluster.workers(),
                    plan.unwrap_or_else(|error| format!("no plan: {error:#}"))
                )));
            }
        }
        Ok(None)
    }

    /// Checks that the answers of all clusters to a query are the same as that of DataFusion alone.
    ///
    /// # Panics
    /// Panics if the answer of a cluster is different or an error, or if DataFusion alone cannot
    /// answer.
    pub async fn check(&mut self, sql: &str, same: Comparison) {
        match self.difference(sql, same).await {
            Ok(None) => {}
            Ok(Some(difference)) => panic!("{difference}"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Stops all nodes.
    pub async fn stop(self) {
        for cluster in self.clusters {
            cluster.stop().await;
        }
    }
}

/// Returns rows as clients get them. Clients have no unsigned integers of 64 bits, so these become
/// decimals. They get UUIDs as texts.
fn to_client_types(batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let sent = |batch: RecordBatch| {
        let columns = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| {
            let wanted = client_type(column.data_type());
            let column = cast_column(column, &wanted, |column, wanted| cast(column, wanted))?;
            let field = field.as_ref().clone();
            Ok((field.with_data_type(column.data_type().clone()), column))
        });
        let (fields, columns): (Vec<_>, Vec<_>) =
            columns.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    };
    batches.into_iter().map(sent).collect()
}

fn client_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::UInt64 => DataType::Decimal128(20, 0),
        uuid if *uuid == UUID => DataType::Utf8,
        DataType::List(item) => {
            let item_type = client_type(item.data_type());
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(item_type)))
        }
        other => other.clone(),
    }
}

/// Returns `tests/data`, which COPY may read in every cluster.
pub fn data_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data"))
}

/// Returns `tests/queries`.
pub fn queries_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/queries"))
}
