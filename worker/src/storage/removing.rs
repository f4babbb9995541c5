use std::sync::Arc;

use volary_flight_proto::control::{Report, ShardContent, ShardName};
use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::store::{Delta, Outcome};
use super::{CountedRows, Storage};

/// Maximum number of shards that a report asks about. The others wait for the next report.
const MOST_UNPROVEN: usize = 1000;

/// Result of processing a gateway's list of garbage.
#[derive(Debug, Default)]
pub struct CollectedGarbage {
    /// The last abort of the list, if no rows of aborted writes are here now.
    pub deleted_through: Option<u64>,
    /// The reason why something could not be deleted. The deletion is tried again with the next
    /// list.
    pub failure: Option<Error>,
}

impl Storage {
    /// Deletes a table's rows, now or when the last scan of them ends, and refuses rows that come
    /// later. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system. Nobody reads or writes the table even then. Its files
    /// are deleted after the next start, when a gateway says that the table was dropped.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.0.shared.tombstones.drop_table(table);
        self.0.layouts.forget(table);
        let _arrangement = self.0.arrangement.write();
        let Some(table) = self.0.tables.write().remove(&table) else {
            return Ok(());
        };
        let settling = Arc::clone(&table);
        self.0.store.change_with_ballast(
            move || {
                let mut delta = table.decide_removal(&table.all());
                delta.dropped.push(table.id());
                Ok(((), delta))
            },
            move |(), outcome| {
                if outcome == Outcome::Made {
                    settling.forget_all();
                }
            },
        )?;
        self.release_log();
        Ok(())
    }

    /// Deletes the rows of a failed write, and refuses rows that come later. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system. Some of the rows are then still there.
    pub fn abort_write(&self, write: WriteId) -> Result<()> {
        self.remove_writes(&WriteSet::of_range(write, write))
    }

    /// Deletes what a gateway says is garbage: tables that are not live, and rows of failed writes.
    /// Also deletes files that the store does not name, if their shard has all counted rows without
    /// them. May block.
    pub fn collect(&self, question: &Report) -> CollectedGarbage {
        let live = question.live_tables.iter().copied().map(TableId).collect();
        let last = TableId(question.last_table);
        self.0.shared.tombstones.note_live_tables(live, last);
        let mut collected = CollectedGarbage::default();
        let dropped: Vec<TableId> = {
            let tables = self.0.tables.read();
            let ids = tables.keys().copied();
            ids.filter(|table| self.0.shared.tombstones.check_table(*table).is_err())
                .collect()
        };
        for table in dropped {
            tracing::info!(%table, "deleting the rows of a dropped table");
            collected.failure = self.drop_table(table).err().or(collected.failure);
        }
        match self.remove_writes(&WriteSet::from_bounds(&question.aborted_bounds)) {
            Ok(()) => collected.deleted_through = Some(question.last_abort),
            Err(error) => collected.failure = Some(error),
        }
        if let Some(snapshot) = &question.snapshot {
            for content in &question.contents {
                let proven = self.prove(content, snapshot);
                collected.failure = proven.err().or(collected.failure);
            }
        }
        collected
    }

    /// Returns shards with files that the store does not name, up to a maximum number. These files
    /// may or may not be garbage.
    pub fn unproven(&self) -> Vec<ShardName> {
        let tables = self.tables();
        let unproven = tables.iter().flat_map(|table| {
            let table_id = table.id().0;
            let shards = table.unproven().into_iter();
            shards.map(move |shard| ShardName { table_id, shard })
        });
        unproven.take(MOST_UNPROVEN).collect()
    }

    fn prove(&self, content: &ShardContent, snapshot: &Snapshot) -> Result<()> {
        let Some(ShardName { table_id, shard }) = content.shard else {
            return Ok(());
        };
        let Some(table) = self.known_table(TableId(table_id)) else {
            return Ok(());
        };
        let tally = content.tally.map(Tally);
        let counted = CountedRows {
            expected: tally.map_or(ExpectedRows::Rows(content.rows), ExpectedRows::Tally),
            counted_writes: snapshot,
        };
        table.prove(shard, counted)
    }

    fn remove_writes(&self, writes: &WriteSet) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        // The abort is noted first. From here on, what a running write adds is refused.
        self.0.shared.tombstones.abort_writes(writes);
        let removed = self.remove_aborted(writes);
        self.release_log();
        match removed {
            // The ballast was too small for the transaction that would free space, or others have
            // filled it. By now, the files of the writes are deleted.
            Err(error) if error.code() == ErrorCode::ResourceExhausted => {
                self.remove_aborted(writes)
            }
            removed => removed,
        }
    }

    fn remove_aborted(&self, writes: &WriteSet) -> Result<()> {
        let writes = writes.clone();
        let in_log = self.0.shared.log_use.of(&writes);
        // The tables are listed when the operation is decided: a write that is settled before may
        // have made another one.
        let tables = Arc::clone(&self.0.tables);
        self.0.store.change_with_ballast(
            move || {
                let tables: Vec<_> = tables.read().values().cloned().collect();
                // A restart must not bring rows back that the log still has.
                let mut delta = Delta {
                    aborted: in_log,
                    ..Delta::default()
                };
                let mut gone = Vec::new();
                for table in tables {
                    table.remove_logged(&writes)?;
                    let (segments, orphans) = table.take_aborted(&writes);
                    table.delete_orphans(&orphans)?;
                    let removal = table.decide_removal(&segments);
                    delta.added.extend(removal.added);
                    delta.removed.extend(removal.removed);
                    gone.push((table, segments));
                }
                Ok((gone, delta))
            },
            move |gone, outcome| {
                for (table, segments) in gone {
                    match outcome {
                        Outcome::Made => table.forget(&segments),
                        Outcome::NotMade(ErrorCode::ResourceExhausted) => {
                            segments.iter().for_each(|segment| segment.delete_early());
                        }
                        // They stay known until the store has forgotten them for certain.
                        Outcome::NotMade(_) | Outcome::Unknown => {}
                    }
                }
            },
        )
    }
}
