use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use datafusion::common::ScalarValue;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;
use volary_exec::shard_key::shard_of_scalar;

use super::BenchTable;
use super::explain::{explain_text, parse_size};
use super::running_fleet::{FleetLayout, RunningFleet};
use crate::bench::{Bench, Size};
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::procfs::{ObservedProcess, WorkSnapshot};
use crate::results::{Label, Sample, Variant};
use crate::statistics::percentile;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "relays",
    title: "Relays: merging on some of the workers",
    method: "Real workers in four processes are behind a gateway in its own process. Each worker has one shard with the same number of rows (2,000), and has answered the statements before. Statements are sent over Flight SQL, in sessions with different values of SET relays: off (the gateway alone merges the rows of all workers), auto (the estimated cost decides), and numbers of relays: a third of the square root of the number of workers, the square root, and three times the square root. The number in parentheses is the number of relays that EXPLAIN shows; 0 means none. The important figure is the processor time of the gateway, because that is the bottleneck of a cluster with many workers. The latency here is not that of a real cluster: all nodes share the processors of this one machine, so the work of the relays makes a query longer. On machines of their own, relays would work at the same time as the gateway and each other. Processor time is that of the whole gateway, and that of all worker processes together, including relays. It is per query, averaged over several queries, and includes background work: the gateway asks thousands of workers for their reports. p50: the time until the client, which is in the measuring process, has all rows. Streams: the streams that the gateway reads. Received: their number times the bytes of the median stream, as EXPLAIN ANALYZE reports them. Statements: count is a count(*) with a filter, one row of each worker; 10 groups and 2000 groups are a GROUP BY whose groups are on all workers; top 100 is an ORDER BY with a LIMIT, over rows that are spread over the workers; different groups is a GROUP BY in which each worker has 100 groups that no other worker has, and of which the gateway sends one row.",
    run: |bench| run(bench).boxed_local(),
};

/// Number of worker processes. Each number of relays has its own connections between workers, and a
/// connection takes a file descriptor at each end. With a limit of 20,000 open files per process,
/// two processes are too few.
const HOSTS: usize = 4;
const OFF: &str = "off";
const AUTO: &str = "auto";
const FEW_GROUPS: usize = 10;
/// Number of groups of each worker that no other worker has.
const DIFFERENT_GROUPS: usize = 100;
const TOP: usize = 100;
/// Name of the gather in EXPLAIN.
const GATHER: &str = "GatherExec: ";
/// Label of the received bytes in EXPLAIN ANALYZE. It is followed by the bytes of the smallest, the
/// median and the largest stream.
const BYTES: &str = " bytes=";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let workers = bench.fan_out();
    let rows = bench.size.pick(200, 2_000, 2_000);
    let layout = FleetLayout::many_in(bench, "relays", workers, HOSTS);
    let mut running = layout.start().await?;
    running.run(&table(workers, rows)?).await?;
    let processes = Processes::of(&running);
    let mut sessions = Vec::new();
    for setting in settings(workers) {
        sessions.push(Session::open(running.address(), setting).await?);
    }
    let mut measured = Vec::new();
    for statement in statements(bench.size, rows) {
        measured.extend(measure_statement(bench, &processes, &mut sessions, &statement).await?);
    }
    drop(sessions);
    running.shutdown()?;
    Ok(measured)
}

async fn measure_statement(
    bench: &Bench,
    processes: &Processes,
    sessions: &mut [Session],
    statement: &Statement,
) -> Result<Vec<Variant>> {
    let mut candidates = Vec::with_capacity(sessions.len());
    for session in sessions {
        let plan = explain_statement(&mut session.client, "EXPLAIN", statement).await?;
        let label = label(statement, &session.setting, GatherCounts::of(&plan)?);
        let queries = Queries {
            client: &mut session.client,
            statement,
            processes,
        };
        candidates.push(Candidate::new(label, queries));
    }
    measure_in_turns(bench.long_turns(), candidates).await
}

/// Returns the statements that create a table `t` with a shard and `rows` rows for each worker. On
/// each worker, `many` counts the rows from 0, and `few` is the last digit of `many`. `v` counts
/// the rows of all workers from 0, so that neighbouring values are on different workers.
fn table(workers: usize, rows: usize) -> Result<[String; 2]> {
    let keys = keys(workers)?.into_iter().enumerate();
    let chosen: Vec<_> = keys
        .map(|(place, key)| format!("({key}, {place})"))
        .collect();
    Ok([
        format!(
            "CREATE TABLE t (k BIGINT, few BIGINT, many BIGINT, v BIGINT) WITH (shard_key = 'k', shards = {workers})"
        ),
        format!(
            "INSERT INTO t SELECT chosen.k, series.n % {FEW_GROUPS} AS few, series.n AS many, series.n * {workers} + chosen.place AS v FROM (VALUES {}) AS chosen (k, place) CROSS JOIN generate_series(0, {}) AS series (n)",
            chosen.join(", "),
            rows.saturating_sub(1)
        ),
    ])
}

