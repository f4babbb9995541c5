use anyhow::Result;
use futures::FutureExt;

use super::BenchTable;
use super::stubs::{self, StubReads, mb_per_s};
use crate::bench::Bench;
use crate::interleaved::{Candidate, measure_in_turns};
use crate::reading::Way;
use crate::results::{Label, Sample, Variant};
use crate::stub::StubOptions;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "readers",
    title: "Readers: 16 workers",
    method: "16 stub workers in one process send messages of 1,000 rows of 141 bytes, encoded beforehand. The gateway's gather reads them in another process, in 1, 2 and 4 partitions. Each partition is a task on a runtime with as many threads as there are processors.",
    run: |bench| run(bench).boxed_local(),
};

const STUBS: usize = 16;
const ROW_BYTES: usize = 141;
const ROWS: usize = 1_000;
const PARTITIONS: [usize; 3] = [1, 2, 4];

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let bytes = bench.size.pick(2 << 20, 32 << 20, 512 << 20);
    let stubs = stubs::start(
        bench,
        StubOptions {
            count: STUBS,
            rows: ROWS,
            row_bytes: ROW_BYTES,
            batches: (bytes / STUBS / (ROWS * ROW_BYTES)).max(1),
            coalesce_bytes: None,
        },
    )?;
    let mut candidates = Vec::new();
    for partitions in PARTITIONS {
        let mut label = Label::new(name(partitions)).with("partitions", partitions);
        if partitions != PARTITIONS[0] {
            label = label.compared_with(name(PARTITIONS[0]));
        }
        let reader = stubs::reader(bench, &stubs, Way::Gather, partitions)?;
        let work = StubReads::new(reader, 1, |reading| {
            Sample::new()
                .with("mb_per_s", mb_per_s(reading, ROW_BYTES))
                .with("total_ms", reading.total_ms)
                .with("processor_ms", reading.processor_ms)
        });
        candidates.push(Candidate::new(label, work));
    }
    measure_in_turns(bench.turns(), candidates).await
}

fn name(partitions: usize) -> String {
    format!("partitions: {partitions}")
}
