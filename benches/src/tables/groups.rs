use std::time::Instant;

use anyhow::{Result, ensure};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::BenchTable;
use super::running_fleet::FleetLayout;
use crate::bench::{Bench, Size};
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::procfs::PeakGrowth;
use crate::results::{Label, Sample, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "groups",
    title: "Memory per group",
    method: "GROUP BY a BIGINT with three aggregates (count, sum, min of another BIGINT column) and two rows per group. The four workers are separate processes, and their shard key is another column. So the gateway merges all groups, and sends one row that needs all of them. Each turn restarts all processes on the same rows, and first runs the statement over a few rows. Growth is the difference between the peak of the gateway's resident memory and its memory before. Limited: with SET query_memory = '256MiB'. Freed given back: the gateway's allocator returns freed memory to the system at once instead of within ten seconds (_RJEM_MALLOC_CONF), so that the growth is what the merge needs.",
    run: |bench| run(bench).boxed_local(),
};

const ROWS_PER_GROUP: u64 = 2;
const SHARDS: usize = 16;
/// Number of rows of an INSERT. Each worker sorts its part of the rows in memory.
const ROWS_PER_INSERT: usize = 20_000_000;
const LIMIT: &str = "256MiB";
/// The environment variable that makes jemalloc return freed memory to the system at once.
const RETURN_FREED_MEMORY: (&str, &str) =
    ("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0");

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let groups: &[u64] = match bench.size {
        Size::Smoke => &[50_000],
        Size::Quick => &[100_000],
        Size::Normal => &[1_000_000, 10_000_000],
        Size::Full => &[1_000_000, 10_000_000, 100_000_000],
    };
    let mut measured = Vec::new();
    for groups in groups {
        measured.extend(measure_groups(bench, *groups).await?);
    }
    Ok(measured)
}

async fn measure_groups(bench: &Bench, groups: u64) -> Result<Vec<Variant>> {
    let layout = FleetLayout::few(bench, &format!("groups-{groups}"));
    let mut running = layout.start().await?;
    let mut statements = vec![format!(
        "CREATE TABLE t (id BIGINT, k BIGINT, v BIGINT, w BIGINT) WITH (shard_key = 'id', shards = {SHARDS})"
    )];
    let rows = groups * ROWS_PER_GROUP;
    for first in (1..=rows).step_by(ROWS_PER_INSERT) {
        let last = rows.min(first + ROWS_PER_INSERT as u64 - 1);
        statements.push(format!(
            "INSERT INTO t SELECT value, value % {groups}, value % 1000, value AS again FROM generate_series({first}, {last})"
        ));
    }
    running.run(&statements).await?;
    running.shutdown()?;
    let label = |name: String, memory: &str| {
        let label = Label::new(name).with("groups", groups);
        label.with("memory", memory)
    };
    let unlimited = label(format!("{groups} groups"), "unlimited");
    let limited = label(format!("{groups} groups, limited"), "256 MiB");
    let given_back = label(format!("{groups} groups, freed given back"), "given back");
    let name = unlimited.name.clone();
    let merge = |layout, limit| GroupQuery {
        layout,
        groups,
        limit,
    };
    let gives_back = layout
        .clone()
        .with_environment(RETURN_FREED_MEMORY.0, RETURN_FREED_MEMORY.1);
    let candidates = vec![
        Candidate::new(unlimited, merge(&layout, None)),
        Candidate::new(
            limited.compared_with(name.clone()),
            merge(&layout, Some(LIMIT)),
        ),
        Candidate::new(given_back.compared_with(name), merge(&gives_back, None)),
    ];
    measure_in_turns(bench.long_turns(), candidates).await
}

/// Runs the statement on a gateway that has just started.
struct GroupQuery<'a> {
    layout: &'a FleetLayout,
    groups: u64,
    limit: Option<&'static str>,
}

impl Measure for GroupQuery<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let mut running = self.layout.start().await?;
            if let Some(limit) = self.limit {
                running
                    .run(&[format!("SET query_memory = '{limit}'")])
                    .await?;
            }
            running.run(&[statement("WHERE id < 100")]).await?;
            let growth = PeakGrowth::begin(running.gateway())?;
            let started = Instant::now();
            let merged = running.client.collect(&statement("")).await?;
            let seconds = started.elapsed().as_secs_f64();
            let bytes = growth.bytes()? as f64;
            running.shutdown()?;
            let counted = merged.column(0).as_primitive::<Int64Type>().value(0);
            ensure!(
                u64::try_from(counted) == Ok(self.groups),
                "{counted} groups, not {}",
                self.groups
            );
            Ok(Sample::new()
                .with("bytes_per_group", bytes / self.groups as f64)
                .with("growth_mib", bytes / f64::from(1 << 20))
                .with("total_s", seconds))
        }
        .boxed_local()
    }
}

/// Returns the statement. The outer query uses all aggregates, so that the planner removes none.
fn statement(condition: &str) -> String {
    format!(
        "SELECT count(*), sum(c), sum(s), sum(m) FROM (SELECT k, count(*) AS c, sum(v) AS s, min(w) AS m FROM t {condition} GROUP BY k) AS g"
    )
}
