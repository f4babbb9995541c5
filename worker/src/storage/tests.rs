use std::fs;
use std::io::Write;
use std::path::PathBuf;

use tempfile::TempDir;
use volary_flight_proto::ErrorCode;

use super::manifest::Manifest;
use super::*;

const TABLE: TableId = TableId(3);
const SHARD: u32 = 17;

fn open() -> (TempDir, Storage) {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path()).unwrap();
    (dir, storage)
}

/// A segment of some bytes: storage does not look into files.
fn segment(storage: &Storage, table: TableId, shard: u32, write: u64) -> Segment {
    let (segment, mut file) = storage.create(table, shard, WriteId(write)).unwrap();
    file.write_all(b"rows").unwrap();
    segment.complete(2, 4)
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
    let segments = storage.segments(TABLE, SHARD, snapshot).unwrap();
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
    let storage = Storage::open(dir.path()).unwrap();
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

#[test]
fn what_a_crash_leaves_is_removed_at_the_next_start() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    // The process is killed before the manifest names the segment.
    std::mem::forget(segment(&storage, TABLE, SHARD, 2));
    fs::write(shard_dir(&dir).join("manifest.tmp"), "{").unwrap();
    assert_eq!(files(&dir), 4);
    drop(storage);
    let storage = Storage::open(dir.path()).unwrap();
    assert_eq!(files(&dir), 2);
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
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
    let storage = Storage::open(dir.path()).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
}

/// Makes replacing the shard's manifest fail, as if it had got only so far that `manifest` is there, and not for sure.
fn interrupted<T>(dir: &TempDir, manifest: &Manifest, replacing: impl FnOnce() -> T) -> T {
    manifest.write(&shard_dir(dir)).unwrap();
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
    let storage = Storage::open(dir.path()).unwrap();
    assert!(seen(&storage, &snapshot(9, &[])).is_empty());
}

#[test]
fn an_aborted_write_that_a_crash_may_bring_back_is_not_forgotten() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    add(&storage, SHARD, 2);
    let with_both = fs::read(manifest::path(&shard_dir(&dir))).unwrap();
    let kept = storage.segments(TABLE, SHARD, &snapshot(1, &[])).unwrap();
    let manifest = Manifest::new(TABLE, SHARD, vec![kept[0].entry()]);
    let question = Report {
        live_tables: vec![TABLE.0],
        last_table: TABLE.0,
        aborted_writes: vec![2],
        next_ms: 0,
    };
    let collected = interrupted(&dir, &manifest, || storage.collect(&question));
    assert!(collected.failure.is_some() && collected.writes.is_empty());
    // The crash that did not come would have left this.
    fs::write(manifest::path(&shard_dir(&dir)), with_both).unwrap();
    let collected = storage.collect(&question);
    assert_eq!(collected.writes, [WriteId(2)]);
    drop((kept, storage));
    let storage = Storage::open(dir.path()).unwrap();
    assert_eq!(seen(&storage, &snapshot(9, &[])), [1]);
}

#[test]
fn a_file_is_deleted_when_the_last_scan_of_it_ends() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let scan = storage.segments(TABLE, SHARD, &snapshot(1, &[])).unwrap();
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
    let scan = storage.segments(TABLE, SHARD, &snapshot(1, &[])).unwrap();
    storage.drop_table(TABLE).unwrap();
    for error in [
        storage
            .segments(TABLE, SHARD, &snapshot(1, &[]))
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
fn a_table_that_was_dropped_before_a_crash_does_not_come_back() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    let scan = storage.segments(TABLE, SHARD, &snapshot(1, &[])).unwrap();
    storage.drop_table(TABLE).unwrap();
    std::mem::forget(scan);
    drop(storage);
    let storage = Storage::open(dir.path()).unwrap();
    assert!(!dir.path().join("tables/3").exists());
    let error = storage
        .segments(TABLE, SHARD, &snapshot(1, &[]))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
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
        next_ms: 0,
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
        .segments(TableId(2), 0, &snapshot(1, &[]))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
}

#[test]
fn a_damaged_segment_fails_the_scans_that_need_it_and_no_others() {
    let (dir, storage) = open();
    for (shard, write) in [(SHARD, 1), (SHARD, 2), (SHARD + 1, 2)] {
        add(&storage, shard, write);
    }
    let scan = storage.segments(TABLE, SHARD, &snapshot(9, &[1])).unwrap();
    let (path, name) = (scan[0].path().to_owned(), scan[0].relative_path());
    drop((scan, storage));
    for damage in ["longer than it was", ""] {
        if damage.is_empty() {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(&path, damage).unwrap();
        }
        let storage = Storage::open(dir.path()).unwrap();
        let error = storage
            .segments(TABLE, SHARD, &snapshot(9, &[]))
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss);
        assert!(error.message().contains(&name), "{error}");
        assert_eq!(seen(&storage, &snapshot(1, &[])), [1]);
        assert_eq!(
            storage
                .segments(TABLE, SHARD + 1, &snapshot(9, &[]))
                .unwrap()
                .len(),
            1
        );
    }
}

#[test]
fn a_manifest_that_cannot_be_read_keeps_the_worker_from_starting() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let manifest = shard_dir(&dir).join("manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    let named = |name: &str| whole.replace("\"1-", &format!("\"{name}"));
    for (text, code) in [
        (whole[..whole.len() / 2].to_owned(), ErrorCode::DataLoss),
        (
            whole.replace("\"shard\": 17", "\"shard\": 18"),
            ErrorCode::DataLoss,
        ),
        (named("../18/"), ErrorCode::DataLoss),
        (
            r#"{"format": 99, "moon": true}"#.to_owned(),
            ErrorCode::InvalidArgument,
        ),
    ] {
        fs::write(&manifest, &text).unwrap();
        let error = Storage::open(dir.path()).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains("manifest.json"), "{error}");
        assert_eq!(
            files(&dir),
            2,
            "nothing is removed beside a manifest that says nothing"
        );
    }
}

#[test]
fn what_is_not_volarys_is_left_alone() {
    let (dir, storage) = open();
    add(&storage, SHARD, 1);
    drop(storage);
    let foreign = dir.path().join("tables/notes.txt");
    fs::write(&foreign, "").unwrap();
    let storage = Storage::open(dir.path()).unwrap();
    assert_eq!(seen(&storage, &snapshot(1, &[])), [1]);
    assert!(foreign.exists());
}
