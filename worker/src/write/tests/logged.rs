//! Writes, flushes, merges, expiry, TRUNCATE, aborts and restarts in any order: each query sees its
//! rows, whether they are in the log or in segments, and whether expired rows are deleted already
//! or not.

use std::collections::BTreeMap;

use parquet::arrow::arrow_reader::RowSelection;
use volary_flight_proto::control::TableExpiry;
use volary_flight_proto::fragment::{ExpectedRows, Expiry};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write_set::WriteSet;

use super::*;
use crate::compaction::Compactor;
use crate::scan::visible_rows;
use crate::storage::CountedRows;

/// Returns the same pseudo-random numbers each time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

pub(crate) fn small_worker() -> Worker {
    let mut worker = worker(256 << 20);
    worker.context.config.logged_write = MemorySize::Bytes(1 << 20);
    worker
}

/// Number of the table in tests that have only one.
const TABLE: u64 = 3;

pub(crate) async fn write_keys(worker: &Worker, write: u64, keys: &[i64]) {
    write_as(worker, 0, TABLE, write, keys).await;
}

/// Returns the description of the table with this number.
fn table(number: u64) -> TableDescription {
    TableDescription {
        table_id: number,
        ..request(&schema(), true).table.unwrap()
    }
}

/// Writes rows under a number that an incarnation of the catalog gave out.
async fn write_as(worker: &Worker, incarnation: u32, to: u64, write: u64, keys: &[i64]) {
    let request = WriteRequest {
        write_id: write,
        table: Some(table(to)),
        lineage: Some(Lineage {
            incarnation,
            ..Lineage::default()
        }),
        ..request(&schema(), true)
    };
    let written = write_all(worker, request, vec![Ok(rows(keys))])
        .await
        .unwrap();
    let count: u64 = written.shards.iter().map(|shard| shard.rows).sum();
    assert_eq!(count, keys.len() as u64);
}

/// Opens the storage anew, as after a kill. The files that are being deleted are gone: here, no
/// gateway says what a shard holds whose files the store does not name.
pub(crate) fn restart(worker: &mut Worker) {
    restart_with_log(worker, 256 << 20);
}

fn restart_with_log(worker: &mut Worker, log_bytes: u64) {
    worker.context.storage.await_deletions();
    // The storage that was open before is closed first.
    let empty = tempfile::tempdir().unwrap();
    worker.context.storage = Storage::open(empty.path(), Arc::new(LocalDisk)).unwrap();
    worker.context.storage = Storage::with_log(worker.dir.path(), log_bytes);
}

pub(crate) async fn flush_all(worker: &Worker, committed: &Snapshot) {
    let storage = &worker.context.storage;
    for table in storage.unflushed_tables() {
        flush(&worker.context, table, committed).await.unwrap();
    }
}

/// Returns the keys that a snapshot sees, sorted.
pub(crate) fn keys_seen(worker: &Worker, snapshot: &Snapshot) -> Vec<i64> {
    keys_counted(worker, TABLE, snapshot, |_| None)
}

/// Returns the keys of a table that a snapshot sees, sorted. The rows of each shard must have this
/// tally, if it is given. They may have expired.
fn keys_counted(
    worker: &Worker,
    table: u64,
    snapshot: &Snapshot,
    tally: impl Fn(u32) -> Option<Tally>,
) -> Vec<i64> {
    let mut keys = Vec::new();
    let mut take = |batch: &RecordBatch| {
        let column = batch.column(0).as_primitive::<Int64Type>();
        keys.extend_from_slice(column.values());
    };
    for shard in 0..SHARDS {
        let storage = &worker.context.storage;
        let counted = tally(shard).map(|tally| CountedRows {
            expected: ExpectedRows::Tally(tally),
            counted_writes: snapshot,
        });
        let visible = storage
            .rows(TableId(table), shard, snapshot, counted, None)
            .unwrap();
        visible.logged.iter().for_each(&mut take);
        for segment in &visible.segments {
            for batch in reader(segment.path()).build().unwrap() {
                take(&batch.unwrap());
            }
        }
        for segment in &visible.partly {
            let selection: RowSelection = visible_rows(segment, snapshot).unwrap().into_inner();
            let selected = reader(segment.path()).with_row_selection(selection);
            for batch in selected.build().unwrap() {
                take(&batch.unwrap());
            }
        }
    }
    keys.sort_unstable();
    keys
}

/// Time for which rows are kept, in seconds.
const KEEP: i64 = 300;

