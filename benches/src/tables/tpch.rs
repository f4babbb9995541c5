//! The 22 queries of TPC-H, beside one DataFusion process.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;
use volary_cli::tpch;

use super::Table;
use super::loaded::Loaded;
use crate::bench::{Bench, Tpch};
use crate::interleaved::{Candidate, Measure, in_turns};
use crate::results::{Label, Measured, Sample};

pub(super) const TABLE: Table = Table {
    name: "tpch",
    title: "TPC-H",
    method: "Each query in turns: on an embedded cluster (a gateway and its workers in one process, real Flight over loopback, 64 shards per table), and in DataFusion over the Parquet files that were loaded, in the same process with the same allocator. The total of a turn is the sum over all queries.",
    run: |bench| run(bench).boxed_local(),
};

const METRIC: &str = "total_ms";
const OURS: &str = "Volary";
const THEIRS: &str = "DataFusion";

async fn run(bench: &Bench) -> Result<Vec<Measured>> {
    let mut loaded = Loaded::start(bench).await?;
    let context = datafusion(&loaded.data).await?;
    let mut measured = Vec::new();
    for (name, sql) in queries(&bench.tpch)? {
        let counts = [Cell::new(0), Cell::new(0)];
        let [ours, theirs] = labels(&name, loaded.scale);
        let on_cluster = OnCluster {
            client: &mut loaded.client,
            sql: &sql,
            rows: &counts[0],
        };
        let in_process = InProcess {
            context: &context,
            sql: &sql,
            rows: &counts[1],
        };
        let candidates = vec![
            Candidate::new(ours, on_cluster),
            Candidate::new(theirs, in_process),
        ];
        measured.extend(in_turns(bench.turns(), candidates).await?);
        let [ours, theirs] = counts.map(Cell::into_inner);
        ensure!(
            ours == theirs,
            "{name}: {ours} rows on the cluster, {theirs} in DataFusion"
        );
    }
    measured.extend(totals(&measured, loaded.scale));
    loaded.shutdown().await;
    Ok(measured)
}

/// The queries, by name.
fn queries(options: &Tpch) -> Result<Vec<(String, String)>> {
    let names = (1..=22).map(|number| format!("q{number:02}"));
    names
        .filter(|name| name.contains(&options.only))
        .map(|name| {
            let path = options.queries.join(format!("{name}.sql"));
            let sql = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok((name, sql))
        })
        .collect()
}

/// One DataFusion process over the same files.
async fn datafusion(data: &Path) -> Result<SessionContext> {
    let context = SessionContext::new();
    for table in tpch::tables() {
        let file = data.join(format!("{table}.parquet"));
        let file = file.to_str().context("the path is no text")?;
        context
            .register_parquet(*table, file, ParquetReadOptions::default())
            .await?;
    }
    Ok(context)
}

/// Ours and theirs.
fn labels(query: &str, scale: f64) -> [Label; 2] {
    let [ours, theirs] = [OURS, THEIRS].map(|engine| {
        Label::new(format!("{query}, {engine}"))
            .with("query", query)
            .with("engine", engine)
            .with("scale", scale)
    });
    [ours.beside(theirs.name.clone()), theirs]
}

/// The sum over all queries, turn by turn.
fn totals(measured: &[Measured], scale: f64) -> Vec<Measured> {
    let mut sums: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for variant in measured {
        let engine = variant.label.parameters.get("engine");
        let engine = engine
            .and_then(|engine| engine.as_str())
            .unwrap_or_default();
        let samples = variant.samples_of(METRIC);
        let sums = sums
            .entry(engine)
            .or_insert_with(|| vec![0.0; samples.len()]);
        for (sum, sample) in sums.iter_mut().zip(samples) {
            *sum += sample;
        }
    }
    let with_sums =
        labels("total", scale)
            .into_iter()
            .zip([OURS, THEIRS])
            .map(|(label, engine)| {
                let mut total = Measured::new(label);
                for sum in sums.get(engine).into_iter().flatten() {
                    total.push(Sample::new().with(METRIC, *sum));
                }
                total
            });
    with_sums.collect()
}

/// A query on the cluster.
struct OnCluster<'a> {
    client: &'a mut Client,
    sql: &'a str,
    /// How many rows it has.
    rows: &'a Cell<usize>,
}

impl Measure for OnCluster<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let started = Instant::now();
            let rows = self.client.collect(self.sql).await?;
            let total_ms = started.elapsed().as_secs_f64() * 1e3;
            self.rows.set(rows.num_rows());
            Ok(Sample::new().with(METRIC, total_ms))
        }
        .boxed_local()
    }
}

/// The same query in DataFusion.
struct InProcess<'a> {
    context: &'a SessionContext,
    sql: &'a str,
    /// How many rows it has.
    rows: &'a Cell<usize>,
}

impl Measure for InProcess<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let started = Instant::now();
            let batches = self.context.sql(self.sql).await?.collect().await?;
            let total_ms = started.elapsed().as_secs_f64() * 1e3;
            let rows = batches.iter().map(|batch| batch.num_rows());
            self.rows.set(rows.sum());
            Ok(Sample::new().with(METRIC, total_ms))
        }
        .boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sums_of_a_turn() {
        let mut measured = Vec::new();
        for query in ["q01", "q02"] {
            for (label, ms) in labels(query, 1.0).into_iter().zip([10.0, 1.0]) {
                let mut variant = Measured::new(label);
                variant.push(Sample::new().with(METRIC, ms));
                variant.push(Sample::new().with(METRIC, 2.0 * ms));
                measured.push(variant);
            }
        }
        let totals = totals(&measured, 1.0);
        assert_eq!(totals[0].samples_of(METRIC), [20.0, 40.0]);
        assert_eq!(totals[1].samples_of(METRIC), [2.0, 4.0]);
        assert_eq!(
            totals[0].label.baseline.as_deref(),
            Some("total, DataFusion")
        );
    }
}
