use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;

use super::BenchTable;
use super::stubs;
use super::written_cluster;
use crate::bench::Bench;
use crate::disk_flushes::DiskFlushes;
use crate::goals::Goal;
use crate::interleaved::{Candidate, measure_in_turns};
use crate::postgres::{PostgresServer, Programs};
use crate::results::{Label, Variant};
use crate::statistics::Spread;
use crate::stub::StubOptions;
use crate::writing::measured::{Writers, Writing};
use crate::writing::postgres::{PostgresStatement, PostgresWay};
use crate::writing::raw::{BlockSync, PlainParquet, RoundTrip};
use crate::writing::stream::Streams;
use crate::writing::volary::Ingest;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "writes",
    title: "Durable writes by batch size",
    method: "Clients write batches at the same time, each on its own connection, for a fixed time, into a table of four columns (BIGINT, BIGINT, DOUBLE PRECISION, VARCHAR of 12 characters) that is empty at the beginning of each turn. A batch is one statement, and is durable when it is answered. Volary is a gateway and four workers in one process; a batch is a CommandStatementIngest, as ADBC and the Python client send it, or is sent on a stream that stays open (a DoExchange) after the batch before it was answered. PostgreSQL has fsync and synchronous_commit on, otherwise its default settings, a table without an index, and a connection over loopback; a batch is a prepared INSERT … VALUES of all rows, or a COPY in binary format. All data is on one file system. The raw costs are those of one client: fdatasync of a block of 4 KiB that is overwritten; a DoPut of one row to a stub; and one thread that writes each batch to a new Parquet file with LZ4 and syncs that. Disk flushes are those of the whole disk, as Linux counts them. Syncs are the calls of fsync and fdatasync of Volary's process.",
    run: |bench| run(bench).boxed_local(),
};

const SIZES: &[usize] = &[1, 10, 100, 1_000, 2_000, 5_000, 10_000, 20_000];
const QUICK_SIZES: &[usize] = &[1, 100, 2_000, 20_000];
const SMOKE_SIZES: &[usize] = &[1, 10];
const CLIENTS: &[usize] = &[1, 8, 64];
const SMOKE_CLIENTS: &[usize] = &[1, 2];
/// Most rows of all clients' batches together in a quick run. A turn writes at least these.
const QUICK_ROWS: usize = 200_000;

/// Number of ways to write to Volary. They come first.
const VOLARY_WAYS: usize = 2;

const BLOCK_SYNC: &str = "fdatasync of a block";
const ROUND_TRIP: &str = "bare Flight round trip";
const PARQUET: &str = "plain Parquet";
const RAW_CLIENTS: usize = 1;

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let sizes = bench.size.pick(SMOKE_SIZES, QUICK_SIZES, SIZES);
    let clients = bench.size.pick(SMOKE_CLIENTS, CLIENTS, CLIENTS);
    let most_rows = bench.size.pick(QUICK_ROWS, QUICK_ROWS, usize::MAX);
    let time = Duration::from_millis(bench.size.pick(10, 200, 1_000));
    let directory = bench.scratch("writes");
    std::fs::create_dir_all(&directory)?;
    let disk = DiskFlushes::of(&directory)?;
    let volary = written_cluster::start(bench, "writes")?;
    let volary = Rc::new(volary);
    let mut ways = vec![
        Writers::new(Ingest(Rc::clone(&volary))),
        Writers::new(Streams::new(volary)),
    ];
    let postgres = postgres_ways(&directory).await?;
    let missing = postgres.as_ref().err().copied();
    ways.extend(postgres.unwrap_or_default());
    let stub = stubs::start(
        bench,
        StubOptions {
            count: 1,
            rows: 1,
            row_bytes: 8,
            batches: 1,
            coalesce_bytes: None,
        },
    )?;

    let raw = |name: &str| Label::new(name).with("way", name);
    let round_trip = RoundTrip::new(&stub.addresses()[0], time).await?;
    let mut candidates = vec![
        Candidate::new(raw(BLOCK_SYNC), BlockSync::new(&directory, time)?),
        Candidate::new(raw(ROUND_TRIP), round_trip),
    ];
    for rows in sizes {
        let work = PlainParquet::new(&directory, *rows, time);
        candidates.push(Candidate::new(label(PARQUET, RAW_CLIENTS, *rows), work));
        for clients in clients {
            if clients * rows > most_rows {
                continue;
            }
            for writers in &ways {
                let work = Writing {
                    writers,
                    clients: *clients,
                    rows: *rows,
                    time,
                    disk: disk.as_ref(),
                };
                let label = label(writers.way().name(), *clients, *rows);
                candidates.push(Candidate::new(label, work));
            }
        }
    }
    let mut measured = measure_in_turns(bench.turns(), candidates).await?;
    let goals = goals(&measured, &ways, sizes, clients)?;
    measured.extend(goals);
    if let Some(missing) = missing {
        measured.push(Variant::new(Label::new(missing)));
    }
    Ok(measured)
}

