use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Table;
use super::segments::Replacement;
use crate::storage::logged::Run;
use crate::storage::segment::Segment;
use crate::storage::shard::Segments;
use crate::storage::store::{Delta, Outcome};

/// The rows of a shard that are in no segment yet.
#[derive(Debug)]
pub(crate) struct UnflushedShard {
    pub(crate) shard: u32,
    /// Batches of rows with the writes of their rows.
    pub(in crate::storage) rows: Vec<(RecordBatch, Vec<Run>)>,
}

impl Table {
    /// Adds rows of a write that are durable in a file of the log. `shards` are the rows of each
    /// shard, which take `bytes` together.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and `CANCELLED` if the write was aborted.
    pub(in crate::storage) fn add_logged(
        &self,
        write: WriteId,
        file: u64,
        bytes: u64,
        shards: Vec<(u32, RecordBatch)>,
    ) -> Result<()> {
        // An abort or a drop is noted before this lock is taken to remove rows. So either it is
        // seen here, or it finds these rows.
        let mut known = self.shards.write();
        self.tombstones.check_table(self.id())?;
        self.tombstones.check_write(write)?;
        let rows = shards.iter().map(|(_, rows)| rows.num_rows() as u64).sum();
        self.log_use.add(file, rows, bytes);
        self.totals.add_logged(rows, write);
        for (shard, rows) in shards {
            let is_new = !known.contains_key(&shard);
            self.totals.add_shards(usize::from(is_new));
            known
                .entry(shard)
                .or_default()
                .logged
                .push(rows, write, file)?;
        }
        Ok(())
    }

    /// Returns the rows of each shard that are in no segment yet, and that the snapshot sees, with
    /// their writes.
    pub(in crate::storage) fn logged(&self, snapshot: &Snapshot) -> Result<Vec<UnflushedShard>> {
        let mut unflushed = Vec::new();
        for (shard, known) in self.shards.read().iter() {
            let rows = known.logged.of(|write| snapshot.sees(write))?;
            if !rows.is_empty() {
                unflushed.push(UnflushedShard {
                    shard: *shard,
                    rows,
                });
            }
        }
        Ok(unflushed)
    }

    /// Returns the number of rows that are in no segment, by shard, write and log file.
    pub(in crate::storage) fn logged_runs(&self) -> BTreeMap<(u32, WriteId, u64), u64> {
        let mut runs = BTreeMap::new();
        for (shard, known) in self.shards.read().iter() {
            for run in known.logged.runs() {
                *runs.entry((*shard, run.write, run.file)).or_default() += run.rows as u64;
            }
        }
        runs
    }

    /// Returns the oldest file of the log with rows that are in no segment yet.
    pub(in crate::storage) fn oldest_log_file(&self) -> Option<u64> {
        let shards = self.shards.read();
        let runs = shards.values().flat_map(|shard| shard.logged.runs());
        runs.map(|run| run.file).min()
    }

    /// Returns whether a segment has rows of several writes, and this write among them. Then it has
    /// all rows of the write in this shard.
    pub(in crate::storage) fn has_flushed(&self, shard: u32, write: WriteId) -> bool {
        let shards = self.shards.read();
        let segments = shards.get(&shard).map_or(&[][..], |known| &known.segments);
        segments.iter().any(|segment| segment.has_flushed(write))
    }

    /// Decides to add segments with rows that are in the log only.
    ///
    /// # Errors
    /// Returns the errors of [`Self::decide_addition`]. Returns `CANCELLED` if some of the rows are
    /// not in the log only any more: they were set aside meanwhile.
    pub(in crate::storage) fn decide_flush(&self, segments: &[Arc<Segment>]) -> Result<Delta> {
        for segment in segments {
            let mut logged: BTreeMap<WriteId, u64> = BTreeMap::new();
            if let Some(known) = self.shards.read().get(&segment.shard()) {
                for run in known.logged.runs() {
                    *logged.entry(run.write).or_default() += run.rows as u64;
                }
            }
            let is_logged = |(write, rows): (WriteId, u64)| logged.get(&write) == Some(&rows);
            if !segment.writes().all(is_logged) {
                return Err(Error::new(
                    ErrorCode::Cancelled,
                    format!(
                        "rows of table {} were removed while they were flushed",
                        self.id()
                    ),
                ));
            }
        }
        self.decide_addition(segments)
    }

    /// Learns what became of segments with rows that were in the log only. These rows are not
    /// needed in memory any more.
    pub(in crate::storage) fn settle_flush(
        &self,
        segments: Segments,
        outcome: Outcome,
    ) -> Result<()> {
        if matches!(outcome, Outcome::NotMade(_)) {
            return Ok(()); // The files are deleted with the segments.
        }
        self.settle_uncertain(outcome);
        segments.iter().for_each(|segment| segment.mark_named());
        if outcome == Outcome::Unknown {
            // The rows stay in memory.
            self.uncertain.lock().push(Replacement {
                old: Segments::new(),
                new: segments,
                expired: None,
            });
            return Ok(());
        }
        let mut shards = self.shards.write();
        let mut result = Ok(());
        for segment in segments {
            self.totals.add(&segment);
            let known = shards.entry(segment.shard()).or_default();
            let flushed: WriteSet = segment.writes().map(|(write, _)| write).collect();
            match known.logged.remove(|write| flushed.contains(write)) {
                Ok(runs) => self.forget_runs(&runs),
                Err(error) => result = Err(error),
            }
            known.segments.push(segment);
            known.segments.sort_by_key(|segment| segment.write());
        }
        result
    }

    /// Removes the rows of these writes that are in no segment, and returns their number.
    pub(in crate::storage) fn remove_logged(&self, writes: &WriteSet) -> Result<u64> {
        let mut rows = 0;
        for known in self.shards.write().values_mut() {
            let runs = known.logged.remove(|write| writes.contains(write))?;
            self.forget_runs(&runs);
            rows += runs.iter().map(|run| run.rows as u64).sum::<u64>();
        }
        Ok(rows)
    }

    pub(super) fn forget_runs(&self, runs: &[Run]) {
        self.log_use.remove(runs);
        for run in runs {
            self.totals.remove_logged(run.rows as u64, run.write);
        }
    }
}
