use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc;

use arrow::array::{Int64Array, RecordBatch};
use tempfile::TempDir;
use volary_faulty_disk::FaultyDisk;
use volary_flight_proto::control::{Report, ShardContent, ShardName};
use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, ipc};
use volary_node::data_dir::NodeRole;
use volary_node::disk::LocalDisk;
use volary_node::{DataDir, durable};

use super::log_frames::LoggedWrite;
use super::store::Delta;
use super::*;
use crate::log::Appended;

const TABLE: TableId = TableId(3);
const SHARD: u32 = 17;
const LOG_BYTES: u64 = 64 << 20;

fn open() -> (TempDir, Storage) {
    let dir = tempfile::tempdir().unwrap();
    let storage = reopen(&dir).unwrap();
    (dir, storage)
}

fn reopen(dir: &TempDir) -> Result<Storage> {
    Storage::open(dir.path(), Arc::new(LocalDisk))
}

/// Creates a segment of a few bytes. Storage does not look into files.
fn segment(storage: &Storage, table: TableId, shard: u32, write: u64) -> Segment {
    segment_of(storage, table, shard, write, b"rows")
}

fn segment_of(
    storage: &Storage,
    table: TableId,
    shard: u32,
    write: u64,
    content: &[u8],
) -> Segment {
    let (segment, file) = storage.create(table, shard, WriteId(write)).unwrap();
    let mut checksummed = ChecksummedFile::new(file.try_clone().unwrap());
    checksummed.write_all(content).unwrap();
    segment.complete(&file, 2, checksummed.checksums()).unwrap()
}

fn add(storage: &Storage, shard: u32, write: u64) {
    let segment = segment(storage, TABLE, shard, write);
    storage.add(TABLE, vec![segment]).unwrap();
}

fn snapshot(high: u64, excluded: &[u64]) -> Snapshot {
    let excluded: WriteSet = excluded.iter().copied().map(WriteId).collect();
    Snapshot::new(WriteId(high), &excluded)
}

fn seen(storage: &Storage, snapshot: &Snapshot) -> Vec<u64> {
    let segments = storage.segments(TABLE, SHARD, snapshot, None).unwrap();
    segments.iter().map(|segment| segment.write().0).collect()
}

fn table_dir(dir: &TempDir) -> PathBuf {
    dir.path().join("tables/3")
}

/// Returns the number of files of the table, on a disk that is still in use by `storage`.
fn files(dir: &TempDir, storage: &Storage) -> usize {
    storage.await_deletions();
    fs::read_dir(table_dir(dir)).map_or(0, Iterator::count)
}

#[test]
fn a_snapshot_sees_the_writes_up_to_it_that_are_not_excluded() {
    let (_dir, storage) = open();
    assert!(seen(&storage, &snapshot(9, &[])).is_empty());
    for write in [5, 2, 9, 7] {
        add(&storage, SHARD, write);
    }
    add(&storage, SHARD + 1, 1);
    assert_eq!(seen(&storage, &snapshot(7, &[])), [2, 5, 7]);
    assert_eq!(seen(&storage, &snapshot(9, &[2, 7])), [5, 9]);
}

#[test]
fn what_was_added_survives_a_restart() {
    let (dir, storage) = open();
    for shard in 0..20 {
        add(&storage, shard, 1);
    }
    let (list, totals) = (storage.list(), storage.totals());
    assert_eq!(list.segments.len(), 20);
    assert!(
        dir.path().join(&list.segments[4].file).is_file(),
        "{list:?}"
    );
    assert_eq!((totals.segments, totals.rows, totals.bytes), (20, 40, 80));
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(storage.list(), list);
    assert_eq!(storage.totals(), totals);
}

#[test]
fn a_segment_that_is_not_added_leaves_no_file() {
    let (dir, storage) = open();
    let new = segment(&storage, TABLE, SHARD, 1);
    assert_eq!(files(&dir, &storage), 1);
    drop(new);
    assert_eq!(files(&dir, &storage), 0);
}

/// Builds a gateway's question about a shard whose committed rows are those of these writes.
fn question(shard: u32, writes: &[u64]) -> Report {
    let writes = writes.iter().map(|write| (WriteId(*write), 2));
    let tally: Tally = writes.collect();
    Report {
        contents: vec![ShardContent {
            shard: Some(ShardName {
                table_id: TABLE.0,
                shard,
            }),
            rows: 0,
            tally: Some(tally.0),
        }],
        snapshot: Some(snapshot(9, &[])),
        live_tables: vec![TABLE.0],
        last_table: TABLE.0,
        ..Report::default()
    }
}

