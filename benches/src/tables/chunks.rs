use anyhow::Result;
use futures::FutureExt;
use volary_gateway::config::Gather;

use super::BenchTable;
use super::stubs::{self, StubReads, mb_per_s};
use crate::bench::Bench;
use crate::interleaved::{Candidate, measure_in_turns};
use crate::reading::Way;
use crate::results::{Label, Sample, Variant};
use crate::statistics::Spread;
use crate::stub::StubOptions;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "chunks",
    title: "Rows and chunks: one reader",
    method: "One stub worker in its own process sends messages with a given number of rows, encoded beforehand, over loopback. One partition of the gateway's gather reads them in another process. Chunked: batches of 8,192 rows become messages as on workers, with the gateway's default target size. Bytes are the payload bytes of rows, without what Arrow adds to them. Chunked is compared with the fixed size that was fastest for the width.",
    run: |bench| run(bench).boxed_local(),
};

const ROW_BYTES: [usize; 4] = [48, 141, 723, 4_096];
const ROWS: [usize; 4] = [1, 30, 1_000, 65_536];
/// Maximum payload of a message: the default limit of gateways, less what Arrow adds.
const MAX_MESSAGE_BYTES: usize = (256 << 20) - (1 << 20);
/// Number of rows in the batches that operators produce.
const OPERATOR_BATCH_ROWS: usize = 8_192;
const METRIC: &str = "mb_per_s";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let mut measured = Vec::new();
    for row_bytes in ROW_BYTES {
        measured.extend(measure_width(bench, row_bytes).await?);
    }
    Ok(measured)
}

async fn measure_width(bench: &Bench, row_bytes: usize) -> Result<Vec<Variant>> {
    let candidate = |rows: usize, coalesce_bytes: Option<usize>| {
        let options = StubOptions {
            count: 1,
            rows,
            row_bytes,
            batches: batches(bench, rows * row_bytes),
            coalesce_bytes,
        };
        let label = label(row_bytes, coalesce_bytes.is_none().then_some(rows));
        let stub = stubs::start(bench, options)?;
        let reader = stubs::reader(bench, &stub, Way::Gather, 1)?;
        let work = StubReads::new(reader, 1, move |reading| {
            Sample::new().with(METRIC, mb_per_s(reading, row_bytes))
        });
        anyhow::Ok(Candidate::new(label, work))
    };
    let mut candidates = Vec::new();
    for rows in ROWS {
        if rows * row_bytes <= MAX_MESSAGE_BYTES {
            candidates.push(candidate(rows, None)?);
        }
    }
    let target_bytes = Gather::default().batch.bytes();
    candidates.push(candidate(OPERATOR_BATCH_ROWS, Some(target_bytes))?);
    let mut measured = measure_in_turns(bench.short_turns(), candidates).await?;
    compare_with_fastest(&mut measured);
    Ok(measured)
}

/// Returns the number of batches in a turn, which makes the turn neither too short nor too long.
fn batches(bench: &Bench, batch_bytes: usize) -> usize {
    let bytes = bench.size.pick(1 << 20, 16 << 20, 256 << 20);
    let most = bench.size.pick(50, 2_000, 20_000);
    (bytes / batch_bytes).clamp(1, most)
}

/// Returns the label of a variant. `rows` is `None` for Volary's own chunking.
fn label(row_bytes: usize, rows: Option<usize>) -> Label {
    let label = match rows {
        Some(rows) => Label::new(format!("{row_bytes} bytes × {rows}")).with("rows", rows),
        None => Label::new(format!("{row_bytes} bytes, chunked")),
    };
    label
        .with("row_bytes", row_bytes)
        .with("chunked", rows.is_none())
}

/// Sets the variant that Volary's own chunking is compared with: the fastest fixed size. Volary's
/// own chunking is the last variant.
fn compare_with_fastest(measured: &mut [Variant]) {
    let Some((chunked, fixed)) = measured.split_last_mut() else {
        return;
    };
    let median = |variant: &Variant| {
        let spread = Spread::of(variant.samples_of(METRIC));
        spread.map_or(0.0, |spread| spread.median)
    };
    let fastest = fixed.iter().max_by(|a, b| median(a).total_cmp(&median(b)));
    chunked.label.baseline = fastest.map(|fastest| fastest.label.name.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_chunking_is_compared_with_the_fastest_size() {
        let variant = |rows, mb_per_s| {
            let mut measured = Variant::new(label(48, rows));
            measured.push(Sample::new().with(METRIC, mb_per_s));
            measured
        };
        let mut measured = [
            variant(Some(1), 3.0),
            variant(Some(30), 90.0),
            variant(Some(1_000), 80.0),
            variant(None, 100.0),
        ];
        compare_with_fastest(&mut measured);
        let baselines = measured.map(|variant| variant.label.baseline);
        assert_eq!(
            baselines,
            [None, None, None, Some("48 bytes × 30".to_owned())]
        );
    }
}
