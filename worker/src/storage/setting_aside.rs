use volary_flight_proto::Result;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write_set::WriteSet;

use super::Storage;
use super::lost::LostDirectory;
use super::store::{Delta, Outcome};

impl Storage {
    /// Moves the rows of these writes, and of write `from` and all later ones, to a directory that
    /// nobody reads, and returns the number of rows. `incarnation` is the incarnation of the
    /// catalog that does not have these rows. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system. Some of the rows are then still there.
    pub fn set_aside(&self, writes: &WriteSet, from: WriteId, incarnation: u32) -> Result<u64> {
        let mut writes = writes.clone();
        writes.insert_range(from, WriteId(u64::MAX));
        let lost_writes = writes.clone();
        let _arrangement = self.0.arrangement.write();
        let horizon = self.lower_horizon(&writes);
        let in_log = self.0.shared.log_use.of(&writes);
        let lost = LostDirectory::new(&self.0.data_dir, incarnation);
        let tables = self.tables();
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let deciding = tables.clone();
        self.0.store.change_with_ballast(
            move || {
                let mut delta = Delta {
                    aborted: in_log,
                    horizon: Some(horizon),
                    ..Delta::default()
                };
                let mut gone = Vec::new();
                for table in deciding {
                    let rows = table.keep_lost(&writes, &lost)?;
                    let removal = table.decide_removal(&rows.segments);
                    delta.added.extend(removal.added);
                    let kept = rows.partly.iter().map(|(_, kept)| kept.record());
                    delta.added.extend(kept.map(|record| (table.id(), record)));
                    delta.removed.extend(removal.removed);
                    gone.push((table, rows));
                }
                Ok((gone, delta))
            },
            move |gone, outcome| {
                let mut rows = 0;
                for (table, lost) in gone {
                    if outcome == Outcome::Made {
                        rows += table.forget_lost(lost);
                    }
                }
                // The caller waits for the operation, and so for this number.
                let _ = sender.send(rows);
            },
        )?;
        let mut logged_rows = 0;
        for table in tables {
            table.delete_orphans_of(&lost_writes)?;
            logged_rows += table.remove_logged(&lost_writes)?;
        }
        self.release_log();
        Ok(logged_rows + receiver.try_recv().unwrap_or_default())
    }
}