fn counted<'a>(writes: &[u64], by: &'a Snapshot) -> CountedRows<'a> {
    let writes = writes.iter().map(|write| (WriteId(*write), 2));
    CountedRows {
        expected: ExpectedRows::Tally(writes.collect()),
        counted_writes: by,
    }
}

#[test]
fn what_a_crash_leaves_is_deleted_when_the_gateway_says_that_nothing_is_missing() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    // The process is killed before the store names the segment.
    std::mem::forget(segment(&storage, TABLE, SHARD, 2));
    // The store names no segment of another shard yet.
    std::mem::forget(segment(&storage, TABLE, SHARD + 1, 2));
    assert_eq!(files(&dir, &storage), 3);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(files(&dir, &storage), 3);
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
    let unproven: Vec<_> = storage.unproven().iter().map(|name| name.shard).collect();
    assert_eq!(unproven, [SHARD, SHARD + 1]);
    assert_eq!(storage.totals().max_write, Some(WriteId(2)));
    // It is not known yet whether the other shard had rows.
    let early = segment(&storage, TABLE, SHARD + 1, 3);
    let refused = storage.add(TABLE, vec![early]).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Unavailable, "{refused}");
    assert!(storage.collect(&question(SHARD, &[1])).failure.is_none());
    assert!(storage.collect(&question(SHARD + 1, &[])).failure.is_none());
    assert_eq!(files(&dir, &storage), 1);
    assert!(storage.unproven().is_empty());
    assert_eq!(storage.totals().max_write, Some(WriteId(1)));
    add(&storage, SHARD + 1, 3);
}

/// Returns a copy of the store of a worker that is not running.
fn copy_of_store(dir: &TempDir) -> Vec<u8> {
    fs::read(Store::path_in(dir.path())).unwrap()
}

#[test]
fn an_older_store_is_found_out_and_the_files_that_it_does_not_name_are_kept() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD + 1, 1);
    drop(storage);
    let older = copy_of_store(&dir);
    let storage = reopen(&dir).unwrap();
    add(&storage, SHARD, 2);
    drop(storage);
    let newer = copy_of_store(&dir);
    fs::write(Store::path_in(dir.path()), older).unwrap();
    let storage = reopen(&dir).unwrap();
    let now = snapshot(9, &[]);
    let error = storage
        .segments(TABLE, SHARD, &now, Some(counted(&[1, 2], &now)))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    for part in ["store.redb", "is outdated", "docs/repair.md"] {
        assert!(error.message().contains(part), "{error}");
    }
    // The rows that are written to the shard now would be lost with it.
    let late = segment(&storage, TABLE, SHARD, 5);
    let refused = storage.add(TABLE, vec![late]).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::DataLoss, "{refused}");
    storage.collect(&question(SHARD, &[1, 2]));
    assert_eq!(files(&dir, &storage), 3);
    // A query of an older snapshot is also told what is missing now.
    let before = snapshot(1, &[]);
    let error = storage
        .segments(TABLE, SHARD, &before, Some(counted(&[1, 2], &now)))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    // A shard without later rows is whole.
    let whole = storage.segments(TABLE, SHARD + 1, &now, Some(counted(&[1], &now)));
    assert_eq!(whole.unwrap().len(), 1);
    drop(storage);
    fs::write(Store::path_in(dir.path()), newer).unwrap();
    let storage = reopen(&dir).unwrap();
    let found = storage.segments(TABLE, SHARD, &now, Some(counted(&[1, 2], &now)));
    assert_eq!(found.unwrap().len(), 2);
}

#[test]
fn a_shard_that_the_worker_does_not_know_is_empty_only_if_the_catalog_says_so() {
    let (_dir, storage) = open();
    let now = snapshot(9, &[]);
    let none = storage.segments(TABLE, SHARD, &now, Some(counted(&[], &now)));
    assert!(none.unwrap().is_empty());
    let expected = ExpectedRows::Rows(3);
    let counted = CountedRows {
        expected,
        counted_writes: &now,
    };
    let error = storage
        .segments(TABLE, SHARD, &now, Some(counted))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    assert!(
        error.message().contains("0 of its 3 acknowledged rows"),
        "{error}"
    );
}

