use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;

use super::BenchTable;
use super::written_cluster::{self, number};
use crate::bench::Bench;
use crate::disk_flushes::DiskFlushes;
use crate::goals::Goal;
use crate::interleaved::{Candidate, Measure, Turns, measure_in_turns};
use crate::local_process::LocalProcess;
use crate::results::{Label, Sample, Variant};
use crate::writing::measured::{Writers, Writing};
use crate::writing::volary::Ingest;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "sustained_writes",
    title: "Writes that go on",
    method: "Eight clients write batches of 20,000 rows, each durably and one after another, to a cluster of four workers in one process. Peak: for a few seconds, into an empty table. Sustained: for ten minutes without a pause, so that flushing the log and merging segments are included. Written: what the workers wrote to the log, from the log into segments, as segments at once, and while merging (system.storage). Write amplification is the sum of these divided by what was written at first, to the log or as segments at once. Waiting: what was left to merge at the end.",
    run: |bench| run(bench).boxed_local(),
};

const CLIENTS: usize = 8;
const ROWS: usize = 20_000;
const PEAK: &str = "peak";
const SUSTAINED: &str = "sustained";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(10, ROWS, ROWS);
    let peak_time = Duration::from_millis(bench.size.pick(10, 2_000, 5_000));
    let sustained_time = Duration::from_millis(bench.size.pick(200, 20_000, 600_000));
    let cluster = Rc::new(written_cluster::start(bench, "sustained-writes")?);
    let disk = DiskFlushes::of(&bench.scratch_dir)?;
    let writers = Writers::new(Ingest(Rc::clone(&cluster)));
    let writing = |time| Writing {
        writers: &writers,
        clients: CLIENTS,
        rows,
        time,
        disk: disk.as_ref(),
    };
    let label = |name: &str, time: Duration| {
        Label::new(name)
            .with("what", name)
            .with("seconds", time.as_secs_f64())
    };
    let sustained = AmplifiedWriting {
        writing: writing(sustained_time),
        cluster: &cluster,
    };
    let candidates = vec![
        Candidate::new(label(PEAK, peak_time), writing(peak_time)),
        Candidate::new(
            label(SUSTAINED, sustained_time).compared_with(PEAK),
            sustained,
        ),
    ];
    // A turn takes ten minutes.
    let turns = Turns {
        warm_up: 0,
        counted: bench.rounds.unwrap_or(1),
    };
    let mut measured = measure_in_turns(turns, candidates).await?;
    let rates = measured.iter().map(|it| it.samples_of("rows_per_s"));
    if let [peak, sustained] = rates.collect::<Vec<_>>()[..] {
        let what = "sustained / peak, rows per second";
        let goal = Goal::AtLeast(0.4).of(what, sustained, peak);
        measured.push(goal);
    }
    Ok(measured)
}

/// Writes, and reports how much the workers wrote for that.
struct AmplifiedWriting<'a> {
    writing: Writing<'a>,
    cluster: &'a LocalProcess,
}

impl Measure for AmplifiedWriting<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let mut client = Client::connect(self.cluster.uri()).await?;
            let before = Written::read(&mut client).await?;
            let sample = self.writing.measure().await?;
            let after = Written::read(&mut client).await?;
            let waiting = number(&mut client, "sum(waiting_bytes)", "system.storage").await?;
            let bytes = after.since(&before);
            let at_first = bytes.logged + bytes.directly;
            let all = at_first + bytes.flushed + bytes.compacted;
            let mib = |bytes: f64| bytes / f64::from(1 << 20);
            Ok(sample
                .with("logged_mib", mib(bytes.logged))
                .with("flushed_mib", mib(bytes.flushed))
                .with("written_mib", mib(bytes.directly))
                .with("compacted_mib", mib(bytes.compacted))
                .with("waiting_mib", mib(waiting))
                .with("write_amplification", all / at_first.max(1.0)))
        }
        .boxed_local()
    }
}

/// The bytes that all workers have written since their start.
#[derive(Debug, Clone, Copy)]
struct Written {
    logged: f64,
    flushed: f64,
    /// The bytes of writes that were too large for the log.
    directly: f64,
    compacted: f64,
}

impl Written {
    async fn read(client: &mut Client) -> Result<Self> {
        let mut sum =
            async |column: &str| number(client, &format!("sum({column})"), "system.storage").await;
        Ok(Self {
            logged: sum("logged_bytes").await?,
            flushed: sum("flushed_bytes").await?,
            directly: sum("written_bytes").await?,
            compacted: sum("compacted_bytes").await?,
        })
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            logged: self.logged - earlier.logged,
            flushed: self.flushed - earlier.flushed,
            directly: self.directly - earlier.directly,
            compacted: self.compacted - earlier.compacted,
        }
    }
}
