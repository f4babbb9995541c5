//! Parquet has a field for a checksum in the header of a page, but the Rust writer does not fill it
//! (parquet 59). The field would protect neither the header itself nor bloom filters, where one
//! flipped bit hides rows. So the checksums are stored together under one key of the file's
//! metadata, which other readers skip. They are compared when the bytes are read, before anything
//! is decoded. The checksum of the file's metadata and page indexes is in the worker's store.

use std::ops::Range;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use bytes::Bytes;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use prost::Message;

/// Key of the checksums in the file's metadata.
const KEY: &str = "volary.page_crc32";

/// Encoded checksums of the parts of a file, ordered by position.
#[derive(Clone, PartialEq, Message)]
struct Encoded {
    /// Number of bytes between each part and the end of the previous part. For the first part, it
    /// is the number of bytes before it.
    #[prost(uint64, repeated, tag = "1")]
    gaps: Vec<u64>,
    /// Length of each part, in bytes.
    #[prost(uint32, repeated, tag = "2")]
    lengths: Vec<u32>,
    /// CRC-32 (as in zlib) of each part.
    #[prost(fixed32, repeated, tag = "3")]
    crcs: Vec<u32>,
}

/// Checksums of a file's parts: pages with their headers, and bloom filters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct PageChecksums {
    /// The parts, ordered by position.
    parts: Vec<ChecksummedPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChecksummedPart {
    start: u64,
    length: u32,
    crc32: u32,
}

impl ChecksummedPart {
    fn end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.length))
    }
}

impl PageChecksums {
    /// Adds the checksum of the part at `start`, which has `length` bytes. Parts may be added in
    /// any order.
    pub(crate) fn add(&mut self, start: u64, crc32: u32, length: u32) {
        self.parts.push(ChecksummedPart {
            start,
            length,
            crc32,
        });
    }

    /// Returns the memory of the checksums, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<ChecksummedPart>()
    }

    /// Encodes the checksums as an entry of a file's metadata.
    pub(crate) fn into_key_value(mut self) -> KeyValue {
        self.parts.sort_unstable_by_key(|part| part.start);
        let mut encoded = Encoded::default();
        let mut end = 0;
        for part in &self.parts {
            encoded.gaps.push(part.start.saturating_sub(end));
            encoded.lengths.push(part.length);
            encoded.crcs.push(part.crc32);
            end = part.end();
        }
        let text = BASE64_STANDARD_NO_PAD.encode(encoded.encode_to_vec());
        KeyValue::new(KEY.to_owned(), text)
    }

    /// Reads the checksums from a file's metadata. Returns `None` if the release that wrote the
    /// file took no checksums, and an error if the checksums cannot be read.
    pub(crate) fn of(metadata: &ParquetMetaData) -> Result<Option<Self>, Damage> {
        let entries = metadata.file_metadata().key_value_metadata();
        let entry = entries.and_then(|entries| entries.iter().find(|entry| entry.key == KEY));
        let Some(text) = entry.and_then(|entry| entry.value.as_deref()) else {
            return Ok(None);
        };
        let unreadable = || Damage("the checksums of its pages cannot be read".to_owned());
        let bytes = BASE64_STANDARD_NO_PAD
            .decode(text)
            .map_err(|_| unreadable())?;
        let encoded = Encoded::decode(bytes.as_slice()).map_err(|_| unreadable())?;
        if encoded.gaps.len() != encoded.lengths.len() || encoded.gaps.len() != encoded.crcs.len() {
            return Err(unreadable());
        }
        let mut end: u64 = 0;
        let parts = encoded.gaps.iter().zip(&encoded.lengths).zip(&encoded.crcs);
        let parts = parts.map(|((gap, length), crc32)| {
            let part = ChecksummedPart {
                start: end.saturating_add(*gap),
                length: *length,
                crc32: *crc32,
            };
            end = part.end();
            part
        });
        Ok(Some(Self {
            parts: parts.collect(),
        }))
    }

    /// Compares the bytes that were read from the file at `range` with the checksums. A part that
    /// was not read completely is not compared.
    pub(crate) fn check(&self, range: &Range<u64>, bytes: &[u8]) -> Result<(), Damage> {
        let first = self.parts.partition_point(|part| part.start < range.start);
        for part in &self.parts[first..] {
            if part.end() > range.end {
                break;
            }
            let of_range = |position: u64| usize::try_from(position - range.start).ok();
            let content = of_range(part.start)
                .zip(of_range(part.end()))
                .and_then(|(start, end)| bytes.get(start..end));
            if content.map(crc32fast::hash) != Some(part.crc32) {
                return Err(Damage(format!(
                    "the checksum of the page of {} bytes at byte {} does not match",
                    part.length, part.start
                )));
            }
        }
        Ok(())
    }

    /// Compares the bytes that were read at several ranges, as [`Self::check`] does for one range.
    pub(crate) fn check_all(&self, ranges: &[Range<u64>], read: &[Bytes]) -> Result<(), Damage> {
        let mut read = ranges.iter().zip(read);
        read.try_for_each(|(range, bytes)| self.check(range, bytes))
    }
}

/// Describes what is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damage(pub(crate) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_compared_if_they_were_read_whole() {
        let file: Vec<u8> = (0..100).collect();
        let mut checksums = PageChecksums::default();
        for (start, end) in [(40, 60), (4, 10), (10, 40)] {
            let length = u32::try_from(end - start).unwrap();
            checksums.add(start as u64, crc32fast::hash(&file[start..end]), length);
        }
        checksums.parts.sort_unstable_by_key(|part| part.start);
        for position in 0..100 {
            let mut flipped = file.clone();
            flipped[position] ^= 1;
            let all = checksums.check(&(0..100), &flipped);
            assert_eq!(all.is_err(), (4..60).contains(&position), "{position}");
            // Only the part in the middle was read completely.
            let middle = checksums.check(&(8..50), &flipped[8..50]);
            assert_eq!(middle.is_err(), (10..40).contains(&position), "{position}");
        }
        checksums
            .check_all(
                &[4..10, 40..60],
                &[file[4..10].to_vec().into(), file[40..60].to_vec().into()],
            )
            .unwrap();
    }
}