#[test]
fn an_abort_is_not_forgotten_because_many_younger_writes_are_aborted() {
    let (_dir, storage) = open();
    for write in 100_000..100_000 + (64 << 10) + 1 {
        storage.abort_write(WriteId(write)).unwrap();
    }
    let late = segment(&storage, TABLE, SHARD, 5);
    storage.abort_write(WriteId(5)).unwrap();
    let error = storage.add(TABLE, vec![late]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
}

/// Adds segments until the disk is full, and returns the number of writes that were made.
fn write_until_full(storage: &Storage, table: TableId, first: u64) -> u64 {
    let mut written = 0;
    let refused = loop {
        let new = segment(storage, table, SHARD, first + written);
        match storage.add(table, vec![new]) {
            Ok(()) => written += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), ErrorCode::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("store.redb"), "{refused}");
    written
}

fn garbage(live_tables: Vec<u64>, aborted_bounds: Vec<u64>) -> Report {
    Report {
        live_tables,
        last_table: TABLE.0,
        aborted_bounds,
        last_abort: 7,
        ..Report::default()
    }
}

fn ballast_of(dir: &TempDir) -> u64 {
    let ballast = dir.path().join("store.ballast");
    ballast.metadata().map_or(0, |metadata| metadata.len())
}

#[test]
fn on_a_full_disk_rows_are_read_and_aborted_writes_make_room() {
    for has_ballast in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::over(dir.path()).unwrap();
        let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
        disk.set_room(Some(400 << 10));
        let written = write_until_full(&storage, TABLE, 1);
        let known: Vec<_> = (1..=written).collect();
        assert_eq!(seen(&storage, &snapshot(u64::MAX, &[])), known);
        let filled = ballast_of(&dir);
        if !has_ballast {
            fs::remove_file(dir.path().join("store.ballast")).unwrap();
        }
        let collected = storage.collect(&garbage(vec![TABLE.0], vec![2, written]));
        assert_eq!(collected.deleted_through, Some(7), "{collected:?}");
        if has_ballast {
            let left = ballast_of(&dir);
            assert!(left < filled, "{left} of {filled} bytes are left");
        }
        assert_eq!(files(&dir, &storage), 1);
        add(&storage, SHARD, written + 10);
        disk.set_room(None);
        add(&storage, SHARD, written + 11);
        assert!(ballast_of(&dir) >= filled);
        drop(storage);
        let storage = reopen(&dir).unwrap();
        let left = [1, written + 10, written + 11];
        assert_eq!(seen(&storage, &snapshot(u64::MAX, &[])), left);
    }
}

#[test]
fn a_worker_that_was_killed_on_a_full_disk_starts_again_and_drops_tables() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    let kept = segment(&storage, TableId(2), SHARD, 1);
    storage.add(TableId(2), vec![kept]).unwrap();
    disk.set_room(Some(400 << 10));
    let written = write_until_full(&storage, TABLE, 1);
    // A process that is killed leaves its files as they are. The next one writes the store anew.
    storage.await_deletions();
    let dir = copy_of(&dir);
    let disk = FaultyDisk::over(dir.path()).unwrap();
    disk.set_room(Some(0));
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    let found = seen(&storage, &snapshot(u64::MAX, &[]));
    assert_eq!(found.len() as u64, written);
    disk.set_room(Some(0));
    let collected = storage.collect(&garbage(vec![2], vec![]));
    assert!(collected.failure.is_none(), "{collected:?}");
    storage.await_deletions();
    disk.set_room(Some(0));
    write_until_full(&storage, TableId(2), 10_000);
    disk.set_room(None);
    let new = segment(&storage, TableId(2), SHARD, 1_000_000);
    storage.add(TableId(2), vec![new]).unwrap();
    assert!(ballast_of(&dir) > 0);
}

/// Copies a data directory of a worker with few directories.
fn copy_of(dir: &TempDir) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.path().is_dir() {
                fs::create_dir(&to).unwrap();
                copy(&entry.path(), &to);
            } else {
                fs::copy(entry.path(), &to).unwrap();
            }
        }
    }
    let copied = tempfile::tempdir().unwrap();
    copy(dir.path(), copied.path());
    copied
}

