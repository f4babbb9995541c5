use std::borrow::Cow;

use prost::Message;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write_set::WriteSet;

use super::checksums::SegmentChecksums;
use super::log_use::LoggedWrites;

/// A segment, as the store describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentRecord {
    /// Path of the segment's file, relative to the directory of its table.
    pub(super) file: String,
    pub(super) shard: u32,
    pub(super) write: WriteId,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Checksums of the file; `None` if the release that wrote it took none.
    pub(super) checksums: Option<SegmentChecksums>,
    /// The writes that have rows in the file, ascending, with the number of their rows. Empty if
    /// all rows are of `write`.
    pub(super) writes: Vec<(WriteId, u64)>,
    /// The writes whose rows are in the file, but do not count any more.
    pub(super) hidden: WriteSet,
    /// The rows of writes that are not listed any more.
    pub(super) settled: Option<SettledRows>,
}

/// Rows of writes that every query sees, so that only their sum is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettledRows {
    /// The smallest of their writes.
    pub(super) first: WriteId,
    /// The largest of their writes.
    pub(super) last: WriteId,
    /// Number of rows.
    pub(crate) rows: u64,
    /// The tally of the rows.
    pub(crate) tally: Tally,
}

impl SettledRows {
    /// Returns rows of one write.
    pub(crate) fn of_write(write: WriteId, rows: u64) -> Self {
        Self {
            first: write,
            last: write,
            rows,
            tally: [(write, rows)].into_iter().collect(),
        }
    }

    /// Adds up rows. Returns `None` if there are none.
    pub(crate) fn sum(rows: impl IntoIterator<Item = Self>) -> Option<Self> {
        rows.into_iter().reduce(|mut sum, rows| {
            sum.first = sum.first.min(rows.first);
            sum.last = sum.last.max(rows.last);
            sum.rows += rows.rows;
            sum.tally.add_all(rows.tally);
            sum
        })
    }

    pub(super) fn encode(self) -> Vec<u8> {
        StoredSettledRows::from(self).encode_to_vec()
    }

    /// Decodes what [`Self::encode`] encoded. Returns `None` if it cannot be decoded.
    pub(super) fn decode(stored: &[u8]) -> Option<Self> {
        StoredSettledRows::decode(stored).ok().map(Self::from)
    }
}

impl From<StoredSettledRows> for SettledRows {
    fn from(stored: StoredSettledRows) -> Self {
        Self {
            first: WriteId(stored.first),
            last: WriteId(stored.last),
            rows: stored.rows,
            tally: Tally(stored.tally),
        }
    }
}

impl From<SettledRows> for StoredSettledRows {
    fn from(rows: SettledRows) -> Self {
        Self {
            first: rows.first.0,
            last: rows.last.0,
            rows: rows.rows,
            tally: rows.tally.0,
        }
    }
}

/// The stored form of a record. The key of the record contains the file. A field that a later
/// release adds has its default value in the records of this one.
#[derive(Clone, PartialEq, Message)]
struct StoredSegment {
    #[prost(uint32, tag = "1")]
    shard: u32,
    #[prost(uint64, tag = "2")]
    write: u64,
    #[prost(uint64, tag = "3")]
    rows: u64,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    /// The BLAKE3 hash of the file. It is empty if there are no checksums.
    #[prost(bytes = "vec", tag = "5")]
    blake3: Vec<u8>,
    #[prost(uint64, tag = "6")]
    tail_bytes: u64,
    #[prost(uint32, tag = "7")]
    tail_crc32: u32,
    /// The first of several writes, and the differences between each write and the one before it.
    #[prost(uint64, repeated, tag = "8")]
    write_steps: Vec<u64>,
    /// Number of rows of each of these writes.
    #[prost(uint64, repeated, tag = "9")]
    write_rows: Vec<u64>,
    /// The first and the last write of each range of hidden writes.
    #[prost(uint64, repeated, tag = "10")]
    hidden_bounds: Vec<u64>,
    #[prost(message, optional, tag = "11")]
    settled: Option<StoredSettledRows>,
}

/// The stored form of settled rows.
#[derive(Clone, PartialEq, Message)]
struct StoredSettledRows {
    #[prost(uint64, tag = "1")]
    first: u64,
    #[prost(uint64, tag = "2")]
    last: u64,
    #[prost(uint64, tag = "3")]
    rows: u64,
    #[prost(fixed32, tag = "4")]
    tally: u32,
}