/// Returns whether the row with this key has not expired for a query that began at `as_of`, in
/// seconds.
fn is_kept(key: i64, as_of: i64) -> bool {
    time_of(key).is_none_or(|time| time >= as_of - KEEP)
}

/// What a query sees.
struct View {
    /// Number of the table.
    table: u64,
    snapshot: Snapshot,
    /// The time at which the query began, in seconds.
    as_of: i64,
    /// The keys of all committed rows, also of those that have expired.
    keys: Vec<i64>,
    tallies: BTreeMap<u32, Tally>,
}

impl View {
    fn check(&self, worker: &Worker, place: &str) {
        let tally = |shard| Some(self.tallies.get(&shard).copied().unwrap_or_default());
        let kept = |keys: &[i64]| -> Vec<i64> {
            let keys = keys.iter().copied();
            keys.filter(|key| is_kept(*key, self.as_of)).collect()
        };
        let seen = keys_counted(worker, self.table, &self.snapshot, tally);
        assert_eq!(kept(&seen), kept(&self.keys), "{place}");
    }
}

struct Model {
    /// Number of the table. TRUNCATE puts another one in its place.
    table: u64,
    /// The keys of each write, and whether it is committed; `None` if it is open.
    writes: BTreeMap<u64, (Vec<i64>, Option<bool>)>,
}

impl Model {
    fn new() -> Self {
        Self {
            table: TABLE,
            writes: BTreeMap::new(),
        }
    }

    /// Empties the table, and returns the open writes, which can no longer commit.
    fn truncate(&mut self) -> Vec<u64> {
        self.table += 1;
        let mut ended = Vec::new();
        for (write, (keys, state)) in &mut self.writes {
            if state.is_none() {
                *state = Some(false);
                ended.push(*write);
            }
            keys.clear();
        }
        ended
    }

    fn snapshot(&self) -> Snapshot {
        let high = self.writes.keys().next_back().copied().unwrap_or_default();
        let not_committed = self
            .writes
            .iter()
            .filter(|(_, (_, state))| *state != Some(true));
        let excluded: WriteSet = not_committed.map(|(write, _)| WriteId(*write)).collect();
        Snapshot::new(WriteId(high), &excluded)
    }

    fn committed_keys(&self) -> Vec<i64> {
        let committed = self
            .writes
            .values()
            .filter(|(_, state)| *state == Some(true));
        let mut keys: Vec<i64> = committed.flat_map(|(keys, _)| keys.clone()).collect();
        keys.sort_unstable();
        keys
    }

    fn view(&self, as_of: i64) -> View {
        let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
        for (write, (keys, state)) in &self.writes {
            for key in keys.iter().filter(|_| *state == Some(true)) {
                tallies
                    .entry(shard_of(*key))
                    .or_default()
                    .add(WriteId(*write), 1);
            }
        }
        View {
            table: self.table,
            snapshot: self.snapshot(),
            as_of,
            keys: self.committed_keys(),
            tallies,
        }
    }

    fn open_write(&self, number: u64) -> Option<u64> {
        let mut open = self.writes.iter().filter(|(_, (_, state))| state.is_none());
        let count = open.clone().count() as u64;
        let position = number.checked_rem(count)?;
        open.nth(usize::try_from(position).unwrap())
            .map(|(write, _)| *write)
    }
}

