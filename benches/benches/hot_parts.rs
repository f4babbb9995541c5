//! The hot parts of loading and sending: shard hashes and batch sizing.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringViewArray};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use volary_gateway::shard_key::shards_of;

const ROWS: i64 = 65_536;
const SHARDS: u32 = 64;

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

criterion_group!(benches, shard_hashes);
criterion_main!(benches);
