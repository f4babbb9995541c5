use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use tempfile::TempDir;
use volary_faulty_disk::FaultyDisk;
use volary_flight_proto::control::TableExpiry;
use volary_flight_proto::fragment::Expiry;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write_set::WriteSet;
use volary_node::disk::LocalDisk;
use volary_node::size::MemorySize;

use super::*;
use crate::storage::Storage;
use crate::write::tests::logged::{keys_seen, restart, small_worker, write_keys};
use crate::write::tests::{SHARDS, Worker, files_below, reader, request, schema, worker};

const TABLE: TableId = TableId(3);

fn table() -> TableDescription {
    request(&schema(), true).table.unwrap()
}

fn up_to(write: u64) -> Snapshot {
    Snapshot::new(WriteId(write), &WriteSet::default())
}

/// Writes the keys 10 · w to 10 · w + 9 with each write w from `first` to `last`.
async fn write_tens(worker: &Worker, first: u64, last: u64) {
    for write in first..=last {
        let start = i64::try_from(10 * write).unwrap();
        write_keys(worker, write, &(start..start + 10).collect::<Vec<_>>()).await;
    }
}

fn tens(first: i64, last: i64) -> Vec<i64> {
    (10 * first..10 * last + 10).collect()
}

fn segments(worker: &Worker) -> Vec<Arc<Segment>> {
    worker.context.storage.all_segments()
}

#[tokio::test]
async fn an_optimized_table_has_a_sorted_segment_for_each_shard_and_the_same_rows_at_each_snapshot()
{
    for logged in [0, 1 << 20] {
        let mut worker = small_worker();
        worker.context.config.logged_write = MemorySize::Bytes(logged);
        write_tens(&worker, 1, 20).await;
        let compactor = Compactor::new(worker.context.clone());
        // The writes 19 and 20 are not committed.
        let optimized = compactor.optimize(table(), up_to(18)).await.unwrap();
        let before = if logged == 0 {
            20 * u64::from(SHARDS)
        } else {
            0
        };
        let left = if logged == 0 {
            2 * u64::from(SHARDS)
        } else {
            0
        };
        let after = u64::from(SHARDS) + left;
        let expected = OptimizeResult {
            segments_before: before,
            segments_after: after,
        };
        assert_eq!(optimized, expected);
        for write in 0..=20 {
            let expected = tens(1, i64::try_from(write).unwrap());
            assert_eq!(keys_seen(&worker, &up_to(write)), expected, "{write}");
        }
        for segment in segments(&worker) {
            let batches = reader(segment.path()).build().unwrap();
            let keys: Vec<i64> = batches
                .flat_map(|batch| {
                    let batch = batch.unwrap();
                    batch
                        .column(0)
                        .as_primitive::<Int64Type>()
                        .values()
                        .to_vec()
                })
                .collect();
            assert!(keys.is_sorted());
            segment.check_content(|_| ()).unwrap();
        }
        // Once more: the rest is committed now.
        compactor.optimize(table(), up_to(20)).await.unwrap();
        worker.context.storage.await_deletions();
        assert_eq!(
            files_below(&worker.dir.path().join("tables")),
            SHARDS as usize
        );
        assert_eq!(keys_seen(&worker, &up_to(20)), tens(1, 20));
        assert_eq!(keys_seen(&worker, &up_to(7)), tens(1, 7));
        drop(compactor);
        restart(&mut worker);
        assert_eq!(keys_seen(&worker, &up_to(7)), tens(1, 7));
        // The store still knows the table.
        assert_eq!(
            worker.context.storage.table_description(TABLE),
            Some(table())
        );
    }
}

