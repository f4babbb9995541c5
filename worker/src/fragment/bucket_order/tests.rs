use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, AsArray, Int64Array, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::*;

const ROWS: i64 = 50_000;

/// Builds a plan with two partitions. Each row has a number and a text.
fn plan() -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8View, true),
    ]));
    let batch = |from: i64| {
        let numbers: Vec<i64> = (from..from + 1_000).collect();
        let texts = numbers
            .iter()
            .map(|n| (n % 5 != 0).then(|| format!("the text of number {n}")));
        let texts = StringViewArray::from_iter(texts);
        let columns: Vec<Arc<dyn Array>> =
            vec![Arc::new(Int64Array::from(numbers)), Arc::new(texts)];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let batches: Vec<_> = (0..ROWS).step_by(1_000).map(batch).collect();
    let (left, right) = batches.split_at(batches.len() / 3);
    MemorySourceConfig::try_new_exec(&[left.to_vec(), right.to_vec()], schema, None).unwrap()
}

fn task(memory: usize) -> Arc<TaskContext> {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(memory)))
        .build_arc()
        .unwrap();
    SessionContext::new_with_config_rt(SessionConfig::new(), runtime).task_ctx()
}

fn order(small_bytes: usize) -> BucketOrder {
    BucketOrder {
        buckets: Buckets::for_partitions(vec![0], 3),
        small_bytes,
        batch_bytes: 64 << 10,
    }
}

struct Read {
    batches: Vec<(RecordBatch, RowsByBucket)>,
}

async fn read(order: BucketOrder, task: &Arc<TaskContext>) -> Result<Read> {
    let ordering = Time::new();
    let (mut rows, outlines) = execute_in_bucket_order(&plan(), task, order, &ordering)?;
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await {
        batches.push((batch?, outlines.next().unwrap()));
    }
    assert!(outlines.next().is_none());
    assert!(ordering.value() > 0);
    Ok(Read { batches })
}

/// Checks that every row comes once, in the bucket that its outline says.
fn check(read: &Read, buckets: &Buckets) {
    let mut last = 0;
    let mut seen = BTreeMap::new();
    for (batch, outline) in &read.batches {
        assert_eq!(outline.rounds as usize, buckets.rounds());
        let mut at = 0;
        for (bucket, rows) in outline.buckets.iter().zip(&outline.rows) {
            let (bucket, rows) = (*bucket as usize, *rows as usize);
            assert!(bucket >= last, "{bucket} after {last}");
            last = bucket;
            let part = batch.slice(at, rows);
            let divided = buckets.divide(&part).unwrap();
            assert_eq!(divided.pieces, [BucketPiece { bucket, rows }]);
            let texts = part.column(1).as_string_view();
            for (row, number) in part
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .enumerate()
            {
                let text = texts.is_valid(row).then(|| texts.value(row).to_owned());
                assert!(seen.insert(*number, text).is_none(), "{number} twice");
            }
            at += rows;
        }
        assert_eq!(at, batch.num_rows());
    }
    assert_eq!(seen.len(), usize::try_from(ROWS).unwrap());
    for (number, text) in seen {
        let expected = (number % 5 != 0).then(|| format!("the text of number {number}"));
        assert_eq!(text, expected);
    }
}

#[tokio::test]
async fn many_rows_come_round_by_round() {
    let (order, task) = (order(1_000), task(64 << 20));
    let read = read(order.clone(), &task).await.unwrap();
    assert!(read.batches.len() > 10, "{}", read.batches.len());
    check(&read, &order.buckets);
    let total = read.batches[0].1.total_bytes;
    assert!((1 << 20..4 << 20).contains(&total), "{total}");
    assert_eq!(task.memory_pool().reserved(), 0);
}

#[tokio::test]
async fn few_rows_come_in_one_round() {
    let (order, task) = (order(64 << 20), task(64 << 20));
    let read = read(order.clone(), &task).await.unwrap();
    check(&read, &order.buckets.with_one_round());
    assert_eq!(task.memory_pool().reserved(), 0);
}

#[tokio::test]
async fn what_may_not_be_held_is_spilled() {
    let (order, task) = (order(1_000), task(600 << 10));
    let read = read(order.clone(), &task).await.unwrap();
    // The pool holds less than half of the rows.
    assert!(read.batches[0].1.total_bytes > 1_200 << 10);
    check(&read, &order.buckets);
    assert_eq!(task.memory_pool().reserved(), 0);
}

#[tokio::test]
async fn few_rows_without_memory_are_spilled_too() {
    let (order, task) = (order(64 << 20), task(100 << 10));
    let read = read(order.clone(), &task).await.unwrap();
    check(&read, &order.buckets);
}