#[test]
fn on_a_full_disk_an_abort_is_made_although_rows_that_came_with_it_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    disk.set_room(Some(400 << 10));
    let written = write_until_full(&storage, TABLE, 1);
    // These records need more space than the store has, whatever pages are free.
    let late: Vec<_> = (10_000..12_000)
        .map(|write| segment(&storage, TABLE, SHARD, write))
        .collect();
    let (sender, holding) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (storage, store) = (&storage, &storage.0.store);
        let hold = move || {
            sender.send(()).unwrap();
            released.recv().unwrap();
            Ok(((), Delta::default()))
        };
        scope.spawn(move || store.change(hold, |(), _| ()).unwrap());
        holding.recv().unwrap();
        let adding = scope.spawn(move || storage.add(TABLE, late));
        let aborting = scope.spawn(move || storage.abort_write(WriteId(2)));
        while store.waiting() < 2 {
            std::thread::yield_now();
        }
        release.send(()).unwrap();
        let refused = adding.join().unwrap().unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted, "{refused}");
        aborting.join().unwrap().unwrap();
    });
    assert_eq!(storage.totals().segments, written - 1);
}

#[test]
fn another_small_file_may_use_the_ballast_of_the_store() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let filled = ballast_of(&dir);
    assert!(filled > 0);
    let write = || match ballast_of(&dir) {
        0 => Ok(7),
        _ => Err(Error::io(
            "cannot write it",
            std::io::ErrorKind::StorageFull.into(),
        )),
    };
    assert_eq!(storage.write_with_ballast(write).unwrap(), 7);
    assert_eq!(ballast_of(&dir), filled);
    let refuse = || Err::<(), _>(Error::internal("a bug"));
    storage.write_with_ballast(refuse).unwrap_err();
    assert_eq!(ballast_of(&dir), filled);
}

#[test]
fn after_a_power_loss_every_write_is_there_that_was_durable_whichever_sync_fails() {
    for failing in 0..30 {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::over(dir.path()).unwrap();
        let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
        disk.fail_sync_after(failing);
        let mut durable = Vec::new();
        for write in 1..5 {
            let (new, file) = storage.create(TABLE, SHARD, WriteId(write)).unwrap();
            let mut checksummed = ChecksummedFile::new(file.try_clone().unwrap());
            checksummed.write_all(b"rows").unwrap();
            let complete = new.complete(&file, 2, checksummed.checksums());
            if complete
                .and_then(|new| storage.add(TABLE, vec![new]))
                .is_ok()
            {
                durable.push(write);
            } else {
                // The gateway does the same.
                storage.abort_write(WriteId(write)).unwrap();
            }
        }
        let after = tempfile::tempdir().unwrap();
        disk.crash(after.path()).unwrap();
        let storage = reopen(&after).unwrap();
        let now = snapshot(9, &[]);
        let found = storage.segments(TABLE, SHARD, &now, Some(counted(&durable, &now)));
        assert_eq!(found.unwrap().len(), durable.len(), "sync {failing} failed");
        for segment in storage.all_segments() {
            segment.check_content(|_| ()).unwrap();
        }
    }
}

#[test]
fn an_aborted_write_is_gone_for_good() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD, 2);
    let late = segment(&storage, TABLE, SHARD, 2);
    storage.abort_write(WriteId(2)).unwrap();
    let error = storage.add(TABLE, vec![late]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
    assert_eq!(files(&dir, &storage), 1);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
}

#[test]
fn a_write_of_which_it_is_unknown_whether_it_was_stored_can_be_aborted() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    add(&storage, SHARD, 1);
    let new = segment(&storage, TABLE, SHARD, 2);
    let refused = segment(&storage, TABLE, SHARD, 3);
    // The sync of the directory succeeds. That of the store fails, and the store cannot be written
    // anew either.
    disk.fail_syncs_from(1);
    let unknown = storage.add(TABLE, vec![new]).unwrap_err();
    assert!(
        unknown.message().contains("it is unknown whether"),
        "{unknown}"
    );
    assert_eq!(files(&dir, &storage), 3, "the store may name the file");
    let failed = storage.abort_write(WriteId(2)).unwrap_err();
    assert!(failed.message().contains("store.redb"), "{failed}");
    storage.add(TABLE, vec![refused]).unwrap_err();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1, 2]);
    disk.heal();
    storage.abort_write(WriteId(2)).unwrap();
    assert_eq!(files(&dir, &storage), 1);
    add(&storage, SHARD, 4);
    let after = tempfile::tempdir().unwrap();
    disk.crash(after.path()).unwrap();
    let storage = reopen(&after).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1, 4]);
}