#[tokio::test]
async fn any_mix_of_writes_flushes_merges_expiry_truncate_aborts_and_restarts_equals_a_model() {
    let mut expired_rows = 0;
    let mut truncated = 0;
    for seed in 0..8 {
        let mut numbers = Numbers(seed);
        let mut worker = small_worker();
        let mut model = Model::new();
        let mut views: Vec<View> = Vec::new();
        let mut next_key = 0;
        let mut now = 0;
        for step in 0..150 {
            now += i64::try_from(numbers.below(20)).unwrap();
            if numbers.below(100) == 0 {
                expired_rows += worker.context.storage.totals().expired_rows;
                truncated += 1;
                views.clear();
                let emptied = TableId(model.table);
                // The gateway tells the workers in any order.
                let ended = model.truncate();
                worker.context.storage.drop_table(emptied).unwrap();
                for write in ended {
                    worker.context.storage.abort_write(WriteId(write)).unwrap();
                }
                let gone = worker
                    .context
                    .storage
                    .rows(emptied, 0, &model.snapshot(), None, None);
                assert_eq!(gone.unwrap_err().code(), ErrorCode::NotFound);
            }
            match numbers.below(17) {
                0..=4 => {
                    // Some writes make segments at once.
                    let is_small = numbers.below(3) > 0;
                    worker.context.config.logged_write =
                        MemorySize::Bytes(if is_small { 1 << 20 } else { 0 });
                    let count = i64::try_from(numbers.below(40)).unwrap() + 1;
                    let keys: Vec<i64> = (next_key..next_key + count).collect();
                    next_key += count;
                    let write = model.writes.len() as u64 + 1;
                    write_as(&worker, 0, model.table, write, &keys).await;
                    model.writes.insert(write, (keys, None));
                }
                5..=7 => {
                    if let Some(write) = model.open_write(numbers.below(1000)) {
                        model.writes.get_mut(&write).unwrap().1 = Some(true);
                    }
                }
                8 => {
                    if let Some(write) = model.open_write(numbers.below(1000)) {
                        model.writes.get_mut(&write).unwrap().1 = Some(false);
                        worker.context.storage.abort_write(WriteId(write)).unwrap();
                    }
                }
                9 | 10 => flush_all(&worker, &model.snapshot()).await,
                11 | 12 => {
                    let compactor = Compactor::new(worker.context.clone());
                    let table = table(model.table);
                    compactor.optimize(table, model.snapshot()).await.unwrap();
                }
                13 => {
                    // No query is older than the third last one.
                    views.drain(..views.len().saturating_sub(3));
                    let storage = &worker.context.storage;
                    if let Some(oldest) = views.first() {
                        storage.note_horizon(&oldest.snapshot);
                        storage.note_expiries(oldest.as_of * 1_000_000, &[expiry(model.table)]);
                    }
                    for shard in 0..SHARDS {
                        storage.settle(TableId(model.table), shard).unwrap();
                    }
                }
                14 | 15 => {
                    let compactor = Compactor::new(worker.context.clone());
                    for shard in 0..SHARDS {
                        let deleting = compactor.delete_expired_rows(TableId(model.table), shard);
                        deleting.await.unwrap();
                    }
                }
                _ => restart(&mut worker),
            }
            if numbers.below(4) == 0 {
                views.push(model.view(now));
            }
            for view in views.iter().chain([&model.view(now)]) {
                view.check(&worker, &format!("seed {seed}, step {step}"));
            }
        }
        expired_rows += worker.context.storage.totals().expired_rows;
        // Aborted writes do not come back when their abort is forgotten.
        restart(&mut worker);
        flush_all(&worker, &model.snapshot()).await;
        restart(&mut worker);
        let high = model.writes.len() as u64;
        let open = model
            .writes
            .iter()
            .filter(|(_, (_, state))| state.is_none());
        let open: WriteSet = open.map(|(write, _)| WriteId(*write)).collect();
        let forgetful = View {
            snapshot: Snapshot::new(WriteId(high), &open),
            ..model.view(now)
        };
        forgetful.check(&worker, &format!("seed {seed}, at the end"));
    }
    assert!(expired_rows > 100, "only {expired_rows} rows were deleted");
    assert!(truncated > 5, "only {truncated} times");
}

/// Returns how long the rows of a table are kept.
fn expiry(table: u64) -> TableExpiry {
    TableExpiry {
        table_id: table,
        expiry: Some(Expiry {
            time_column: 3,
            keep_us: KEEP.unsigned_abs() * 1_000_000,
        }),
    }
}

#[tokio::test]
async fn small_writes_make_no_files_until_they_are_flushed_and_one_for_each_shard_then() {
    let worker = small_worker();
    for write in 1..=20 {
        write_keys(&worker, write, &[i64::try_from(write).unwrap()]).await;
    }
    let tables = worker.dir.path().join("tables");
    assert_eq!(files_below(&tables), 0);
    assert_eq!(worker.context.storage.totals().rows, 20);
    let all = Snapshot::new(WriteId(20), &WriteSet::default());
    flush_all(&worker, &all).await;
    assert_eq!(files_below(&tables), SHARDS as usize);
    assert_eq!(keys_seen(&worker, &all), (1..=20).collect::<Vec<_>>());
    let totals = worker.context.storage.totals();
    assert_eq!((totals.rows, totals.segments), (20, u64::from(SHARDS)));
}

#[tokio::test]
async fn a_damaged_segment_of_which_some_rows_are_seen_is_data_loss() {
    let worker = small_worker();
    write_keys(&worker, 1, &[1]).await;
    write_keys(&worker, 2, &[1]).await;
    let both = Snapshot::new(WriteId(2), &WriteSet::default());
    flush_all(&worker, &both).await;
    let first = Snapshot::new(WriteId(1), &WriteSet::default());
    let storage = &worker.context.storage;
    let partly = (0..SHARDS)
        .flat_map(|shard| {
            storage
                .rows(TableId(3), shard, &first, None, None)
                .unwrap()
                .partly
        })
        .next()
        .unwrap();
    let bytes = std::fs::read(partly.path()).unwrap();
    std::fs::write(partly.path(), &bytes[..bytes.len() / 2]).unwrap();
    let error = visible_rows(&partly, &first).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
    assert!(partly.is_damaged());
}