/// Returns a shard key for each shard. With consecutive keys, some workers would have few rows, and
/// some none.
fn keys(shards: usize) -> Result<Vec<i64>> {
    let count = u32::try_from(shards)?;
    let mut keys = BTreeMap::new();
    let mut key = 0;
    while keys.len() < shards {
        let shard = shard_of_scalar(&ScalarValue::Int64(Some(key)), count)?;
        keys.entry(shard).or_insert(key);
        key += 1;
    }
    Ok(keys.into_values().collect())
}

/// Returns the settings of relays to compare. The other settings are compared with the first one.
fn settings(workers: usize) -> Vec<String> {
    let root = workers.isqrt();
    let mut counts = [root / 3, root, root * 3]
        .map(|count| count.min(workers).max(1))
        .to_vec();
    counts.dedup();
    let words = [OFF, AUTO].map(str::to_owned).into_iter();
    words
        .chain(counts.iter().map(ToString::to_string))
        .collect()
}

/// A statement, with the size of its answer and how often it runs.
struct Statement {
    name: String,
    sql: String,
    /// The number of rows in the answer.
    rows: usize,
    /// The number of times that the statement runs in a turn.
    times: u32,
}

/// Returns the statements over a table that has `rows` rows for each worker.
fn statements(size: Size, rows: usize) -> [Statement; 5] {
    let (often, seldom) = (size.pick(2, 4, 6), size.pick(1, 2, 3));
    let statement = |name: String, sql: String, rows: usize, times: u32| Statement {
        name,
        sql,
        rows,
        times,
    };
    let grouped =
        |column: &str| format!("SELECT {column}, count(*), sum(v) FROM t GROUP BY {column}");
    [
        statement(
            "count".to_owned(),
            "SELECT count(*) FROM t WHERE v > 0".to_owned(),
            1,
            often,
        ),
        statement(
            format!("{FEW_GROUPS} groups"),
            grouped("few"),
            FEW_GROUPS,
            often,
        ),
        statement(format!("{rows} groups"), grouped("many"), rows, seldom),
        statement(
            format!("top {TOP}"),
            format!("SELECT v, k FROM t ORDER BY v LIMIT {TOP}"),
            TOP,
            seldom,
        ),
        statement(
            "different groups".to_owned(),
            format!(
                "SELECT count(*), sum(c) FROM (SELECT v, count(*) AS c FROM t WHERE many < {DIFFERENT_GROUPS} GROUP BY v) AS g"
            ),
            1,
            seldom,
        ),
    ]
}

fn label(statement: &Statement, setting: &str, gathering: GatherCounts) -> Label {
    let relays = gathering.relays;
    let label = Label::new(name(statement, setting, relays))
        .with("statement", statement.name.as_str())
        .with("setting", setting)
        .with("relays", relays)
        .with("workers", gathering.workers);
    if setting == OFF {
        label
    } else {
        label.compared_with(name(statement, OFF, 0))
    }
}

fn name(statement: &Statement, setting: &str, relays: usize) -> String {
    format!("{}, relays: {setting} ({relays})", statement.name)
}

/// A session with a setting of relays.
struct Session {
    client: Client,
    setting: String,
}

impl Session {
    async fn open(address: &str, setting: String) -> Result<Self> {
        let mut client = Client::connect(&format!("grpc://{address}")).await?;
        client.collect(&format!("SET relays = '{setting}'")).await?;
        Ok(Self { client, setting })
    }
}

/// The processes of a fleet.
struct Processes {
    gateway: ObservedProcess,
    hosts: Vec<ObservedProcess>,
}

/// The work that the processes of a fleet had done at some time.
struct FleetWork {
    gateway: WorkSnapshot,
    hosts: Vec<WorkSnapshot>,
}

/// The processor time of the processes of a fleet between two times.
struct FleetProcessorTime {
    gateway: Duration,
    workers: Duration,
}

impl Processes {
    fn of(running: &RunningFleet) -> Self {
        Self {
            gateway: running.gateway(),
            hosts: running.hosts(),
        }
    }

    fn work(&self) -> Result<FleetWork> {
        let hosts = self.hosts.iter().map(ObservedProcess::work);
        Ok(FleetWork {
            gateway: self.gateway.work()?,
            hosts: hosts.collect::<Result<_>>()?,
        })
    }
}

impl FleetWork {
    fn since(&self, earlier: &Self) -> FleetProcessorTime {
        let hosts = self.hosts.iter().zip(&earlier.hosts);
        FleetProcessorTime {
            gateway: self.gateway.since(&earlier.gateway).processor_time,
            workers: hosts
                .map(|(now, then)| now.since(then).processor_time)
                .sum(),
        }
    }
}

/// Runs a statement in a session again and again.
struct Queries<'a> {
    client: &'a mut Client,
    statement: &'a Statement,
    processes: &'a Processes,
}

