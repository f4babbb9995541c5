use std::fs;
use std::io::Write;
use std::path::PathBuf;

use tempfile::TempDir;
use volary_faulty_disk::FaultyDisk;
use volary_flight_proto::ErrorCode;
use volary_node::disk::LocalDisk;

use super::manifest::Manifest;
use super::*;

const TABLE: TableId = TableId(3);
const SHARD: u32 = 17;

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
    Snapshot {
        high,
        excluded: excluded.to_vec(),
    }
}

fn seen(storage: &Storage, snapshot: &Snapshot) -> Vec<u64> {
    let segments = storage.segments(TABLE, SHARD, snapshot, None).unwrap();
    segments.iter().map(|segment| segment.write().0).collect()
}

fn shard_dir(dir: &TempDir) -> PathBuf {
    dir.path().join("tables/3/17")
}

fn files(dir: &TempDir) -> usize {
    fs::read_dir(shard_dir(dir)).map_or(0, Iterator::count)
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
    assert_eq!(files(&dir), 1);
    drop(new);
    assert_eq!(files(&dir), 0);
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
    // The process is killed before the manifest names the segment.
    std::mem::forget(segment(&storage, TABLE, SHARD, 2));
    // It is also killed before the first manifest of another shard is written.
    std::mem::forget(segment(&storage, TABLE, SHARD + 1, 2));
    fs::write(shard_dir(&dir).join("manifest.tmp"), "{").unwrap();
    assert_eq!(files(&dir), 4);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(files(&dir), 3);
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
    assert_eq!(files(&dir), 2);
    assert!(storage.unproven().is_empty());
    add(&storage, SHARD + 1, 3);
}

#[test]
fn a_shard_whose_manifest_is_lost_keeps_its_files_and_is_neither_read_nor_written() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD, 2);
    drop(storage);
    let manifest = manifest::path(&shard_dir(&dir));
    let kept = fs::read(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    let storage = reopen(&dir).unwrap();
    let now = snapshot(9, &[]);
    let read = || storage.segments(TABLE, SHARD, &now, Some(counted(&[1, 2], &now)));
    let error = read().unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    for part in ["tables/3/17/manifest.json is missing", "docs/repair.md"] {
        assert!(error.message().contains(part), "{error}");
    }
    let late = segment(&storage, TABLE, SHARD, 5);
    let refused = storage.add(TABLE, vec![late]).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::DataLoss, "{refused}");
    storage.collect(&question(SHARD, &[1, 2]));
    assert_eq!(files(&dir), 2);
    drop(storage);
    fs::write(&manifest, kept).unwrap();
    let storage = reopen(&dir).unwrap();
    let found = storage.segments(TABLE, SHARD, &now, Some(counted(&[1, 2], &now)));
    assert_eq!(found.unwrap().len(), 2);
}

#[test]
fn an_older_manifest_is_found_out_and_the_files_that_it_does_not_name_are_kept() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let manifest = manifest::path(&shard_dir(&dir));
    let older = fs::read(&manifest).unwrap();
    add(&storage, SHARD, 2);
    drop(storage);
    fs::write(&manifest, older).unwrap();
    let storage = reopen(&dir).unwrap();
    let now = snapshot(9, &[]);
    let error = storage
        .segments(TABLE, SHARD, &now, Some(counted(&[1, 2], &now)))
        .unwrap_err();
    assert!(error.message().contains("is outdated"), "{error}");
    storage.collect(&question(SHARD, &[1, 2]));
    assert_eq!(files(&dir), 3);
    // A query of an older snapshot is also told what is missing now.
    let before = snapshot(1, &[]);
    let error = storage
        .segments(TABLE, SHARD, &before, Some(counted(&[1, 2], &now)))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
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

#[test]
fn on_a_full_disk_the_rows_of_an_aborted_write_make_room_for_the_manifest_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    add(&storage, SHARD, 1);
    let large = segment_of(&storage, TABLE, SHARD, 2, &[7; 4096]);
    storage.add(TABLE, vec![large]).unwrap();
    disk.set_room(Some(0));
    storage.abort_write(WriteId(2)).unwrap();
    assert_eq!(files(&dir), 2);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
}

#[test]
fn the_rows_of_an_aborted_write_are_deleted_from_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::over(dir.path()).unwrap();
    let storage = Storage::open(dir.path(), Arc::new(disk.clone())).unwrap();
    for write in [1, 2] {
        add(&storage, SHARD, write);
    }
    // The rows of the aborted write take less space than the manifest needs.
    let bytes: u64 = fs::read(manifest::path(&shard_dir(&dir))).unwrap().len() as u64;
    disk.set_room(Some(bytes / 2));
    let full = storage.abort_write(WriteId(2)).unwrap_err();
    assert_eq!(full.code(), ErrorCode::ResourceExhausted, "{full}");
    // The file of these rows is gone all the same.
    assert_eq!(files(&dir), 2);
    disk.set_room(Some(bytes));
    let collected = storage.collect(&Report {
        live_tables: vec![TABLE.0],
        last_table: TABLE.0,
        aborted_writes: vec![2],
        ..Report::default()
    });
    assert_eq!(collected.writes, [WriteId(2)], "{collected:?}");
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
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
    assert_eq!(files(&dir), 2);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
}

