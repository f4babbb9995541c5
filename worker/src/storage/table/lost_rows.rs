use std::collections::BTreeMap;
use std::sync::Arc;

use volary_flight_proto::Result;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write_set::WriteSet;

use super::Table;
use super::segments::Changed;
use crate::storage::lost::LostDirectory;
use crate::storage::segment::Segment;
use crate::storage::segment_rows::SegmentRows;
use crate::storage::shard::Segments;
use crate::storage::write_column::read_writes;

/// Segments with rows that belong to another history of writes than the catalog's.
#[derive(Debug, Default)]
pub(in crate::storage) struct LostRows {
    /// The segments with such rows only.
    pub(in crate::storage) segments: Segments,
    /// The segments that have other rows, too, and what is left of them.
    pub(in crate::storage) partly: Changed,
}

impl Table {
    /// Keeps the rows of these writes in a directory that nobody reads, and returns what becomes of
    /// their segments.
    pub(in crate::storage) fn keep_lost(
        &self,
        writes: &WriteSet,
        lost: &LostDirectory,
    ) -> Result<LostRows> {
        let mut rows = LostRows::default();
        let mut files = Vec::new();
        for known in self.shards.read().values() {
            for segment in &known.segments {
                let by_write = listed_rows(segment, writes)?;
                let kept = by_write.without(writes);
                if kept.rows() == 0 {
                    rows.segments.push(Arc::clone(segment));
                    files.push(segment.path().to_owned());
                } else if kept != by_write {
                    let kept = Arc::new(segment.with_rows(kept));
                    rows.partly.push((Arc::clone(segment), kept));
                }
            }
            let found = known.orphans.iter();
            let found = found.filter(|orphan| writes.contains(orphan.write));
            files.extend(found.map(|orphan| orphan.path.clone()));
        }
        lost.link_files(&self.directory, &files)?;
        for (segment, _) in &rows.partly {
            lost.write_part(&self.directory, segment, writes)?;
        }
        for (shard, known) in self.shards.read().iter() {
            let logged = known.logged.of(|write| writes.contains(write))?;
            let logged: Vec<_> = logged.into_iter().map(|(rows, _)| rows).collect();
            lost.write_rows(&self.directory, *shard, &logged)?;
        }
        Ok(rows)
    }

    /// Forgets rows that the store does not have any more, and returns their number.
    pub(in crate::storage) fn forget_lost(&self, rows: LostRows) -> u64 {
        let mut count: u64 = rows.segments.iter().map(|segment| segment.rows()).sum();
        let partly = rows.partly.iter();
        count += partly
            .map(|(whole, kept)| whole.rows() - kept.rows())
            .sum::<u64>();
        self.forget(&rows.segments);
        self.change(rows.partly);
        count
    }
}

/// Returns the rows of a segment by write, so that those of these writes are listed.
fn listed_rows(segment: &Segment, writes: &WriteSet) -> Result<SegmentRows> {
    let known = segment.by_write();
    let Some(settled) = known.settled() else {
        return Ok(known.clone());
    };
    let settled = WriteSet::of_range(settled.first, settled.last);
    if settled.intersection(writes).is_empty() {
        return Ok(known.clone());
    }
    let mut listed: BTreeMap<WriteId, u64> = BTreeMap::new();
    read_writes(segment, |writes| {
        for write in writes.iter().copied().map(WriteId) {
            if !known.hidden().contains(write) {
                *listed.entry(write).or_default() += 1;
            }
        }
    })?;
    let listed = listed.into_iter().collect();
    Ok(SegmentRows::of_several(
        segment.write(),
        listed,
        None,
        known.hidden().clone(),
    ))
}
