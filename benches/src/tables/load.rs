use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;

use super::BenchTable;
use super::loaded_cluster::LoadedCluster;
use crate::bench::Bench;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::results::{Label, Sample, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "load",
    title: "Loading lineitem",
    method: "COPY loads TPC-H's lineitem from a Parquet file into an empty table of an embedded cluster: it hashes the rows, routes them over Flight, sorts them, and makes every file durable. In turns with that, DataFusion in the same process writes the same rows to one Parquet file with the same compression.",
    run: |bench| run(bench).boxed_local(),
};

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let mut loaded = LoadedCluster::start(bench).await?;
    let rows = rows(&mut loaded.client).await?;
    let source = loaded.data.join("lineitem.parquet");
    let source = source.to_str().context("the path is no text")?;
    let out = bench.scratch("load");
    std::fs::create_dir_all(&out)?;
    let label = |engine: &str| {
        Label::new(engine)
            .with("engine", engine)
            .with("scale", loaded.scale)
    };
    let theirs = label("plain Parquet writing");
    let ours = label("Volary").compared_with(theirs.name.clone());
    let copy = CopyFrom {
        client: &mut loaded.client,
        source,
        rows,
    };
    let plain = PlainWriting { source, out, rows };
    let candidates = vec![Candidate::new(ours, copy), Candidate::new(theirs, plain)];
    let measured = measure_in_turns(bench.long_turns(), candidates).await?;
    loaded.shutdown().await;
    Ok(measured)
}

/// Returns the number of rows that a turn loads.
async fn rows(client: &mut Client) -> Result<i64> {
    let counted = client.collect("SELECT count(*) FROM lineitem").await?;
    Ok(counted.column(0).as_primitive::<Int64Type>().value(0))
}

fn sample(rows: i64, took: Duration) -> Sample {
    Sample::new()
        .with("total_ms", took.as_secs_f64() * 1e3)
        .with("rows_per_s", rows as f64 / took.as_secs_f64())
}

/// Copies a file into an empty table. The table is then dropped.
struct CopyFrom<'a> {
    client: &'a mut Client,
    source: &'a str,
    rows: i64,
}

impl Measure for CopyFrom<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            // An interrupted run may have left the table behind.
            self.client.collect("DROP TABLE IF EXISTS copied").await?;
            let create = "CREATE TABLE copied WITH (shard_key = 'l_orderkey') AS SELECT * FROM lineitem WHERE false";
            self.client.collect(create).await?;
            let copy = format!("COPY copied FROM '{}'", self.source);
            let started = Instant::now();
            self.client.collect(&copy).await?;
            let took = started.elapsed();
            self.client.collect("DROP TABLE copied").await?;
            Ok(sample(self.rows, took))
        }
        .boxed_local()
    }
}

/// Copies a file into another file with DataFusion.
struct PlainWriting<'a> {
    source: &'a str,
    out: PathBuf,
    rows: i64,
}

impl Measure for PlainWriting<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let target = tempfile::tempdir_in(&self.out)?;
            let target = target.path().join("plain");
            let target = target.to_str().context("the path is no text")?;
            let started = Instant::now();
            let context = SessionContext::new();
            let rows = context
                .read_parquet(self.source, ParquetReadOptions::default())
                .await?;
            let mut options = context.state().default_table_options().parquet;
            options.global.compression = Some("lz4_raw".to_owned());
            rows.write_parquet(target, DataFrameWriteOptions::new(), Some(options))
                .await?;
            Ok(sample(self.rows, started.elapsed()))
        }
        .boxed_local()
    }
}
