//! Segments are replaced on this worker alone: the new ones have the same rows with the writes that
//! added them, so every snapshot sees the same rows before and after. Rows that have expired may be
//! missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use volary_flight_proto::Result;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::TableDescription;

use super::Storage;
use super::record::SettledRows;
use super::segment::Segment;
use super::shard::Segments;
use super::table::Replacement;

impl Storage {
    /// Waits until shards have new segments, and takes the list of these shards.
    pub(crate) async fn take_changed_shards(&self) -> BTreeSet<(TableId, u32)> {
        self.0.changed_shards.take().await
    }

    /// Takes the list of shards that have new segments since the list was last taken.
    pub(crate) fn changed_shards(&self) -> BTreeSet<(TableId, u32)> {
        self.0.changed_shards.take_now()
    }

    /// Returns the sizes of the segments of a shard, in bytes.
    pub(crate) fn sizes_of(&self, table: TableId, shard: u32) -> Vec<u64> {
        let table = self.known_table(table);
        table.map_or_else(Vec::new, |table| table.sizes_of(shard))
    }

    /// Returns the sizes of the segments of each shard, in bytes.
    pub(crate) fn sizes_of_all(&self) -> Vec<Vec<u64>> {
        let mut all = Vec::new();
        for table in self.tables() {
            all.extend(
                table
                    .shards()
                    .into_iter()
                    .map(|shard| table.sizes_of(shard)),
            );
        }
        all
    }

    /// Returns the largest number of segments of at most this size that a shard of the table has.
    pub(crate) fn most_small_segments(&self, table: TableId, bytes: u64) -> usize {
        let table = self.known_table(table);
        table.map_or(0, |table| table.most_small_segments(bytes))
    }

    /// Returns the number of segments of a table.
    pub(crate) fn segment_count(&self, table: TableId) -> u64 {
        let mut count = 0;
        if let Some(table) = self.known_table(table) {
            table.for_each(&mut |_| count += 1);
        }
        count
    }

    /// Returns the writes that are known to be committed.
    pub(crate) fn committed(&self) -> Snapshot {
        self.0.committed.lock().clone()
    }

    /// Returns the columns and keys of a table; `None` if this worker has not learned them yet.
    pub(crate) fn table_description(&self, table: TableId) -> Option<TableDescription> {
        self.0.layouts.get(table)
    }

    /// Returns the shards of a table that have segments.
    pub(crate) fn shards_of(&self, table: TableId) -> Vec<u32> {
        let table = self.known_table(table);
        table.map_or_else(Vec::new, |table| table.shards())
    }

    /// Returns the segments of a shard that may be merged, ordered by write. A snapshot must see
    /// all of their rows, so that they are not aborted.
    pub(crate) fn mergeable(
        &self,
        table: TableId,
        shard: u32,
        committed: &Snapshot,
    ) -> Vec<Arc<Segment>> {
        let table = self.known_table(table);
        table.map_or_else(Segments::new, |table| table.mergeable(shard, committed))
    }

    /// Replaces segments of a shard by others with the same rows, whose files are complete and
    /// synced. Rows that have expired may be missing: `expired` is their sum, with the time, in
    /// microseconds since 1970, at which they had expired. These segments are
    /// [settleable](Self::settleable). The change is durable when this function returns. The files
    /// of the old segments are deleted when nobody reads them. May block.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, `CANCELLED` if some of the segments are not
    /// there any more, and the errors of the file system. After an error, queries read the old
    /// segments.
    pub(crate) fn replace(
        &self,
        table: TableId,
        old: Vec<Arc<Segment>>,
        new: Vec<Segment>,
        expired: Option<(SettledRows, i64)>,
    ) -> Result<()> {
        let table = self.table_to_write(table)?;
        let new = new.into_iter().map(Arc::new).collect();
        let replacement = Replacement {
            old,
            new,
            expired: expired.map(|(rows, _)| rows),
        };
        let expired_us = expired.map(|(_, time_us)| time_us);
        // Later queries all see the writes of the rows that are deleted.
        let horizon = expired.map(|_| self.0.horizon.lock().clone());
        let settling = Arc::clone(&table);
        let _arrangement = self.0.arrangement.read();
        self.0.store.change_with_ballast(
            move || {
                let mut delta = table.decide_replacement(&replacement)?;
                delta.expired_us = expired_us;
                delta.horizon = horizon;
                Ok((replacement, delta))
            },
            move |replacement, outcome| settling.settle_replacement(replacement, outcome),
        )
    }
}