impl Measure for Queries<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            // Other variants have run since the last turn. This first statement makes the session
            // equally warm in all variants.
            let analysed =
                explain_statement(self.client, "EXPLAIN ANALYZE", self.statement).await?;
            let streams = GatherCounts::of(&analysed)?.streams() as f64;
            let received = median_bytes(&analysed)? as f64 * streams;
            let mut latencies_ms = Vec::new();
            let before = self.processes.work()?;
            for _ in 0..self.statement.times {
                latencies_ms.push(answer_ms(self.client, self.statement).await?);
            }
            let taken = self.processes.work()?.since(&before);
            let per_query =
                |taken: Duration| taken.as_secs_f64() * 1e3 / f64::from(self.statement.times);
            Ok(Sample::new()
                .with("gateway_processor_ms", per_query(taken.gateway))
                .with("workers_processor_ms", per_query(taken.workers))
                .with("p50_ms", percentile(&latencies_ms, 50))
                .with("streams", streams)
                .with("received_kib", received / 1024.0))
        }
        .boxed_local()
    }
}

/// Returns how long the answer takes, in milliseconds.
async fn answer_ms(client: &mut Client, statement: &Statement) -> Result<f64> {
    let started = Instant::now();
    let answer = client.collect(&statement.sql).await?;
    let took = started.elapsed();
    ensure!(
        answer.num_rows() == statement.rows,
        "{} rows, not {}: {}",
        answer.num_rows(),
        statement.rows,
        statement.sql
    );
    Ok(took.as_secs_f64() * 1e3)
}

/// Returns the text of EXPLAIN or EXPLAIN ANALYZE for a statement.
async fn explain_statement(
    client: &mut Client,
    explain: &str,
    statement: &Statement,
) -> Result<String> {
    let shown = client
        .collect(&format!("{explain} {}", statement.sql))
        .await?;
    explain_text(&shown)
}

/// The number of workers and relays of a gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GatherCounts {
    workers: usize,
    /// The number of relays, or 0 if the gateway itself asks all workers.
    relays: usize,
}

impl GatherCounts {
    /// Reads the numbers from the text of EXPLAIN.
    fn of(explained: &str) -> Result<Self> {
        let shown = gather_text(explained)?.lines().next().unwrap_or_default();
        let number = |key: &str| {
            let mut parts = shown.split(", ");
            parts.find_map(|part| part.strip_prefix(key)?.parse::<usize>().ok())
        };
        Ok(Self {
            workers: number("workers=").context("EXPLAIN shows a gather without workers")?,
            relays: number("relays=").unwrap_or(0),
        })
    }

    /// Returns the number of streams that the gateway reads.
    fn streams(self) -> usize {
        if self.relays > 0 {
            self.relays
        } else {
            self.workers
        }
    }
}

/// Returns the bytes of the median stream that the gateway receives.
fn median_bytes(explained: &str) -> Result<u64> {
    let sizes = gather_text(explained)?.split_once(BYTES);
    let median = sizes.and_then(|(_, sizes)| sizes.split('/').nth(1));
    parse_size(median.with_context(|| format!("EXPLAIN ANALYZE does not say{BYTES}: {explained}"))?)
}

/// Returns the text from the description of the gather to the end.
fn gather_text(explained: &str) -> Result<&str> {
    let (_, gather) = explained
        .split_once(GATHER)
        .with_context(|| format!("EXPLAIN shows no gather: {explained}"))?;
    Ok(gather)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_a_key() {
        let keys = keys(100).unwrap();
        let shards = keys
            .iter()
            .map(|key| shard_of_scalar(&ScalarValue::Int64(Some(*key)), 100).unwrap());
        assert!(shards.eq(0..100), "{keys:?}");
    }

    #[test]
    fn numbers_of_relays_lie_around_the_square_root_of_the_workers() {
        assert_eq!(settings(2_160), ["off", "auto", "15", "46", "138"]);
        assert_eq!(settings(8), ["off", "auto", "1", "2", "6"]);
        assert_eq!(settings(1), ["off", "auto", "1"]);
    }

    #[test]
    fn the_gateway_reads_relays_where_there_are_some() {
        let streams = |gather: &str| {
            let text = format!("FinalExec, output_bytes=1 B\n  GatherExec: {gather}\n");
            GatherCounts::of(&text).unwrap().streams()
        };
        assert_eq!(streams("workers=9, relays=3, ends because, relays=5"), 3);
        assert_eq!(streams("workers=9, ordered\n  relays=3"), 9);
        assert!(GatherCounts::of("ShardScanExec: workers=1").is_err());
        assert!(GatherCounts::of("GatherExec: ordered").is_err());
    }

    #[test]
    fn the_bytes_of_the_stream_in_the_middle_are_found() {
        let text = "bytes=1 B\nGatherExec: workers=2\n| plan_bytes=9 B min/median/max: rows=1/2/3 bytes=4 B/1.5 KiB/2 KiB x=1 B/2 B/3 B";
        assert_eq!(median_bytes(text).unwrap(), 1_536);
        assert!(median_bytes("GatherExec: plan_bytes=9 B").is_err());
    }
}