/// Makes the replacement of the shard's manifest fail. It fails at a point where `manifest` is
/// there, but may not be durable.
fn interrupted<T>(dir: &TempDir, manifest: &Manifest, replacing: impl FnOnce() -> T) -> T {
    manifest.write(&LocalDisk, &shard_dir(dir)).unwrap();
    let obstacle = shard_dir(dir).join("manifest.tmp");
    fs::create_dir(&obstacle).unwrap();
    let result = replacing();
    fs::remove_dir(&obstacle).unwrap();
    result
}

#[test]
fn a_write_that_may_be_on_disk_can_be_aborted() {
    let (dir, storage) = open();
    let new = segment(&storage, TABLE, SHARD, 1);
    let manifest = Manifest::new(TABLE, SHARD, vec![new.entry()]);
    interrupted(&dir, &manifest, || storage.add(TABLE, vec![new])).unwrap_err();
    assert_eq!(files(&dir), 2, "the manifest names a file that is there");
    storage.abort_write(WriteId(1)).unwrap();
    assert_eq!(files(&dir), 1);
    drop(storage);
    let storage = reopen(&dir).unwrap();
    assert!(seen(&storage, &snapshot(9, &[])).is_empty());
}

#[test]
fn an_aborted_write_that_a_crash_may_bring_back_is_not_forgotten() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD, 2);
    let with_both = fs::read(manifest::path(&shard_dir(&dir))).unwrap();
    let kept = storage
        .segments(TABLE, SHARD, &snapshot(1, &[]), None)
        .unwrap();
    let manifest = Manifest::new(TABLE, SHARD, vec![kept[0].entry()]);
    let question = Report {
        live_tables: vec![TABLE.0],
        last_table: TABLE.0,
        aborted_writes: vec![2],
        ..Report::default()
    };
    let collected = interrupted(&dir, &manifest, || storage.collect(&question));
    assert!(collected.failure.is_some() && collected.writes.is_empty());
    // A crash at this point would have left this manifest.
    fs::write(manifest::path(&shard_dir(&dir)), with_both).unwrap();
    let collected = storage.collect(&question);
    assert_eq!(collected.writes, [WriteId(2)]);
    drop((kept, storage));
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
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
    assert_eq!(files(&dir), 1); // the manifest, of no segments
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
    assert!(!dir.path().join("tables/3").exists());
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
    assert!(dir.path().join("tables/3").exists());
    assert!(seen(&storage, &snapshot(1, &[])).is_empty());
    let collected = storage.collect(&Report {
        last_table: TABLE.0,
        ..Report::default()
    });
    assert!(collected.failure.is_none(), "{collected:?}");
    assert!(!dir.path().join("tables/3").exists());
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
        aborted_writes: vec![2, 8],
        ..Report::default()
    });
    assert!(collected.failure.is_none(), "{collected:?}");
    assert_eq!(collected.writes, [WriteId(2), WriteId(8)]);
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
fn a_manifest_that_cannot_be_read_keeps_its_shard_from_being_used_and_no_other() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD + 1, 1);
    drop(storage);
    let manifest = shard_dir(&dir).join("manifest.json");
    let other = dir.path().join("tables/3/18/manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    for text in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole.replace("\"rows\": 2", "\"rows\": 3"),
        fs::read_to_string(other).unwrap(),
    ] {
        fs::write(&manifest, &text).unwrap();
        let storage = reopen(&dir).unwrap();
        let now = snapshot(9, &[]);
        let late = segment(&storage, TABLE, SHARD, 2);
        for error in [
            storage.segments(TABLE, SHARD, &now, None).unwrap_err(),
            storage.add(TABLE, vec![late]).unwrap_err(),
        ] {
            assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
            assert!(error.message().contains("manifest.json"), "{error}");
        }
        let sound = storage.segments(TABLE, SHARD + 1, &now, None);
        assert_eq!(sound.unwrap().len(), 1);
        storage.collect(&question(SHARD, &[1]));
        assert_eq!(files(&dir), 2, "nothing is deleted");
    }
}

#[test]
fn a_manifest_of_a_newer_release_keeps_the_worker_from_starting() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let manifest = shard_dir(&dir).join("manifest.json");
    fs::write(&manifest, r#"{"format": 99, "moon": true}"#).unwrap();
    let error = reopen(&dir).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.message().contains("manifest.json"), "{error}");
    assert_eq!(files(&dir), 2);
}

#[test]
fn what_is_not_volarys_is_left_alone() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let foreign = [
        dir.path().join("tables/notes.txt"),
        shard_dir(&dir).join("manifest.json.kept"),
    ];
    for file in &foreign {
        fs::write(file, "").unwrap();
    }
    let storage = reopen(&dir).unwrap();
    assert_eq!(seen(&storage, &snapshot(1, &[])), [1]);
    assert!(storage.unproven().is_empty());
    assert!(foreign.iter().all(|file| file.exists()));
}