#[test]
fn what_a_process_has_not_synced_before_it_was_killed_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    add(&storage, SHARD, 1);
    let new = segment(&storage, TABLE, SHARD, 2);
    disk.fail_syncs_from(1);
    storage.add(TABLE, vec![new]).unwrap_err();
    // The process is killed. The next one finds in the page cache what is not on the disk.
    std::mem::forget(storage);
    disk.heal();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    add(&storage, SHARD, 3);
    let after = tempfile::tempdir().unwrap();
    disk.crash(after.path()).unwrap();
    let storage = reopen(&after).unwrap();
    let found = seen(&storage, &snapshot(9, &[2]));
    assert_eq!(found, [1, 3]);
}

#[test]
fn operations_that_wait_are_committed_together() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    let new: Vec<_> = (1..50)
        .map(|write| segment(&storage, TABLE, SHARD, write))
        .collect();
    let before = disk.syncs();
    let (sender, holding) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let store = &storage.0.store;
        let hold = move || {
            sender.send(()).unwrap();
            released.recv().unwrap();
            Ok(((), Delta::default()))
        };
        scope.spawn(move || store.change(hold, |(), _| ()).unwrap());
        holding.recv().unwrap();
        // The turn is taken, so all these operations wait.
        for segment in new {
            let storage = &storage;
            scope.spawn(move || storage.add(TABLE, vec![segment]).unwrap());
        }
        while store.waiting() < 49 {
            std::thread::yield_now();
        }
        release.send(()).unwrap();
    });
    // The table's directory, the directory of all tables, and the store.
    assert_eq!(disk.syncs() - before, 3);
    assert_eq!(storage.totals().segments, 49);
}

#[test]
fn an_addition_of_an_aborted_write_fails_alone() {
    let (_dir, storage) = open();
    let aborted = segment(&storage, TABLE, SHARD, 1);
    storage.abort_write(WriteId(1)).unwrap();
    std::thread::scope(|scope| {
        for write in 2..20 {
            let new = segment(&storage, TABLE, SHARD, write);
            let storage = &storage;
            scope.spawn(move || storage.add(TABLE, vec![new]).unwrap());
        }
        let error = storage.add(TABLE, vec![aborted]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled);
    });
    assert_eq!(seen(&storage, &snapshot(99, &[])).len(), 18);
}

#[test]
fn a_file_is_deleted_when_the_last_scan_of_it_ends() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let scan = storage
        .segments(TABLE, SHARD, &snapshot(1, &[]), None)
        .unwrap();
    storage.abort_write(WriteId(1)).unwrap();
    assert!(seen(&storage, &snapshot(1, &[])).is_empty());
    assert!(scan[0].path().is_file());
    drop(scan);
    assert_eq!(files(&dir, &storage), 0);
}

#[test]
fn a_dropped_table_is_gone_when_its_last_scan_ends() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let late = segment(&storage, TABLE, SHARD, 2);
    let scan = storage
        .segments(TABLE, SHARD, &snapshot(1, &[]), None)
        .unwrap();
    storage.drop_table(TABLE).unwrap();
    for error in [
        storage
            .segments(TABLE, SHARD, &snapshot(1, &[]), None)
            .unwrap_err(),
        storage.create(TABLE, SHARD, WriteId(3)).unwrap_err(),
        storage.add(TABLE, vec![late]).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::NotFound);
    }
    assert!(scan[0].path().is_file());
    drop(scan);
    storage.await_deletions();
    assert!(!table_dir(&dir).exists());
}

#[test]
fn a_table_that_was_dropped_before_a_crash_is_deleted_when_the_gateway_says_so() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let scan = storage
        .segments(TABLE, SHARD, &snapshot(1, &[]), None)
        .unwrap();
    storage.drop_table(TABLE).unwrap();
    std::mem::forget(scan);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert!(table_dir(&dir).exists());
    assert!(seen(&storage, &snapshot(1, &[])).is_empty());
    let collected = storage.collect(&Report {
        last_table: TABLE.0,
        ..Report::default()
    });
    assert!(collected.failure.is_none(), "{collected:?}");
    storage.await_deletions();
    assert!(!table_dir(&dir).exists());
}

