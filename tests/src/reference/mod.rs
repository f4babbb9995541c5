//! A [`DataFusionReference`] is a DataFusion in this process over plain Parquet files or batches in
//! memory. [`assert_same_rows`] compares two results as SQL sees them: a string is the same in
//! every Arrow encoding.

/// Converts values of all Arrow types to a common form.
mod cell;
/// Compares two results, and returns a message that shows where they differ.
mod compare;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::WindowUDF;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::FutureExt;
use futures::future::BoxFuture;
use volary_exec::functions::window_functions;

pub use compare::{assert_same_rows, difference};

/// DataFusion in this process, with some tables.
pub struct DataFusionReference {
    context: SessionContext,
}

impl DataFusionReference {
    /// Creates a reference without tables.
    pub fn new() -> Self {
        Self::with_runtime(Arc::default())
    }

    /// Creates a reference without tables and with this amount of memory.
    ///
    /// # Errors
    /// Returns an error if there is no directory for temporary files.
    pub fn with_memory(bytes: usize) -> Result<Self> {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .build_arc()?;
        Ok(Self::with_runtime(runtime))
    }

    fn with_runtime(runtime: Arc<RuntimeEnv>) -> Self {
        // DataFusion 55 pushes filters down by column names, which joins can produce twice
        // (apache/datafusion#25244).
        let rules = PhysicalOptimizer::default().rules.into_iter();
        let rules = rules.filter(|rule| !rule.name().starts_with("FilterPushdown"));
        let mut config = SessionConfig::new();
        config.options_mut().execution.time_zone = Some("UTC".to_owned());
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_physical_optimizer_rules(rules.collect())
            .build();
        let context = SessionContext::new_with_state(state);
        // Ranks are BIGINT in Volary. Those of DataFusion are unsigned.
        for function in window_functions() {
            context.register_udwf(WindowUDF::clone(&function));
        }
        Self { context }
    }

    /// Creates a reference with the tables of a directory. Each `<table>.parquet` is the table
    /// `<table>`.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read or has no such file, or if a file is not
    /// Parquet.
    pub fn over(directory: &Path) -> BoxFuture<'_, Result<Self>> {
        async move {
            let files = files_with_extension(directory, "parquet")?;
            if files.is_empty() {
                bail!("no .parquet file in {}", directory.display());
            }
            let reference = Self::new();
            for file in files {
                let path = file
                    .to_str()
                    .with_context(|| format!("{} is not UTF-8", file.display()))?;
                reference
                    .context
                    .register_parquet(stem(&file)?, path, ParquetReadOptions::default())
                    .await
                    .with_context(|| format!("cannot register {path}"))?;
            }
            Ok(reference)
        }
        .boxed()
    }

    /// Adds a table with the rows of `batches`. There must be at least one batch, and all must have
    /// the same schema.
    ///
    /// # Errors
    /// Returns an error if there is no batch, if the schemas differ, or if the table exists
    /// already.
    pub fn register(&self, table: &str, batches: Vec<RecordBatch>) -> Result<()> {
        let schema = batches
            .first()
            .with_context(|| {
                format!("table {table}: give a batch, even an empty one, for the schema")
            })?
            .schema();
        let rows = MemTable::try_new(schema, vec![batches])
            .with_context(|| format!("table {table}: batches do not fit together"))?;
        self.context
            .register_table(table, Arc::new(rows))
            .with_context(|| format!("cannot register table {table}"))?;
        Ok(())
    }

    /// Runs one statement and collects its rows. Returns at least one batch, so that the schema of
    /// an empty answer is known.
    ///
    /// # Errors
    /// Returns the errors of DataFusion, together with the statement.
    pub fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Vec<RecordBatch>>> {
        async move {
            self.rows(sql)
                .await
                .with_context(|| format!("DataFusion alone cannot answer:\n{sql}"))
        }
        .boxed()
    }

    /// Returns the physical plan of a statement.
    ///
    /// # Errors
    /// Returns the errors of DataFusion.
    pub fn plan<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move { Ok(self.context.sql(sql).await?.create_physical_plan().await?) }.boxed()
    }

    /// Returns the session of DataFusion, for other uses than queries.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    async fn rows(&self, sql: &str) -> datafusion::error::Result<Vec<RecordBatch>> {
        let frame = self.context.sql(sql).await?;
        let schema = Arc::clone(frame.schema().inner());
        let mut batches = frame.collect().await?;
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema));
        }
        Ok(batches)
    }
}

impl Default for DataFusionReference {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the queries of a directory as pairs of name and SQL, sorted by name. Each `<name>.sql`
/// is a query, except for the table definitions in `schema*.sql`.
///
/// # Errors
/// Returns an error if the directory or a file cannot be read, or if there is no query.
pub fn queries(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut queries = Vec::new();
    for file in files_with_extension(directory, "sql")? {
        let name = stem(&file)?;
        if !name.starts_with("schema") {
            let sql = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            queries.push((name.to_owned(), sql));
        }
    }
    if queries.is_empty() {
        bail!(
            "no query (*.sql other than schema*.sql) in {}",
            directory.display()
        );
    }
    Ok(queries)
}

fn files_with_extension(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let cannot_list = || format!("cannot list {}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn stem(file: &Path) -> Result<&str> {
    file.file_stem()
        .and_then(|stem| stem.to_str())
        .with_context(|| format!("the name of {} is not UTF-8", file.display()))
}
