use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::loaded_cluster::LoadedCluster;
use crate::bench::{Bench, TpchOptions};
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::results::{Label, Sample, Variant};

const METRIC: &str = "total_ms";
/// Longest time of a query. A query that takes longer is assumed never to end, and the table fails
/// instead of waiting forever.
const TIMEOUT: Duration = Duration::from_secs(600);

/// An engine that answers SQL.
pub(super) trait Engine {
    /// The name of the engine, which is unique in a table.
    const NAME: &'static str;

    /// Runs a query and reads all its rows. Returns the number of rows.
    fn answer<'a>(&'a mut self, sql: &'a str) -> LocalBoxFuture<'a, Result<usize>>;
}

impl Engine for LoadedCluster {
    const NAME: &'static str = "Volary";

    fn answer<'a>(&'a mut self, sql: &'a str) -> LocalBoxFuture<'a, Result<usize>> {
        async move { Ok(self.client.count(sql).await?) }.boxed_local()
    }
}

/// Measures the queries that the bench selects, one after another. Each query runs in turns on the
/// cluster and in the other engine. Also returns the sum over all queries.
///
/// # Errors
/// Returns the errors of the engines. Returns an error if an engine takes ten minutes for a query,
/// or if the engines return different numbers of rows.
pub(super) async fn compare<E: Engine>(
    bench: &Bench,
    cluster: &mut LoadedCluster,
    other: &mut E,
) -> Result<Vec<Variant>> {
    let scale = cluster.scale;
    let mut measured = Vec::new();
    for (name, sql) in queries(&bench.tpch)? {
        let counts = [Cell::new(0), Cell::new(0)];
        let [ours, theirs] = labels(&name, E::NAME, scale);
        let on_cluster = QueryRun {
            engine: &mut *cluster,
            sql: &sql,
            rows: &counts[0],
        };
        let in_other = QueryRun {
            engine: &mut *other,
            sql: &sql,
            rows: &counts[1],
        };
        let candidates = vec![
            Candidate::new(ours, on_cluster),
            Candidate::new(theirs, in_other),
        ];
        measured.extend(measure_in_turns(bench.turns(), candidates).await?);
        let [ours, theirs] = counts.map(Cell::into_inner);
        ensure!(
            ours == theirs,
            "{name}: {ours} rows on the cluster, {theirs} in {}",
            E::NAME
        );
    }
    measured.extend(totals(&measured, E::NAME, scale));
    Ok(measured)
}

/// Returns the names of the queries with their texts.
fn queries(options: &TpchOptions) -> Result<Vec<(String, String)>> {
    let names = (1..=22).map(|number| format!("q{number:02}"));
    names
        .filter(|name| name.contains(&options.name_filter))
        .map(|name| {
            let path = options.queries.join(format!("{name}.sql"));
            let sql = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok((name, sql))
        })
        .collect()
}

/// Returns the label of the cluster and that of the other engine.
fn labels(query: &str, other: &str, scale: f64) -> [Label; 2] {
    let [ours, theirs] = [LoadedCluster::NAME, other].map(|engine| {
        Label::new(format!("{query}, {engine}"))
            .with("query", query)
            .with("engine", engine)
            .with("scale", scale)
    });
    [ours.compared_with(theirs.name.clone()), theirs]
}

/// Returns the sum over all queries for each turn.
fn totals(measured: &[Variant], other: &str, scale: f64) -> Vec<Variant> {
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
    let with_sums = labels("total", other, scale)
        .into_iter()
        .zip([LoadedCluster::NAME, other])
        .map(|(label, engine)| {
            let mut total = Variant::new(label);
            for sum in sums.get(engine).into_iter().flatten() {
                total.push(Sample::new().with(METRIC, *sum));
            }
            total
        });
    with_sums.collect()
}

/// A query in one of the engines.
struct QueryRun<'a, E> {
    engine: &'a mut E,
    sql: &'a str,
    /// The number of rows in the answer.
    rows: &'a Cell<usize>,
}

impl<E: Engine> Measure for QueryRun<'_, E> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let started = Instant::now();
            let rows = tokio::time::timeout(TIMEOUT, self.engine.answer(self.sql)).await;
            let total_ms = started.elapsed().as_secs_f64() * 1e3;
            let rows = rows.with_context(|| {
                format!("not answered within {} minutes", TIMEOUT.as_secs() / 60)
            })??;
            self.rows.set(rows);
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
            for (label, ms) in labels(query, "Other", 1.0).into_iter().zip([10.0, 1.0]) {
                let mut variant = Variant::new(label);
                variant.push(Sample::new().with(METRIC, ms));
                variant.push(Sample::new().with(METRIC, 2.0 * ms));
                measured.push(variant);
            }
        }
        let totals = totals(&measured, "Other", 1.0);
        assert_eq!(totals[0].samples_of(METRIC), [20.0, 40.0]);
        assert_eq!(totals[1].samples_of(METRIC), [2.0, 4.0]);
        assert_eq!(totals[0].label.baseline.as_deref(), Some("total, Other"));
    }
}
