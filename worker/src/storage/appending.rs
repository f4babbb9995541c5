//! Rows of small writes go to the log: one sync makes them durable, whatever their shards, and
//! other writes share it. They are read from memory until a segment has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use prost::Message;
use tokio::sync::oneshot;
use volary_flight_proto::control::SegmentDescription;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Error, ErrorCode, Result, ipc};
use volary_gather::message_rows::decode_rows;

use super::Storage;
use super::log_frames::{self, LoggedWrite};
use super::log_use::LoggedWriteId;
use super::segment::Segment;
use super::shard::Segments;
use super::table::UnflushedShard;
use super::tombstones::RunningWrite;
use crate::log::{Appended, Log, Recovered};
use crate::segment::stored_schema;

/// Share of the log above which its rows should be made segments.
const FULL_SHARE: f64 = 0.5;

/// Rows of a write that are small enough for the log.
#[derive(Debug)]
pub(crate) struct SmallWrite {
    /// The table of the rows.
    pub(crate) table: TableDescription,
    /// The write.
    pub(crate) write: WriteId,
    /// The incarnation of the catalog that gave out the number of the write.
    pub(crate) incarnation: u32,
    /// The shards of the rows, ascending, with the number of their rows.
    pub(crate) shards: Vec<(u32, usize)>,
    /// The rows, in the order of the shards. They have the columns of segments.
    pub(crate) rows: RecordBatch,
}

/// The rows of a table that are in no segment yet, and that all later snapshots see.
#[derive(Debug)]
pub(crate) struct Unflushed {
    /// The table.
    pub(crate) table: TableDescription,
    /// The shards with their rows.
    pub(crate) shards: Vec<UnflushedShard>,
}

impl UnflushedShard {
    /// Returns the rows, and the write of each row.
    pub(crate) fn batches(&self) -> impl Iterator<Item = (&RecordBatch, Vec<u64>)> {
        self.rows.iter().map(|(rows, runs)| {
            let writes = runs.iter();
            let writes = writes.flat_map(|run| std::iter::repeat_n(run.write.0, run.rows));
            (rows, writes.collect())
        })
    }

    /// Returns the writes of the rows, ascending, with the number of their rows.
    pub(crate) fn writes(&self) -> Vec<(WriteId, u64)> {
        let mut writes: BTreeMap<WriteId, u64> = BTreeMap::new();
        for run in self.rows.iter().flat_map(|(_, runs)| runs) {
            *writes.entry(run.write).or_default() += run.rows as u64;
        }
        writes.into_iter().collect()
    }
}

impl Storage {
    /// Makes rows durable in the log, and returns their size in bytes. Returns `None`, and does
    /// nothing, if the log has no room for them. The rows count as being written until that is
    /// decided, even if the future is dropped: `running` is returned then.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, `CANCELLED` if the write was aborted, and the
    /// errors of the file system. After an error, the rows may be durable. Aborting the write
    /// removes them.
    pub(crate) async fn append(
        &self,
        small: &SmallWrite,
        running: RunningWrite,
    ) -> Result<(Option<u64>, RunningWrite)> {
        let table = self.table_to_write(TableId(small.table.table_id))?;
        table.check_shards(small.shards.iter().map(|(shard, _)| *shard))?;
        let described = LoggedWrite {
            table: small.table.table_id,
            write: small.write.0,
            shards: small.shards.iter().map(|(shard, _)| *shard).collect(),
            rows: small.shards.iter().map(|(_, rows)| *rows as u64).collect(),
            commits: self.heard_commits(),
            incarnation: small.incarnation,
        };
        let frame = log_frames::encode(&small.table, &described, &small.rows)?;
        let bytes = frame.payload.iter().map(|part| part.len() as u64).sum();
        if self.0.shared.log_use.bytes() + bytes > self.0.log_bytes {
            self.note_full_log();
            return Ok((None, running));
        }
        let id = LoggedWriteId {
            incarnation: small.incarnation,
            write: small.write,
        };
        let log_use = Arc::clone(&self.0.shared.log_use);
        log_use.begin(id);
        let (write, shards) = (small.write, split(&small.rows, &small.shards));
        let (sender, receiver) = oneshot::channel();
        let (storage, filled) = (self.clone(), Arc::clone(&self.0.filled));
        // This waits only if a thousand writes wait for the log.
        self.0.log.append(frame, move |appended| {
            let added = match appended {
                Appended::Durable(position) => {
                    log_use.place(position.file, id);
                    let added = table.add_logged(write, position.file, bytes, shards);
                    filled.notify_one();
                    added.map(|()| Some(bytes))
                }
                Appended::Full => {
                    log_use.give_up(id);
                    storage.note_full_log();
                    Ok(None)
                }
                Appended::Failed(error) => Err(error),
            };
            // The writer may have gone away.
            let _ = sender.send(added.map(|added| (added, running)));
        });
        receiver
            .await
            .unwrap_or_else(|_| Err(Error::internal("the log has not settled a frame")))
    }