#[tokio::test]
async fn a_log_that_is_full_lets_small_writes_make_segments() {
    let mut worker = small_worker();
    restart_with_log(&mut worker, 32 << 20);
    let keys: Vec<i64> = (0..8_000).collect();
    let mut write = 0;
    let tables = worker.dir.path().join("tables");
    while files_below(&tables) == 0 {
        write += 1;
        write_keys(&worker, write, &keys).await;
    }
    assert!(write > 4, "only {write} writes");
    let all = Snapshot::new(WriteId(write), &WriteSet::default());
    let seen = keys_seen(&worker, &all).len() as u64;
    assert_eq!(seen, write * 8_000);
    // Whoever makes segments is told so, although the log may have few rows.
    assert!(worker.context.storage.log_filled().await);
    // After a flush there is room again.
    flush_all(&worker, &all).await;
    let before = files_below(&tables);
    write_keys(&worker, write + 1, &[1]).await;
    assert_eq!(files_below(&tables), before);
}

#[tokio::test]
async fn rows_of_dropped_tables_leave_the_log_at_once() {
    let mut worker = small_worker();
    restart_with_log(&mut worker, 32 << 20);
    let keys: Vec<i64> = (0..8_000).collect();
    let mut write = 0;
    // All rows together would fill the log several times.
    for number in TABLE..TABLE + 40 {
        for _ in 0..4 {
            write += 1;
            write_as(&worker, 0, number, write, &keys).await;
        }
        let files = files_below(&worker.dir.path().join("tables"));
        assert_eq!(files, 0, "the log had no room for rows of table {number}");
        let storage = &worker.context.storage;
        storage.drop_table(TableId(number)).unwrap();
    }
}

#[tokio::test]
async fn rows_of_a_dropped_table_and_of_an_aborted_write_are_not_kept() {
    let worker = small_worker();
    write_keys(&worker, 1, &[1]).await;
    worker.context.storage.abort_write(WriteId(2)).unwrap();
    let request = WriteRequest {
        write_id: 2,
        ..request(&schema(), true)
    };
    let refused = write_all(&worker, request.clone(), vec![Ok(rows(&[2]))]).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Cancelled);
    worker.context.storage.drop_table(TableId(3)).unwrap();
    assert_eq!(worker.context.storage.totals().rows, 0);
    let request = WriteRequest {
        write_id: 3,
        ..request
    };
    let refused = write_all(&worker, request, vec![Ok(rows(&[3]))]).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn rows_that_were_set_aside_do_not_come_back_from_a_log_file_that_is_kept_to_be_recycled() {
    let mut worker = small_worker();
    write_keys(&worker, 1, &[1]).await;
    write_keys(&worker, 2, &[2]).await;
    let all = Snapshot::new(WriteId(9), &WriteSet::default());
    flush_all(&worker, &all).await;
    let log = worker.dir.path().join("log");
    let kept = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    copy(&log, kept.path());
    restart(&mut worker);
    worker
        .context
        .storage
        .set_aside(&WriteSet::default(), WriteId(2), 20)
        .unwrap();
    // After a crash, files may be there again that were deleted.
    copy(kept.path(), &log);
    restart(&mut worker);
    assert_eq!(keys_seen(&worker, &all), [1]);
}

#[tokio::test]
async fn a_number_that_a_recovered_catalog_gives_out_again_is_another_write() {
    let mut worker = small_worker();
    write_as(&worker, 10, TABLE, 4, &[1]).await;
    write_as(&worker, 10, TABLE, 5, &[2]).await;
    let aside = worker
        .context
        .storage
        .set_aside(&WriteSet::default(), WriteId(5), 20);
    assert_eq!(aside.unwrap(), 1);
    write_as(&worker, 20, TABLE, 5, &[3]).await;
    let all = Snapshot::new(WriteId(5), &WriteSet::default());
    assert_eq!(keys_seen(&worker, &all), [1, 3]);
    restart(&mut worker);
    assert_eq!(keys_seen(&worker, &all), [1, 3]);
    let lost = worker
        .dir
        .path()
        .join("lost/00000014/tables/3/2-log.parquet");
    let batches: Vec<_> = reader(&lost).build().unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}
