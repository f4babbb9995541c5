use std::sync::Arc;

use volary_flight_proto::Result;
use volary_flight_proto::write_set::WriteSet;
use volary_node::durable;

use super::Table;
use crate::storage::segment::Segment;
use crate::storage::shard::{Orphan, Segments};

impl Table {
    /// Returns the shards with files that may be garbage.
    pub(in crate::storage) fn unproven(&self) -> Vec<u32> {
        let shards = self.shards.read();
        let unproven = shards.iter().filter(|(_, shard)| !shard.orphans.is_empty());
        unproven.map(|(shard, _)| *shard).collect()
    }

    /// Returns the segments and takes the orphans that belong to these writes.
    pub(in crate::storage) fn take_aborted(&self, writes: &WriteSet) -> (Segments, Vec<Orphan>) {
        let mut segments = Segments::new();
        let mut orphans = Vec::new();
        for known in self.shards.write().values_mut() {
            let is_aborted = |segment: &&Arc<Segment>| writes.contains(segment.write());
            segments.extend(known.segments.iter().filter(is_aborted).cloned());
            let taken = known
                .orphans
                .extract_if(.., |orphan| writes.contains(orphan.write));
            orphans.extend(taken.inspect(|orphan| self.totals.remove_orphan(orphan.write)));
        }
        (segments, orphans)
    }

    /// Deletes the files of these writes that the store does not name.
    pub(in crate::storage) fn delete_orphans_of(&self, writes: &WriteSet) -> Result<()> {
        let mut orphans = Vec::new();
        for known in self.shards.write().values_mut() {
            let found = known
                .orphans
                .extract_if(.., |orphan| writes.contains(orphan.write));
            orphans.extend(found.inspect(|orphan| self.totals.remove_orphan(orphan.write)));
        }
        self.delete_orphans(&orphans)
    }

    /// Deletes files that have no acknowledged rows.
    pub(in crate::storage) fn delete_orphans(&self, orphans: &[Orphan]) -> Result<()> {
        let mut result = Ok(());
        for Orphan { path, .. } in orphans {
            tracing::info!(file = %path.display(), "deleting a segment that the store does not name");
            result = result.and(durable::remove_file(self.directory.disk(), path));
        }
        result
    }
}
