use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;

use super::BenchTable;
use crate::bench::Bench;
use crate::goals::Goal;
use crate::interleaved::{Candidate, measure_in_turns};
use crate::local_process::{IN_PROCESS_CALLS, LocalProcess};
use crate::looking_up::measured::{Askers, LookingUp};
use crate::looking_up::postgres::Any;
use crate::looking_up::volary::Lookups;
use crate::postgres::{PostgresServer, Programs};
use crate::results::{Label, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "lookups",
    title: "Rows of many keys by batch size",
    method: "Clients ask for the rows of random keys at the same time, each on its own connection, for a fixed time, batch after batch. The table has four columns (BIGINT, BIGINT, DOUBLE PRECISION, VARCHAR) and one row for each key. Volary is a gateway and four workers in one process. The gateway calls the workers over loopback, as between machines, or within the process, as it does unless it is told otherwise. A client of Volary has a stream of lookups that stays open (a DoExchange), and sends a batch after the answer to the one before it. PostgreSQL has its default settings, a primary key, and a connection over loopback; a batch is the one parameter of a prepared SELECT … WHERE k = ANY($1). Both have been asked before (warm-up turns), so what they keep in memory is there. The server's processor time is that of Volary's whole process.",
    run: |bench| run(bench).boxed_local(),
};

const SIZES: &[usize] = &[1, 10, 100, 1_000, 2_000];
const SMOKE_SIZES: &[usize] = &[1, 10];
const CLIENTS: &[usize] = &[1, 8];
const SMOKE_CLIENTS: &[usize] = &[1, 2];

/// Volary's ways, by name, with the value of [`IN_PROCESS_CALLS`].
const OURS: &[(&str, &str)] = &[
    ("Volary, lookups", "false"),
    ("Volary, lookups, calls in process", "true"),
];

const ROWS: u64 = 10_000_000;
const QUICK_ROWS: u64 = 1_000_000;
const SMOKE_ROWS: u64 = 2_000;

/// Least factor between batches of most keys and single keys, in keys per second.
const LEAST_GAIN: f64 = 5.8;
/// Least factor between Volary and PostgreSQL, in keys per second.
const LEAST_OVER_POSTGRES: f64 = 5.0;
const MILLION: f64 = 1e6;

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let sizes = bench.size.pick(SMOKE_SIZES, SIZES, SIZES);
    let clients = bench.size.pick(SMOKE_CLIENTS, CLIENTS, CLIENTS);
    let rows = bench.size.pick(SMOKE_ROWS, QUICK_ROWS, ROWS);
    let time = Duration::from_millis(bench.size.pick(10, 300, 1_000));
    let directory = bench.scratch("lookups");
    std::fs::create_dir_all(&directory)?;
    let program = bench.volary_program();
    let mut ways = Vec::new();
    for (place, (name, in_process)) in OURS.iter().enumerate() {
        let directory = directory.join(format!("cluster-{place}"));
        let calls = [(IN_PROCESS_CALLS, (*in_process).to_owned())];
        let cluster = LocalProcess::start(name, &program, &directory, &calls)?;
        let way = Lookups::new(name, cluster, rows).await?;
        ways.push(Askers::new(way, rows));
    }
    let programs = Programs::find();
    if let Some(programs) = &programs {
        let server = PostgresServer::start(programs, &directory).await?;
        ways.push(Askers::new(Any::new(server, rows).await?, rows));
    }
    let mut candidates = Vec::new();
    for keys in sizes {
        for clients in clients {
            for askers in &ways {
                let label = label(askers.way().name(), *clients, *keys);
                let work = LookingUp {
                    askers,
                    clients: *clients,
                    keys: *keys,
                    time,
                };
                candidates.push(Candidate::new(label, work));
            }
        }
    }
    let mut measured = measure_in_turns(bench.turns(), candidates).await?;
    let goals = goals(&measured, &ways, sizes, clients)?;
    measured.extend(goals);
    if programs.is_none() {
        let missing = "PostgreSQL: not installed; `apt-get install postgresql` installs it";
        measured.push(Variant::new(Label::new(missing)));
    }
    Ok(measured)
}

fn label(way: &str, clients: usize, keys: usize) -> Label {
    Label::new(name(way, clients, keys))
        .with("way", way)
        .with("clients", clients)
        .with("keys", keys)
}

fn name(way: &str, clients: usize, keys: usize) -> String {
    format!("{way}, clients: {clients}, keys: {keys}")
}

/// Compares the measured values with the goals.
fn goals(
    measured: &[Variant],
    ways: &[Askers],
    sizes: &[usize],
    clients: &[usize],
) -> Result<Vec<Variant>> {
    let rates = |askers: &Askers, clients: usize, keys: usize| {
        let name = name(askers.way().name(), clients, keys);
        let found = measured.iter().find(|variant| variant.label.name == name);
        let found = found.with_context(|| format!("\"{name}\" was not measured"))?;
        anyhow::Ok(found.samples_of("keys_per_s").to_vec())
    };
    let (ours, others) = ways.split_at(OURS.len());
    let most = sizes.last().copied().unwrap_or(1);
    let mut goals = Vec::new();
    for askers in ours {
        let way = askers.way().name();
        for clients in clients {
            let of_most = rates(askers, *clients, most)?;
            let of_one = rates(askers, *clients, 1)?;
            let what = format!("{way}, {most} keys / 1 key, {clients} clients, keys per second");
            goals.push(Goal::AtLeast(LEAST_GAIN).of(&what, &of_most, &of_one));
            let what =
                format!("{way}, {most} keys, {clients} clients, keys per second / a million");
            let million = vec![MILLION; of_most.len()];
            goals.push(Goal::AtLeast(1.0).of(&what, &of_most, &million));
            for other in others {
                for keys in sizes {
                    let what = format!(
                        "{way} / {}, {keys} keys, {clients} clients, keys per second",
                        other.way().name()
                    );
                    let of_ours = rates(askers, *clients, *keys)?;
                    let theirs = rates(other, *clients, *keys)?;
                    goals.push(Goal::AtLeast(LEAST_OVER_POSTGRES).of(&what, &of_ours, &theirs));
                }
            }
        }
    }
    Ok(goals)
}
