use std::cmp::Ordering;
use std::collections::BTreeMap;

use datafusion::common::ScalarValue;
use rpds::VectorSync;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::tally::Tally;

use super::encoding;
use super::records::{ColumnRecord, DeltaRecord, ShardDeltaRecord, ShardRecord, StatisticsRecord};

/// The statistics of a table as of the last committed write.
#[derive(Debug, Clone, PartialEq)]
pub struct TableStatistics {
    /// Number of rows.
    pub rows: u64,
    /// Size of the segments in bytes. For a reference table, the size of one copy.
    pub bytes: u64,
    /// The statistics of each shard. A reference table counts as one shard.
    pub shards: VectorSync<ShardStatistics>,
    /// The statistics of each column, in the order of the table.
    pub columns: Vec<ColumnStatistics>,
}

/// The statistics of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardStatistics {
    /// Number of rows.
    pub rows: u64,
    /// Size of the segments in bytes.
    pub bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// The tally of the rows. `None` if some of them were written by a release that kept no
    /// tallies.
    pub tally: Option<Tally>,
}

impl Default for ShardStatistics {
    fn default() -> Self {
        Self {
            rows: 0,
            bytes: 0,
            segments: 0,
            tally: Some(Tally::default()),
        }
    }
}

/// What a write adds to a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TableDelta {
    /// Number of rows in all shards.
    pub(super) rows: u64,
    /// What the write adds to each shard. It is a map, because a write may touch only a few of
    /// thousands of shards.
    pub(super) shards: BTreeMap<u32, ShardDelta>,
    /// The statistics of each column of the new rows, in the order of the table.
    pub(super) columns: Vec<ColumnStatistics>,
}

/// What a write adds to a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ShardDelta {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) segments: u64,
}

impl ShardDelta {
    pub(super) fn add(&mut self, other: Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.segments = self.segments.saturating_add(other.segments);
    }
}

impl TableDelta {
    /// Returns the delta of a write without rows to a table with `columns` columns.
    pub(super) fn empty(columns: usize) -> Self {
        Self {
            rows: 0,
            shards: BTreeMap::new(),
            columns: vec![ColumnStatistics::empty(); columns],
        }
    }

    /// Returns the record of this delta for the catalog.
    pub(super) fn to_record(&self, table: TableId, number: u64, write: WriteId) -> DeltaRecord {
        let shards = self.shards.iter();
        DeltaRecord {
            table,
            number,
            write,
            shards: shards
                .map(|(shard, added)| ShardDeltaRecord {
                    shard: *shard,
                    rows: added.rows,
                    bytes: added.bytes,
                    segments: added.segments,
                })
                .collect(),
            columns: self
                .columns
                .iter()
                .map(ColumnStatistics::to_record)
                .collect(),
        }
    }

    /// Reads a delta from its record.
    pub(super) fn from_record(record: &DeltaRecord) -> Self {
        let shards = record.shards.iter();
        Self {
            rows: shards
                .clone()
                .map(|shard| shard.rows)
                .fold(0, u64::saturating_add),
            shards: shards
                .map(|shard| {
                    let added = ShardDelta {
                        rows: shard.rows,
                        bytes: shard.bytes,
                        segments: shard.segments,
                    };
                    (shard.shard, added)
                })
                .collect(),
            columns: record
                .columns
                .iter()
                .map(ColumnStatistics::from_record)
                .collect(),
        }
    }

    /// Adds the delta of the same write on another worker.
    pub(super) fn add(&mut self, other: &Self) {
        add_columns(&mut self.columns, self.rows, &other.columns, other.rows);
        for (shard, added) in &other.shards {
            self.shards.entry(*shard).or_default().add(*added);
        }
        self.rows = self.rows.saturating_add(other.rows);
    }
}

/// The statistics of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnStatistics {
    /// Number of NULLs, if known.
    pub nulls: Option<u64>,
    /// A lower bound of all values, if known.
    pub min: Option<ScalarValue>,
    /// An upper bound of all values, if known.
    pub max: Option<ScalarValue>,
}

impl TableStatistics {
    /// Returns the statistics of a table without rows.
    pub fn empty(shards: u32, columns: usize) -> Self {
        Self {
            rows: 0,
            bytes: 0,
            shards: (0..shards).map(|_| ShardStatistics::default()).collect(),
            columns: vec![ColumnStatistics::empty(); columns],
        }
    }

    /// Returns these statistics plus the rows of a write.
    #[must_use]
    pub(super) fn with_write(&self, write: WriteId, added: &TableDelta) -> Self {
        let mut sum = self.clone();
        add_columns(&mut sum.columns, sum.rows, &added.columns, added.rows);
        for (number, added) in &added.shards {
            let index = usize::try_from(*number).unwrap_or(usize::MAX);
            if let Some(shard) = sum.shards.get_mut(index) {
                shard.rows = shard.rows.saturating_add(added.rows);
                shard.bytes = shard.bytes.saturating_add(added.bytes);
                shard.segments = shard.segments.saturating_add(added.segments);
                if let Some(tally) = &mut shard.tally {
                    tally.add(write, added.rows);
                }
                sum.rows = sum.rows.saturating_add(added.rows);
                sum.bytes = sum.bytes.saturating_add(added.bytes);
            }
        }
        sum
    }