    /// Adds the rows that the log has and that no segment has, when the worker starts.
    pub(super) fn replay(&self, frames: Vec<Recovered>) -> Result<()> {
        let aborted = self.0.store.aborted();
        let first_needed = self.0.shared.log_use.floor();
        let next_file = frames.last().map_or(0, |frame| frame.file) + 1;
        let mut schemas: BTreeMap<u64, SchemaRef> = BTreeMap::new();
        // The rows of earlier files are in segments or gone, even if the files are still there.
        for frame in frames.into_iter().filter(|it| it.file >= first_needed) {
            if frame.kind == log_frames::TABLE {
                let table =
                    TableDescription::decode(frame.payload).map_err(|_| damaged(frame.number))?;
                let schema = ipc::schema_from_bytes(&table.schema);
                let schema = Arc::new(schema.map_err(|_| damaged(frame.number))?);
                schemas.insert(table.table_id, stored_schema(&schema));
                self.0.layouts.note(&table);
                continue;
            }
            let split_frame = log_frames::split(&frame.payload);
            let (described, rows) = split_frame.ok_or_else(|| damaged(frame.number))?;
            let write = WriteId(described.write);
            let incarnation = described.incarnation;
            let id = LoggedWriteId { incarnation, write };
            self.0.shared.log_use.place(frame.file, id);
            let aborted = aborted.get(&incarnation);
            if aborted.is_some_and(|aborted| aborted.contains(write)) {
                continue;
            }
            // The commits that were known to a catalog whose writes were set aside do not count.
            self.hear_commits(described.commits);
            let schema = schemas.get(&described.table);
            let schema = schema.ok_or_else(|| damaged(frame.number))?;
            let rows = decode_rows(&rows, Arc::clone(schema));
            let rows = rows.map_err(|_| damaged(frame.number))?;
            let counts = described.counts(rows.num_rows());
            let counts = counts.ok_or_else(|| damaged(frame.number))?;
            let table = self.table_to_write(TableId(described.table))?;
            let mut shards = split(&rows, &counts);
            shards.retain(|(shard, _)| !table.has_flushed(*shard, write));
            let bytes = frame.payload.len() as u64;
            if !shards.is_empty() {
                table.add_logged(write, frame.file, bytes, shards)?;
            }
        }
        if self.0.shared.log_use.is_needed() {
            self.release_log();
        } else {
            // Segments have all rows. The log goes on in another file anyway.
            self.0.shared.log_use.release_all(next_file);
            self.0.log.release_before(u64::MAX);
        }
        self.0.store.retain_aborted(&self.0.shared.log_use.all());
        Ok(())
    }

    /// Notes which writes are committed: segments may be made of their rows.
    pub(crate) fn note_committed(&self, committed: Snapshot) {
        *self.0.committed.lock() = committed;
    }

    /// Waits until the log is filled so far that its rows should be made segments. Returns true if
    /// it had no room for some rows. That may be so although few rows are needed: a file is
    /// recycled only when none of its rows is needed, and after all earlier ones.
    pub(crate) async fn log_filled(&self) -> bool {
        loop {
            if self.0.is_log_full.swap(false, Ordering::AcqRel) {
                return true;
            }
            if self.log_share() >= FULL_SHARE {
                return false;
            }
            self.0.filled.notified().await;
        }
    }

    fn note_full_log(&self) {
        self.0.is_log_full.store(true, Ordering::Release);
        self.0.filled.notify_one();
    }

    /// Returns the share of the log that holds rows which are in no segment, from 0 to 1.
    pub(crate) fn log_share(&self) -> f64 {
        self.0.shared.log_use.bytes() as f64 / (self.0.log_bytes.max(1)) as f64
    }

