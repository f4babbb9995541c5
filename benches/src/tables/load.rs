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
use super::loaded_cluster::{LoadedCluster, create_tables};
use crate::bench::Bench;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::local_process::LocalProcess;
use crate::results::{Label, Sample, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "load",
    title: "Loading lineitem",
    method: "COPY loads TPC-H's lineitem from a Parquet file into an empty table of an embedded cluster: it hashes the rows, routes them over Flight, sorts them, and makes every file durable. In turns with that, DataFusion in the same process writes the same rows to one Parquet file with the same compression. If the program of an earlier release is given, it and this release are measured, too, each as a `volary local` process with four workers.",
    run: |bench| run(bench).boxed_local(),
};

/// The variant that an earlier release is compared with.
const THIS_RELEASE: &str = "this release in a process";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let mut loaded = LoadedCluster::start(bench).await?;
    let mut releases = releases(bench).await?;
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
    let mut candidates = vec![Candidate::new(ours, copy), Candidate::new(theirs, plain)];
    for release in &mut releases {
        let mut label = label(release.name);
        if release.name != THIS_RELEASE {
            label = label.compared_with(THIS_RELEASE);
        }
        let copy = CopyFrom {
            client: &mut release.client,
            source,
            rows,
        };
        candidates.push(Candidate::new(label, copy));
    }
    let measured = measure_in_turns(bench.long_turns(), candidates).await?;
    drop(releases);
    loaded.shutdown().await;
    Ok(measured)
}

/// A release of Volary that runs in a process of its own, with empty tables.
struct Release {
    name: &'static str,
    client: Client,
    /// The process runs until this value is dropped.
    _process: LocalProcess,
}

/// Starts this release and the earlier one. Returns nothing if no earlier one was given.
async fn releases(bench: &Bench) -> Result<Vec<Release>> {
    let Some(earlier) = &bench.earlier_release else {
        return Ok(Vec::new());
    };
    let program = bench.volary_program();
    let roots = bench.data_dir.to_string_lossy().into_owned();
    let environment = [("VOLARY_GATEWAY__LOAD__ALLOWED_ROOTS", roots)];
    let mut started = Vec::new();
    for (name, program) in [(THIS_RELEASE, &program), ("an earlier release", earlier)] {
        let directory = bench.scratch(&format!("load-{}", name.replace(' ', "-")));
        let process = LocalProcess::start(name, program, &directory, &environment)?;
        let mut client = Client::connect(process.uri()).await?;
        create_tables(&mut client).await?;
        started.push(Release {
            name,
            client,
            _process: process,
        });
    }
    Ok(started)
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