#[test]
fn a_gateways_list_of_garbage_is_collected() {
    let (_dir, storage) = open();
    for table in [1, 2, 3, 4] {
        for write in [1, 2] {
            let segment = segment(&storage, TableId(table), 0, write);
            storage.add(TableId(table), vec![segment]).unwrap();
        }
    }
    let collected = storage.collect(&Report {
        live_tables: vec![1, 3],
        last_table: 3,
        aborted_bounds: vec![2, 2, 8, 9],
        last_abort: 5,
        ..Report::default()
    });
    assert!(collected.failure.is_none(), "{collected:?}");
    assert_eq!(collected.deleted_through, Some(5));
    let left: Vec<_> = storage
        .list()
        .segments
        .iter()
        .map(|s| (s.table_id, s.write_id))
        .collect();
    assert_eq!(left, [(1, 1), (3, 1), (4, 1)]);
    let error = storage
        .segments(TableId(2), 0, &snapshot(1, &[]), None)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
}

#[test]
fn a_damaged_segment_fails_the_scans_that_need_it_and_no_others() {
    let (dir, storage) = open();
    for (shard, write) in [(SHARD, 1), (SHARD, 2), (SHARD + 1, 2)] {
        add(&storage, shard, write);
    }
    let scan = storage
        .segments(TABLE, SHARD, &snapshot(9, &[1]), None)
        .unwrap();
    let (path, name) = (scan[0].path().to_owned(), scan[0].relative_path());
    drop((scan, storage));
    for damage in ["longer than it was", ""] {
        if damage.is_empty() {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(&path, damage).unwrap();
        }
        let storage = reopen(&dir).unwrap();
        let error = storage
            .segments(TABLE, SHARD, &snapshot(9, &[]), None)
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss);
        assert!(error.message().contains(&name), "{error}");
        assert_eq!(seen(&storage, &snapshot(1, &[])), [1]);
        assert_eq!(
            storage
                .segments(TABLE, SHARD + 1, &snapshot(9, &[]), None)
                .unwrap()
                .len(),
            1
        );
    }
}

#[test]
fn a_segment_with_another_content_of_the_same_size_is_found_out() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    let segments = storage
        .segments(TABLE, SHARD, &snapshot(9, &[]), None)
        .unwrap();
    fs::write(segments[0].path(), "rowt").unwrap();
    segments[0].check_once(3).unwrap(); // it is too large to be looked at
    for _ in 0..2 {
        let error = segments[0].check_once(4).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss);
        let name = segments[0].relative_path();
        assert!(error.message().contains(&name), "{error}");
    }
    assert!(!storage.list().segments[0].damage.is_empty());
    let error = storage
        .segments(TABLE, SHARD, &snapshot(9, &[]), None)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
}

#[test]
fn a_damaged_store_keeps_the_worker_from_starting_and_stays_as_it_is() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let path = Store::path_in(dir.path());
    let whole = fs::read(&path).unwrap();
    let name = whole.windows(7).position(|bytes| bytes == b"parquet");
    let mut flipped = whole.clone();
    flipped[name.unwrap() + 12] ^= 1;
    for content in [Vec::new(), whole[..whole.len() / 2].to_vec(), flipped] {
        fs::write(&path, &content).unwrap();
        let error = reopen(&dir).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
        for part in ["store.redb", "docs/repair.md"] {
            assert!(error.message().contains(part), "{error}");
        }
        assert!(fs::read(&path).unwrap() == content, "it was changed");
    }
}

#[test]
fn a_missing_store_is_data_loss_unless_the_directory_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let data_dir = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        Storage::of_worker(&data_dir, Arc::new(LocalDisk), LOG_BYTES)
    };
    let storage = open().unwrap();
    add(&storage, SHARD, 1);
    drop(storage);
    fs::remove_file(Store::path_in(dir.path())).unwrap();
    let error = open().unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
    assert!(error.message().contains("store.redb is missing"), "{error}");
    assert!(!Store::path_in(dir.path()).exists());
}

/// Makes a directory of an earlier release, with manifests, of what is stored. Returns the path of
/// the manifest of the shard.
fn make_former(dir: &TempDir, storage: Storage) -> PathBuf {
    let segments = storage.list().segments;
    drop(storage);
    let mut shards: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for segment in segments {
        let new = dir.path().join(&segment.file);
        let name = new.file_name().unwrap().to_str().unwrap();
        let (shard, name) = name.split_once('-').unwrap();
        fs::create_dir_all(table_dir(dir).join(shard)).unwrap();
        fs::rename(&new, table_dir(dir).join(shard).join(name)).unwrap();
        shards
            .entry(segment.shard)
            .or_default()
            .push(serde_json::json!({
                "file": name,
                "write_id": segment.write_id,
                "rows": segment.rows,
                "bytes": segment.bytes,
            }));
    }
    for (shard, segments) in shards {
        let manifest = serde_json::json!({
            "format": 2, "table_id": TABLE, "shard": shard, "segments": segments,
        });
        let path = table_dir(dir).join(format!("{shard}/manifest.json"));
        fs::write(path, durable::to_json(&manifest).unwrap()).unwrap();
    }
    fs::remove_file(Store::path_in(dir.path())).unwrap();
    table_dir(dir).join(format!("{SHARD}/manifest.json"))
}