    /// Returns the size of the rows in the log that are in no segment, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.0.shared.log_use.bytes()
    }

    /// Returns the tables with rows that are in no segment yet, those with rows in the oldest files
    /// of the log first, because files are recycled in their order.
    pub(crate) fn unflushed_tables(&self) -> Vec<TableId> {
        let mut tables: Vec<_> = self
            .tables()
            .iter()
            .filter_map(|table| Some((table.oldest_log_file()?, table.id())))
            .collect();
        tables.sort_unstable();
        tables.into_iter().map(|(_, table)| table).collect()
    }

    /// Returns the rows of a table that are in no segment yet, and that the snapshot sees. Returns
    /// `None` if there are none.
    ///
    /// # Errors
    /// Returns `INTERNAL` if the rows cannot be read.
    pub(crate) fn unflushed(
        &self,
        table: TableId,
        committed: &Snapshot,
    ) -> Result<Option<Unflushed>> {
        let layout = self.0.layouts.get(table);
        let (Some(layout), Some(table)) = (layout, self.known_table(table)) else {
            return Ok(None);
        };
        let shards = table.logged(committed)?;
        Ok((!shards.is_empty()).then_some(Unflushed {
            table: layout,
            shards,
        }))
    }

    /// Waits until nobody else makes segments of rows in the log. As long as the returned guard
    /// lives, nobody else begins. Otherwise two flushes would make segments of the same rows.
    pub(crate) async fn flush_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.flush_turn.lock().await
    }

    /// Replaces rows that are in the log only by segments with these rows. May block.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and the errors of the file system.
    pub(crate) fn replace_logged(&self, table: TableId, segments: Vec<Segment>) -> Result<()> {
        let Some(table) = self.known_table(table) else {
            return Ok(()); // The files are deleted with the segments.
        };
        let segments: Segments = segments.into_iter().map(Arc::new).collect();
        let (storage, settling) = (self.clone(), Arc::clone(&table));
        let (sender, receiver) = mpsc::sync_channel(1);
        let described = self.0.layouts.unstored(table.id());
        let _arrangement = self.0.arrangement.read();
        self.0.store.change_with_ballast(
            move || {
                let mut delta = table.decide_flush(&segments)?;
                delta.described.extend(described);
                Ok((segments, delta))
            },
            move |segments, outcome| {
                storage.note_described(&settling, outcome);
                let changed: Vec<_> = segments.iter().map(|segment| segment.shard()).collect();
                let _ = sender.send(settling.settle_flush(segments, outcome));
                storage.0.changed_shards.note(settling.id(), changed);
            },
        )?;
        self.release_log();
        receiver.try_recv().unwrap_or(Ok(()))
    }

    /// Returns descriptions of the rows that are in the log and in no segment, ordered by table,
    /// shard and write.
    pub(super) fn list_logged(&self) -> Vec<SegmentDescription> {
        let mut listed = Vec::new();
        for table in self.tables() {
            for ((shard, write, file), rows) in table.logged_runs() {
                listed.push(SegmentDescription {
                    table_id: table.id().0,
                    shard,
                    write_id: write.0,
                    file: Log::relative_path(file),
                    rows,
                    bytes: self.0.shared.log_use.bytes_of(file, rows),
                    damage: String::new(),
                });
            }
        }
        listed
    }

    /// Lets the log go on in another file. When segments have all rows of the files before it,
    /// these are forgotten, and the writes of the rows with them.
    pub(crate) fn close_log_file(&self) {
        let storage = self.clone();
        self.0.log.close_file(move |file| {
            storage.0.shared.log_use.close(file);
            storage.release_log();
        });
    }

    /// Lets files of a full log be recycled that are not needed any more, even if the log was told
    /// so before: it may have been too busy to listen. Rows go to a full log only afterwards.
    pub(crate) fn release_full_log(&self) {
        self.release_log();
        self.0.log.release_before(self.0.shared.log_use.floor());
    }

    /// Lets files of the log be recycled that are not needed any more.
    pub(super) fn release_log(&self) {
        if let Some(first) = self.0.shared.log_use.release() {
            self.0.log.release_before(first);
        }
    }
}

/// Returns the rows of each shard.
fn split(rows: &RecordBatch, shards: &[(u32, usize)]) -> Vec<(u32, RecordBatch)> {
    let mut start = 0;
    let shards = shards.iter().map(|(shard, count)| {
        let slice = rows.slice(start, *count);
        start += count;
        (*shard, slice)
    });
    shards.collect()
}

fn damaged(frame: u64) -> Error {
    Error::new(
        ErrorCode::DataLoss,
        format!(
            "frame {frame} of the worker's log has another content than this release writes; start the worker with the release that wrote it, or restore the worker's data directory from its newest backup (docs/repair.md)"
        ),
    )
}
