use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::time::timeout;
use volary_cli::client::Client;

use super::BenchTable;
use super::written_cluster::{self, Stored, number};
use crate::bench::Bench;
use crate::goals::Goal;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::local_process::LocalProcess;
use crate::results::{Label, Sample, Variant};
use crate::statistics::{Spread, percentile};
use crate::writing;
use crate::writing::measured::Writers;
use crate::writing::rows::COLUMNS;
use crate::writing::volary::Ingest;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "many_inserts",
    title: "After a million one-row inserts",
    method: "64 clients insert one row after another, each row durably and as a statement of its own, until there are a million rows or 20 minutes are over. Then all rows are loaded into another table at once (INSERT … SELECT). A scan reads all columns of all rows and returns one row; scans of both tables take turns, first as the inserts have left the table, and again after OPTIMIZE of that table. A turn's time is the median of five scans. The cluster has four workers in one process.",
    run: |bench| run(bench).boxed_local(),
};

const CLIENTS: usize = 64;
/// The name of the table that is loaded at once.
const LOADED: &str = "loaded";
const SCANS: usize = 5;
/// Longest time for OPTIMIZE.
const OPTIMIZE_LIMIT: Duration = Duration::from_secs(600);

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(200, 50_000, 1_000_000);
    let limit = Duration::from_secs(bench.size.pick(60, 60, 1_200));
    let cluster = Rc::new(written_cluster::start(bench, "many-inserts")?);
    let mut client = Client::connect(cluster.uri()).await?;
    let mut measured = vec![insert(&cluster, rows, limit).await?];
    load_at_once(&mut client).await?;

    let (inserted, loaded) = ("inserted one by one", "loaded at once");
    measured.extend(scan_both(bench, &cluster, inserted, loaded).await?);
    measured.push(optimize(&mut client).await?);
    let (optimized, again) = (
        "inserted one by one, after OPTIMIZE",
        "loaded at once, again",
    );
    measured.extend(scan_both(bench, &cluster, optimized, again).await?);
    for (ours, theirs) in [(inserted, loaded), (optimized, again)] {
        let times = |name: &str| {
            let mut found = measured.iter().filter(|it| it.label.name == name);
            found
                .next()
                .map_or(&[] as &[f64], |it| it.samples_of("scan_ms"))
        };
        let what = format!("scan of rows {ours} / {theirs}");
        let goal = Goal::AtMost(1.2).of(&what, times(ours), times(theirs));
        measured.push(goal);
    }
    Ok(measured)
}

/// Inserts about `rows` rows, until the time is over.
async fn insert(cluster: &Rc<LocalProcess>, rows: usize, limit: Duration) -> Result<Variant> {
    let writers = Writers::new(Ingest(Rc::clone(cluster)));
    writers.way().empty_table().await?;
    let mut clients = writers.clients(CLIENTS, 1).await?;
    let answers = clients.ask_within(rows.div_ceil(CLIENTS), limit).await?;
    let seconds = answers.total.as_secs_f64();
    let latencies_ms = answers.all_latencies_ms()?;
    let inserted = latencies_ms.len() as f64;
    let mut variant = Variant::new(Label::new("inserting").with("clients", CLIENTS));
    variant.push(
        Sample::new()
            .with("rows", inserted)
            .with("statements_per_s", inserted / seconds)
            .with("p50_ms", percentile(&latencies_ms, 50))
            .with("p99_ms", percentile(&latencies_ms, 99)),
    );
    Ok(variant)
}

/// Loads the rows of the one table into the other.
async fn load_at_once(client: &mut Client) -> Result<()> {
    let from = writing::TABLE;
    let create = format!("CREATE TABLE {LOADED} ({COLUMNS}) WITH (shard_key = 'k')");
    client.collect(&create).await?;
    let load = format!("INSERT INTO {LOADED} SELECT * FROM {from}");
    client.collect(&load).await?;
    let inserted = number(client, "count(*)", from).await?;
    let loaded = number(client, "count(*)", LOADED).await?;
    ensure!(
        inserted == loaded,
        "{loaded} rows were loaded, not {inserted}"
    );
    Ok(())
}

async fn scan_both(
    bench: &Bench,
    cluster: &LocalProcess,
    inserted: &str,
    loaded: &str,
) -> Result<Vec<Variant>> {
    let scans = |table| Scans { cluster, table };
    let label = |name: &str| Label::new(name).with("state", name);
    let candidates = vec![
        Candidate::new(label(loaded), scans(LOADED)),
        Candidate::new(label(inserted).compared_with(loaded), scans(writing::TABLE)),
    ];
    measure_in_turns(bench.turns(), candidates).await
}

/// Scans a table several times, and counts its segments and the rows that are not in them.
struct Scans<'a> {
    cluster: &'a LocalProcess,
    table: &'static str,
}

impl Measure for Scans<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let mut client = Client::connect(self.cluster.uri()).await?;
            let table = self.table;
            let scan = format!("SELECT count(*), max(k), sum(a), sum(b), max(s) FROM {table}");
            let mut times_ms = Vec::new();
            for _ in 0..SCANS {
                let started = Instant::now();
                client.collect(&scan).await?;
                times_ms.push(started.elapsed().as_secs_f64() * 1e3);
            }
            let median = Spread::of(&times_ms).context("no scan")?.median;
            let stored = Stored::read(&mut client, table).await?;
            Ok(Sample::new()
                .with("scan_ms", median)
                .with("segments", stored.segments)
                .with("log_rows", stored.log_rows))
        }
        .boxed_local()
    }
}

async fn optimize(client: &mut Client) -> Result<Variant> {
    let sql = format!("OPTIMIZE {}", writing::TABLE);
    let started = Instant::now();
    let optimized = timeout(OPTIMIZE_LIMIT, client.collect(&sql)).await;
    optimized.with_context(|| {
        let limit = OPTIMIZE_LIMIT.as_secs();
        format!("OPTIMIZE has not ended within {limit} s")
    })??;
    let mut variant = Variant::new(Label::new("OPTIMIZE"));
    variant.push(Sample::new().with("optimize_s", started.elapsed().as_secs_f64()));
    Ok(variant)
}
