use anyhow::Result;
use futures::FutureExt;

use super::BenchTable;
use super::mixed_load::{CYCLE, MixedLoad, tables};
use super::running_fleet::FleetLayout;
use crate::bench::Bench;
use crate::interleaved::{Candidate, measure_in_turns};
use crate::results::{Label, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "concurrency",
    title: "Concurrency: point, GROUP BY and JOIN at the same time",
    method: "Clients ask at the same time, each in a session on its own connection, and each sends one question after another. Of ten questions, eight read the row of a key, one groups all rows, and one joins them with another table and groups them. The four workers are separate processes. Each client asks the same number of questions, and begins at another position of the ten. The clients are in the measuring process.",
    run: |bench| run(bench).boxed_local(),
};

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(5_000, 50_000, 1_000_000);
    let counts = bench.size.pick(vec![1, 4], vec![1, 8], vec![1, 8, 64, 256]);
    let layout = FleetLayout::few(bench, "concurrency");
    let mut running = layout.start().await?;
    running.run(&tables(rows)).await?;
    let uri = format!("grpc://{}", running.address());
    let mut candidates = Vec::new();
    for count in counts {
        let label = Label::new(format!("clients: {count}")).with("clients", count);
        let questions = CYCLE * (bench.size.pick(1, 4, 64) / count).max(1);
        let work = MixedLoad::connect(&uri, count, rows, questions).await?;
        candidates.push(Candidate::new(label, work));
    }
    let measured = measure_in_turns(bench.turns(), candidates).await?;
    running.shutdown()?;
    Ok(measured)
}