impl SegmentRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let checksums = self.checksums.as_ref();
        let stored = StoredSegment {
            shard: self.shard,
            write: self.write.0,
            rows: self.rows,
            bytes: self.bytes,
            blake3: checksums.map_or_else(Vec::new, |known| known.blake3.as_bytes().to_vec()),
            tail_bytes: checksums.map_or(0, |known| known.tail_bytes),
            tail_crc32: checksums.map_or(0, |known| known.tail_crc32),
            write_steps: self
                .writes
                .iter()
                .scan(0, |before, (write, _)| {
                    Some(write.0.wrapping_sub(std::mem::replace(before, write.0)))
                })
                .collect(),
            write_rows: self.writes.iter().map(|(_, rows)| *rows).collect(),
            hidden_bounds: self.hidden.to_bounds(),
            settled: self.settled.map(StoredSettledRows::from),
        };
        stored.encode_to_vec()
    }

    /// Decodes the record of a file. Returns what is wrong with it if it cannot be decoded.
    pub(super) fn decode(file: &str, stored: &[u8]) -> Result<Self, Cow<'static, str>> {
        let stored = StoredSegment::decode(stored).map_err(|error| error.to_string())?;
        let checksums = if stored.blake3.is_empty() {
            None
        } else {
            let blake3 = <[u8; 32]>::try_from(stored.blake3)
                .map_err(|_| "a BLAKE3 hash does not have 32 bytes")?;
            Some(SegmentChecksums {
                blake3: blake3.into(),
                tail_bytes: stored.tail_bytes,
                tail_crc32: stored.tail_crc32,
            })
        };
        if stored.write_steps.len() != stored.write_rows.len() {
            return Err("the numbers of writes and of their rows differ".into());
        }
        let writes = stored.write_steps.iter().scan(0_u64, |before, step| {
            *before = before.wrapping_add(*step);
            Some(WriteId(*before))
        });
        Ok(Self {
            writes: writes.zip(stored.write_rows.iter().copied()).collect(),
            file: file.to_owned(),
            shard: stored.shard,
            write: WriteId(stored.write),
            rows: stored.rows,
            bytes: stored.bytes,
            checksums,
            hidden: WriteSet::from_bounds(&stored.hidden_bounds),
            settled: stored.settled.map(SettledRows::from),
        })
    }
}

/// The stored form of writes by incarnation.
#[derive(Clone, PartialEq, Message)]
struct StoredWrites {
    #[prost(message, repeated, tag = "1")]
    incarnations: Vec<StoredIncarnation>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredIncarnation {
    #[prost(fixed32, tag = "1")]
    incarnation: u32,
    /// The first and the last write of each range.
    #[prost(uint64, repeated, tag = "2")]
    bounds: Vec<u64>,
}

/// Encodes writes of the log.
pub(super) fn encode_writes(writes: &LoggedWrites) -> Vec<u8> {
    let incarnations = writes
        .iter()
        .map(|(incarnation, writes)| StoredIncarnation {
            incarnation: *incarnation,
            bounds: writes.to_bounds(),
        });
    let stored = StoredWrites {
        incarnations: incarnations.collect(),
    };
    stored.encode_to_vec()
}

/// Decodes what [`encode_writes`] encoded. Returns `None` if it cannot be decoded.
pub(super) fn decode_writes(stored: &[u8]) -> Option<LoggedWrites> {
    let stored = StoredWrites::decode(stored).ok()?;
    let incarnations = stored.incarnations.iter();
    let writes = incarnations.map(|it| (it.incarnation, WriteSet::from_bounds(&it.bounds)));
    Some(writes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(checksums: Option<SegmentChecksums>) -> SegmentRecord {
        SegmentRecord {
            file: "2-7-a.parquet".to_owned(),
            shard: 2,
            write: WriteId(7),
            rows: 3,
            bytes: 4096,
            checksums,
            writes: Vec::new(),
            hidden: WriteSet::default(),
            settled: None,
        }
    }

    #[test]
    fn a_record_has_its_bytes() {
        let checksums = SegmentChecksums {
            blake3: [0xab; 32].into(),
            tail_bytes: 512,
            tail_crc32: 99,
        };
        let sealed = record(Some(checksums));
        let expected =
            "080210071803208020".to_owned() + "2a20" + &"ab".repeat(32) + "308004" + "3863";
        let encoded: String = sealed
            .encode()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(encoded, expected);
        assert_eq!(
            SegmentRecord::decode(&sealed.file, &sealed.encode()),
            Ok(sealed)
        );
        let bare = record(None);
        assert_eq!(SegmentRecord::decode(&bare.file, &bare.encode()), Ok(bare));
        let joined = SegmentRecord {
            writes: vec![(WriteId(300), 1), (WriteId(301), 7), (WriteId(700), 2)],
            hidden: WriteSet::of_range(WriteId(701), WriteId(u64::MAX)),
            settled: Some(SettledRows {
                first: WriteId(1),
                last: WriteId(299),
                rows: 1000,
                tally: Tally(77),
            }),
            ..record(None)
        };
        let encoded = joined.encode();
        assert_eq!(SegmentRecord::decode(&joined.file, &encoded), Ok(joined));
    }
}