    /// Sets the totals to the sums over the shards.
    fn update_totals(&mut self) {
        let sum = |of: fn(&ShardStatistics) -> u64| {
            self.shards.iter().map(of).fold(0, u64::saturating_add)
        };
        (self.rows, self.bytes) = (sum(|shard| shard.rows), sum(|shard| shard.bytes));
    }

    /// Returns the record of these statistics for the catalog.
    pub(super) fn to_record(&self, table: TableId) -> StatisticsRecord {
        let shards = (0..)
            .zip(&self.shards)
            .filter(|(_, shard)| **shard != ShardStatistics::default())
            .map(|(number, shard)| ShardRecord {
                shard: number,
                rows: shard.rows,
                bytes: shard.bytes,
                segments: shard.segments,
                tally: shard.tally.map(|tally| tally.0),
            })
            .collect();
        let columns = self.columns.iter();
        StatisticsRecord {
            table,
            shards,
            columns: columns.map(ColumnStatistics::to_record).collect(),
        }
    }

    /// Reads the statistics from a record. Values that the record lacks, or that cannot be decoded,
    /// are unknown.
    pub(super) fn from_record(record: &StatisticsRecord, shards: u32) -> Self {
        let mut statistics = Self::empty(shards, 0);
        for shard_record in &record.shards {
            let index = usize::try_from(shard_record.shard).unwrap_or(usize::MAX);
            if let Some(shard) = statistics.shards.get_mut(index) {
                *shard = ShardStatistics {
                    rows: shard_record.rows,
                    bytes: shard_record.bytes,
                    segments: shard_record.segments,
                    tally: shard_record.tally.map(Tally),
                };
            }
        }
        let columns = record.columns.iter();
        statistics.columns = columns.map(ColumnStatistics::from_record).collect();
        statistics.update_totals();
        statistics
    }
}

/// Adds the statistics of `other_rows` rows to those of `rows` rows, column by column.
fn add_columns(
    columns: &mut [ColumnStatistics],
    rows: u64,
    others: &[ColumnStatistics],
    other_rows: u64,
) {
    for (column, other) in columns.iter_mut().zip(others) {
        column.add(rows, other, other_rows);
    }
}

impl ColumnStatistics {
    /// Returns the statistics of a column without rows.
    fn empty() -> Self {
        Self {
            nulls: Some(0),
            ..Self::default()
        }
    }

    fn to_record(&self) -> ColumnRecord {
        let text = |value: &Option<ScalarValue>| value.as_ref().and_then(encoding::scalar_to_hex);
        ColumnRecord {
            nulls: self.nulls,
            min: text(&self.min),
            max: text(&self.max),
        }
    }

    /// Reads the statistics from a record. Values that cannot be decoded are unknown.
    fn from_record(record: &ColumnRecord) -> Self {
        let value = |text: &Option<String>| text.as_deref().and_then(encoding::scalar_from_hex);
        Self {
            nulls: record.nulls,
            min: value(&record.min),
            max: value(&record.max),
        }
    }

    /// Adds the statistics of `other_rows` rows to those of `rows` rows.
    fn add(&mut self, rows: u64, other: &Self, other_rows: u64) {
        if other.nulls == Some(other_rows) {
            // The other rows have no values, so the bounds stay as they are.
        } else if self.nulls == Some(rows) {
            self.min.clone_from(&other.min);
            self.max.clone_from(&other.max);
        } else {
            self.min = extreme(self.min.take(), other.min.as_ref(), Ordering::Less);
            self.max = extreme(self.max.take(), other.max.as_ref(), Ordering::Greater);
        }
        self.nulls = match (self.nulls, other.nulls) {
            (Some(nulls), Some(more)) => Some(nulls.saturating_add(more)),
            _ => None,
        };
    }
}

/// Returns the smaller or the larger of two values. The result is unknown if one value is unknown
/// or if they cannot be compared.
fn extreme(
    one: Option<ScalarValue>,
    other: Option<&ScalarValue>,
    wanted: Ordering,
) -> Option<ScalarValue> {
    let (one, other) = (one?, other?);
    let found = other.partial_cmp(&one)?;
    Some(if found == wanted { other.clone() } else { one })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(nulls: u64, range: Option<(i64, i64)>) -> ColumnStatistics {
        let value = |value| ScalarValue::Int64(Some(value));
        ColumnStatistics {
            nulls: Some(nulls),
            min: range.map(|(min, _)| value(min)),
            max: range.map(|(_, max)| value(max)),
        }
    }

    #[test]
    fn ranges_grow_and_what_is_unknown_stays_unknown() {
        let mut known = column(0, None);
        known.add(0, &column(4, None), 4);
        assert_eq!(known, column(4, None));
        known.add(4, &column(1, Some((5, 9))), 10);
        assert_eq!(known, column(5, Some((5, 9))));
        known.add(14, &column(0, Some((-2, 7))), 3);
        assert_eq!(known, column(5, Some((-2, 9))));
        known.add(17, &column(2, None), 2);
        assert_eq!(known, column(7, Some((-2, 9))));
        known.add(19, &column(0, None), 1);
        assert_eq!(known, column(7, None));
        known.add(20, &column(0, Some((1, 2))), 1);
        assert_eq!(known, column(7, None));
    }
}