#[test]
fn the_manifests_of_an_earlier_release_are_copied_into_the_store() {
    let (dir, storage) = open();
    for (shard, write) in [(SHARD, 1), (SHARD, 2), (SHARD + 1, 1)] {
        add(&storage, shard, write);
    }
    let manifest = make_former(&dir, storage);
    let late = manifest.with_file_name(format!("3-{}.parquet", uuid::Uuid::nil().simple()));
    fs::write(&late, "rows").unwrap();
    for _ in 0..2 {
        let storage = reopen(&dir).unwrap();
        assert_eq!(seen(&storage, &snapshot(9, &[])), [1, 2]);
        assert_eq!(storage.totals().rows, 6);
        assert_eq!(storage.unproven().len(), 1);
        assert!(!manifest.exists());
    }
    let storage = reopen(&dir).unwrap();
    add(&storage, SHARD, 4);
    storage.abort_write(WriteId(1)).unwrap();
    assert!(storage.collect(&question(SHARD, &[2, 4])).failure.is_none());
    assert!(!late.exists());
    storage.await_deletions();
    let left = fs::read_dir(manifest.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1);
    assert_eq!(seen(&storage, &snapshot(9, &[])), [2, 4]);
}

#[test]
fn a_damaged_manifest_keeps_its_directory_from_being_upgraded() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD + 1, 1);
    let manifest = make_former(&dir, storage);
    let whole = fs::read_to_string(&manifest).unwrap();
    let other = table_dir(&dir).join("18/manifest.json");
    for text in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole.replace("\"rows\": 2", "\"rows\": 3"),
        fs::read_to_string(other).unwrap(),
    ] {
        fs::write(&manifest, &text).unwrap();
        let error = reopen(&dir).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
        assert!(error.message().contains("17/manifest.json"), "{error}");
        assert!(!Store::path_in(dir.path()).exists());
    }
    fs::write(&manifest, r#"{"format": 99, "moon": true}"#).unwrap();
    let error = reopen(&dir).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    fs::write(&manifest, whole).unwrap();
    assert_eq!(seen(&reopen(&dir).unwrap(), &snapshot(9, &[])), [1]);
}

#[test]
fn what_is_not_volarys_is_left_alone() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let foreign = [
        dir.path().join("tables/notes.txt"),
        table_dir(&dir).join("17-1-copy.parquet"),
    ];
    for file in &foreign {
        fs::write(file, "").unwrap();
    }
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(1, &[])), [1]);
    assert!(storage.unproven().is_empty());
    assert!(foreign.iter().all(|file| file.exists()));
}

#[test]
fn rows_of_the_log_that_cannot_be_decoded_are_data_loss() {
    let (dir, storage) = open();
    let keys = Int64Array::from_iter_values(0..100);
    let rows = RecordBatch::try_from_iter([("k", Arc::new(keys) as _)]).unwrap();
    let table = TableDescription {
        table_id: TABLE.0,
        schema: ipc::schema_to_bytes(rows.schema_ref()),
        ..TableDescription::default()
    };
    let described = LoggedWrite {
        table: TABLE.0,
        write: 1,
        shards: vec![SHARD],
        rows: vec![100],
        ..LoggedWrite::default()
    };
    let mut frame = log_frames::encode(&table, &described, &rows).unwrap();
    // The header of the message names bytes beyond this, for which arrow's reader panics.
    frame.payload[1].truncate(8);
    let (sender, receiver) = mpsc::channel();
    let settle = move |appended| sender.send(appended).unwrap();
    storage.0.log.append(frame, settle);
    assert!(matches!(receiver.recv().unwrap(), Appended::Durable(_)));
    drop(storage);
    let error = reopen(&dir).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
    assert!(
        error.message().contains("frame 2 of the worker's log"),
        "{error}"
    );
}