#[tokio::test]
async fn the_background_merges_when_a_tier_is_full_and_its_writes_are_committed() {
    let worker = worker(256 << 20);
    write_tens(&worker, 1, 7).await;
    let compactor = Compactor::new(worker.context.clone());
    let compact = async |write| compactor.compact(TABLE, 0, &up_to(write)).await.unwrap();
    assert_eq!(compact(7).await, Compacted::Done);
    write_tens(&worker, 8, 8).await;
    assert_eq!(compact(7).await, Compacted::Waiting);
    assert_eq!(worker.context.storage.sizes_of(TABLE, 0).len(), 8);
    assert_eq!(
        compactor
            .describe_storage()
            .compaction
            .unwrap()
            .waiting_segments,
        8 * 4
    );
    assert_eq!(compact(8).await, Compacted::Done);
    assert_eq!(worker.context.storage.sizes_of(TABLE, 0).len(), 1);
    assert_eq!(keys_seen(&worker, &up_to(8)), tens(1, 8));
    let state = compactor.describe_storage().compaction.unwrap();
    assert_eq!((state.merges, state.waiting_segments), (1, 8 * 3));
    assert!(state.written_bytes > 0 && state.written_bytes < state.read_bytes);
}

#[tokio::test]
async fn an_idle_worker_wakes_up_for_new_segments() {
    let mut worker = worker(256 << 20);
    worker.context.config.compaction_interval = Duration::from_millis(1);
    let stopping = CancellationToken::new();
    let compactor = Arc::new(Compactor::new(worker.context.clone()));
    let running = tokio::spawn(Arc::clone(&compactor).run(stopping.clone()));
    write_tens(&worker, 1, 8).await;
    worker.context.storage.note_committed(up_to(8));
    while worker.context.storage.segment_count(TABLE) > u64::from(SHARDS) {
        tokio::task::yield_now().await;
    }
    stopping.cancel();
    running.await.unwrap();
    assert_eq!(keys_seen(&worker, &up_to(8)), tens(1, 8));
}

#[tokio::test]
async fn rows_do_not_expire_because_a_clock_is_ahead() {
    let worker = worker(256 << 20);
    let storage = &worker.context.storage;
    let now_us = || chrono::Utc::now().timestamp_micros();
    let kept = TableExpiry {
        table_id: TABLE.0,
        expiry: Some(Expiry {
            time_column: 3,
            keep_us: 1,
        }),
    };
    for (told_us, latest) in [(i64::MAX, now_us as fn() -> i64), (77, || 77)] {
        storage.note_expiries(told_us, &[kept]);
        let (_, time_us) = storage.expiry_of(TABLE).unwrap();
        assert!(time_us <= latest());
    }
    assert!(storage.expiry_of(TableId(4)).is_none());
}

#[tokio::test]
async fn rows_are_cut_into_segments_that_are_full() {
    let mut worker = worker(256 << 20);
    worker.context.config.segment = MemorySize::Bytes(64 << 10);
    worker.context.config.row_group_rows = 1000;
    for write in 1..=12 {
        let start = i64::try_from(write).unwrap() * 4_000;
        write_keys(&worker, write, &(start..start + 4_000).collect::<Vec<_>>()).await;
    }
    let compactor = Compactor::new(worker.context.clone());
    compactor.optimize(table(), up_to(12)).await.unwrap();
    let sizes = worker.context.storage.sizes_of(TABLE, 0);
    assert!(sizes.len() > 1 && sizes.len() < 12, "{sizes:?}");
    for write in [12, 5] {
        let expected: Vec<i64> = (4_000..i64::try_from(write).unwrap() * 4_000 + 4_000).collect();
        assert_eq!(keys_seen(&worker, &up_to(write)), expected);
    }
}

