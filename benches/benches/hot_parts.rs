//! Benchmarks of the hot parts of loading and sending: shard hashes and batch sizing.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::{StreamExt, stream};
use tokio::runtime;
use volary_exec::batches::CoalesceBytes;
use volary_exec::shard_key::shards_of;

const ROWS: i64 = 65_536;
const SHARDS: u32 = 64;
/// Target size of a message in bytes.
const TARGET_BYTES: usize = 1 << 20;

fn shard_hashes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shards_of");
    group.throughput(Throughput::Elements(ROWS.unsigned_abs()));
    let columns: [(&str, ArrayRef); 2] = [
        ("int64", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        (
            "utf8view, 16 bytes",
            Arc::new(StringViewArray::from_iter_values(
                (0..ROWS).map(|n| format!("key-{n:012}")),
            )),
        ),
    ];
    for (name, column) in columns {
        group.bench_with_input(
            BenchmarkId::from_parameter(name),
            &column,
            |bencher, column| {
                bencher.iter(|| shards_of(black_box(column.as_ref()), SHARDS));
            },
        );
    }
    group.finish();
}

/// Measures how fast the small batches that filters leave are coalesced into messages.
fn batch_sizing(criterion: &mut Criterion) {
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_time().build() else {
        return;
    };
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let Ok(all) = RecordBatch::try_from_iter([("k", column)]) else {
        return;
    };
    let mut group = criterion.benchmark_group("coalesce");
    group.throughput(Throughput::Elements(ROWS.unsigned_abs()));
    for rows in [30, 1_000, 8_192] {
        let batches: Vec<_> = (0..all.num_rows())
            .step_by(rows)
            .map(|at| all.slice(at, rows.min(all.num_rows() - at)))
            .collect();
        group.bench_with_input(
            BenchmarkId::new("rows of a batch", rows),
            &batches,
            |bencher, batches| {
                bencher.iter(|| {
                    let input = stream::iter(batches.iter().cloned().map(Ok));
                    let sized = CoalesceBytes::new(input, all.schema(), TARGET_BYTES);
                    runtime.block_on(sized.count())
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, shard_hashes, batch_sizing);
criterion_main!(benches);