/// Starts PostgreSQL and returns the ways to write to it, or the reason why there are none.
async fn postgres_ways(directory: &Path) -> Result<Result<Vec<Writers>, &'static str>> {
    let Some(programs) = Programs::find() else {
        return Ok(Err(
            "PostgreSQL: not installed; `apt-get install postgresql` installs it",
        ));
    };
    let server = Rc::new(PostgresServer::start(&programs, directory).await?);
    let statements = [PostgresStatement::Insert, PostgresStatement::Copy];
    let ways = statements.map(|statement| {
        let server = Rc::clone(&server);
        Writers::new(PostgresWay { server, statement })
    });
    Ok(Ok(ways.into()))
}

fn label(way: &str, clients: usize, rows: usize) -> Label {
    Label::new(name(way, clients, rows))
        .with("way", way)
        .with("clients", clients)
        .with("rows", rows)
}

fn name(way: &str, clients: usize, rows: usize) -> String {
    format!("{way}, clients: {clients}, rows: {rows}")
}

fn find<'a>(measured: &'a [Variant], name: &str) -> Result<&'a Variant> {
    let mut found = measured.iter().filter(|variant| variant.label.name == name);
    found
        .next()
        .with_context(|| format!("\"{name}\" was not measured"))
}

/// Compares the measured values with the goals.
fn goals(
    measured: &[Variant],
    ways: &[Writers],
    sizes: &[usize],
    clients: &[usize],
) -> Result<Vec<Variant>> {
    let names: Vec<_> = ways.iter().map(|writers| writers.way().name()).collect();
    let (volary, others) = names.split_at(VOLARY_WAYS);
    let most_clients = clients.last().copied().unwrap_or(1);
    let most_rows = sizes.last().copied().unwrap_or(1);
    let raw: Vec<f64> = find(measured, BLOCK_SYNC)?
        .samples_of("p50_ms")
        .iter()
        .zip(find(measured, ROUND_TRIP)?.samples_of("p50_ms"))
        .map(|(sync, round_trip)| 2.0 * sync + 2.0 * round_trip)
        .collect();
    let peak = peak_of(measured, volary).context("Volary was not measured")?;
    let peak_rows = peak.label.parameters["rows"].as_u64().unwrap_or(1) as usize;
    let parquet = find(measured, &name(PARQUET, RAW_CLIENTS, peak_rows))?;
    let peak_rate = peak.samples_of("rows_per_s");
    let mut goals = Vec::new();
    for way in volary {
        let one = find(measured, &name(way, 1, 1))?;
        let many_clients = find(measured, &name(way, most_clients, 1))?;
        let many_rows = find(measured, &name(way, 1, most_rows))?;
        goals.extend([
            Goal::AtMost(2.5).of(
                &format!(
                    "{way}: 1 row of 1 client, p50 / (two fdatasyncs + two bare Flight round trips)"
                ),
                one.samples_of("p50_ms"),
                &raw,
            ),
            Goal::AtLeast(20.0).of(
                &format!(
                    "{way}: 1 row of {most_clients} clients / of 1 client, statements per second"
                ),
                many_clients.samples_of("statements_per_s"),
                one.samples_of("statements_per_s"),
            ),
            Goal::AtLeast(400.0).of(
                &format!(
                    "{way}: {most_rows} rows of 1 client / 1 row of 1 client, rows per second"
                ),
                many_rows.samples_of("rows_per_s"),
                one.samples_of("rows_per_s"),
            ),
        ]);
    }
    goals.push(Goal::AtLeast(0.6).of(
        &format!(
            "peak ({}) / plain Parquet of {peak_rows} rows",
            peak.label.name
        ),
        peak_rate,
        parquet.samples_of("rows_per_s"),
    ));
    for way in others {
        let Some(theirs) = peak_of(measured, &[way]) else {
            continue;
        };
        let what = format!("peak ({}) / peak ({})", peak.label.name, theirs.label.name);
        let theirs = theirs.samples_of("rows_per_s");
        goals.push(Goal::AtLeast(1.0).of(&what, peak_rate, theirs));
    }
    Ok(goals)
}

/// Returns the variant of some ways that wrote the most rows per second, by the median of its
/// turns.
fn peak_of<'a>(measured: &'a [Variant], ways: &[&str]) -> Option<&'a Variant> {
    let median = |variant: &&Variant| {
        Spread::of(variant.samples_of("rows_per_s")).map_or(0.0, |spread| spread.median)
    };
    measured
        .iter()
        .filter(|variant| {
            variant
                .label
                .parameters
                .get("way")
                .is_some_and(|it| ways.iter().any(|way| it == way))
        })
        .max_by(|a, b| median(a).total_cmp(&median(b)))
}