#[tokio::test]
async fn a_damaged_segment_does_not_become_a_valid_one() {
    let worker = worker(256 << 20);
    write_tens(&worker, 1, 8).await;
    let damaged = Arc::clone(&segments(&worker)[3]);
    let mut bytes = std::fs::read(damaged.path()).unwrap();
    bytes[40] ^= 1;
    std::fs::write(damaged.path(), bytes).unwrap();
    let compactor = Compactor::new(worker.context.clone());
    let error = compactor.optimize(table(), up_to(8)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
    assert!(damaged.is_damaged());
    // The others are merged, and the damaged one is still missed.
    compactor.optimize(table(), up_to(8)).await.unwrap();
    assert!(damaged.path().exists());
    let shard = damaged.shard();
    let error = worker
        .context
        .storage
        .rows(TABLE, shard, &up_to(8), None, None)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
}

#[tokio::test]
async fn a_table_that_is_dropped_meanwhile_keeps_nothing() {
    let worker = worker(256 << 20);
    write_tens(&worker, 1, 3).await;
    let layout = Arc::new(WriteLayout::new(&table()).unwrap());
    let storage = &worker.context.storage;
    let inputs = storage.mergeable(TABLE, 0, &up_to(3));
    let merge = Merge::new(&worker.context, &layout, inputs.clone(), None).unwrap();
    let pace = Pace::new(usize::MAX);
    let (outputs, _) = merge.run(&worker.context, pace).await.unwrap();
    storage.drop_table(TABLE).unwrap();
    let error = storage.replace(TABLE, inputs, outputs, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    drop(merge);
    storage.await_deletions();
    assert_eq!(files_below(&worker.dir.path().join("tables")), 0);
}

#[tokio::test]
async fn segments_that_went_away_meanwhile_do_not_come_back() {
    let worker = worker(256 << 20);
    write_tens(&worker, 1, 3).await;
    let layout = Arc::new(WriteLayout::new(&table()).unwrap());
    let storage = &worker.context.storage;
    let inputs = storage.mergeable(TABLE, 0, &up_to(3));
    let merge = Merge::new(&worker.context, &layout, inputs.clone(), None).unwrap();
    let pace = Pace::new(usize::MAX);
    let (outputs, _) = merge.run(&worker.context, pace).await.unwrap();
    // A recovered catalog does not know the third write.
    storage
        .set_aside(&WriteSet::default(), WriteId(3), 9)
        .unwrap();
    let error = storage.replace(TABLE, inputs, outputs, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(keys_seen(&worker, &up_to(3)), tens(1, 2));
}

#[tokio::test]
async fn a_segment_keeps_the_rows_that_a_recovered_catalog_knows() {
    let mut worker = worker(256 << 20);
    write_tens(&worker, 1, 6).await;
    let compactor = Compactor::new(worker.context.clone());
    compactor.optimize(table(), up_to(6)).await.unwrap();
    let set_aside = worker
        .context
        .storage
        .set_aside(&WriteSet::default(), WriteId(5), 9);
    assert_eq!(set_aside.unwrap(), 20);
    let lost = worker.dir.path().join("lost/00000009/tables/3");
    assert_eq!(files_below(&lost), SHARDS as usize);
    assert_eq!(worker.context.storage.totals().max_write, Some(WriteId(4)));
    // The numbers are given out again.
    write_keys(&worker, 5, &[7000, 7001, 7002, 7003]).await;
    let mut expected = tens(1, 4);
    expected.extend(7000..7004);
    assert_eq!(keys_seen(&worker, &up_to(9)), expected);
    drop(compactor);
    restart(&mut worker);
    assert_eq!(keys_seen(&worker, &up_to(9)), expected);
    assert_eq!(keys_seen(&worker, &up_to(2)), tens(1, 2));
    let compactor = Compactor::new(worker.context.clone());
    compactor.optimize(table(), up_to(5)).await.unwrap();
    assert_eq!(keys_seen(&worker, &up_to(9)), expected);
    assert_eq!(keys_seen(&worker, &up_to(3)), tens(1, 3));
    assert_eq!(
        segments(&worker).iter().map(|it| it.rows()).sum::<u64>(),
        44
    );
    assert!(segments(&worker).iter().all(|it| it.hidden().is_empty()));
}

#[tokio::test]
async fn settled_rows_are_seen_by_all_snapshots_that_may_come_and_no_others_are_answered() {
    let mut worker = small_worker();
    write_tens(&worker, 1, 300).await;
    let compactor = Compactor::new(worker.context.clone());
    compactor.optimize(table(), up_to(300)).await.unwrap();
    let storage = worker.context.storage.clone();
    assert_eq!(storage.listed_writes(TABLE, 0), 300);
    // Rows that may still be in the log are left out.
    storage.note_horizon(&up_to(200));
    compactor.settle(TABLE, 0).await.unwrap();
    drop((storage, compactor));
    restart(&mut worker);
    let compactor = Compactor::new(worker.context.clone());
    let storage = worker.context.storage.clone();
    storage.note_horizon(&up_to(200));
    storage.note_horizon(&up_to(100));
    storage.settle(TABLE, 0).unwrap();
    assert_eq!(storage.listed_writes(TABLE, 0), 100);
    for write in [200, 250, 300] {
        let expected = tens(1, i64::try_from(write).unwrap());
        assert_eq!(keys_seen(&worker, &up_to(write)), expected, "{write}");
    }
    let too_old = storage.rows(TABLE, 0, &up_to(199), None, None).unwrap_err();
    assert_eq!(too_old.code(), ErrorCode::DeadlineExceeded);
    // Other shards are not settled.
    storage.rows(TABLE, 1, &up_to(199), None, None).unwrap();
    drop((storage, compactor));
    restart(&mut worker);
    let storage = worker.context.storage.clone();
    assert_eq!(storage.listed_writes(TABLE, 0), 100);
    storage.rows(TABLE, 0, &up_to(199), None, None).unwrap_err();
    assert_eq!(keys_seen(&worker, &up_to(300)), tens(1, 300));
    // Merged rows are listed again.
    write_tens(&worker, 301, 301).await;
    let compactor = Compactor::new(worker.context.clone());
    compactor.optimize(table(), up_to(301)).await.unwrap();
    assert_eq!(storage.listed_writes(TABLE, 0), 301);
    assert_eq!(keys_seen(&worker, &up_to(300)), tens(1, 300));
    // A recovered catalog does not know some of the settled rows.
    drop((storage, compactor));
    restart(&mut worker);
    let compactor = Compactor::new(worker.context.clone());
    let storage = worker.context.storage.clone();
    storage.note_horizon(&up_to(301));
    assert!(compactor.settle(TABLE, 0).await.unwrap());
    assert_eq!(
        storage
            .set_aside(&WriteSet::default(), WriteId(150), 9)
            .unwrap(),
        1520
    );
    assert_eq!(keys_seen(&worker, &up_to(149)), tens(1, 149));
    assert_eq!(keys_seen(&worker, &up_to(301)), tens(1, 149));
}

/// Returns a worker that has what a power loss left, and its data directory.
fn after_power_loss(disk: &FaultyDisk) -> (TempDir, Worker) {
    let after = tempfile::tempdir().unwrap();
    disk.crash(after.path()).unwrap();
    let mut crashed = worker(1 << 20);
    crashed.context.storage = Storage::open(after.path(), Arc::new(LocalDisk)).unwrap();
    (after, crashed)
}

/// Makes each sync of a merge fail, one after another, and then takes the power away.
#[tokio::test]
async fn a_merge_that_fails_or_loses_power_at_any_sync_changes_no_row() {
    let mut failed = 0;
    for failing in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::over(dir.path()).unwrap();
        let mut worker = worker(256 << 20);
        worker.context.storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
        write_tens(&worker, 1, 3).await;
        disk.fail_sync_after(failing);
        let before = disk.syncs();
        let compactor = Compactor::new(worker.context.clone());
        let optimized = compactor.optimize(table(), up_to(3)).await;
        assert_eq!(keys_seen(&worker, &up_to(3)), tens(1, 3), "sync {failing}");
        let (_dir, crashed) = after_power_loss(&disk);
        for write in 1..=3 {
            let expected = tens(1, i64::try_from(write).unwrap());
            assert_eq!(
                keys_seen(&crashed, &up_to(write)),
                expected,
                "sync {failing}"
            );
        }
        if let Err(error) = optimized {
            failed += 1;
            assert!(error.to_string().contains("failed a sync"), "{error}");
            // The worker goes on.
            compactor.optimize(table(), up_to(3)).await.unwrap();
            write_tens(&worker, 4, 4).await;
            assert_eq!(keys_seen(&worker, &up_to(4)), tens(1, 4), "sync {failing}");
            let (_dir, crashed) = after_power_loss(&disk);
            assert_eq!(keys_seen(&crashed, &up_to(4)), tens(1, 4), "sync {failing}");
        } else if disk.syncs() - before <= failing {
            break;
        }
    }
    assert!(failed >= 8, "only {failed} syncs failed");
}
