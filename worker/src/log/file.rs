//! A log file begins with a block for its header, with little-endian numbers. Frames follow.
//!
//! ```text
//! magic    8 bytes   "VOLARYLG"
//! format   u32
//! crc      u32       CRC-32 (as in zlib) of the rest of the header
//! store    16 bytes  id of the worker's store
//! file     u64       number of the file
//! first    u64       number of the first frame
//! ```

use std::path::{Path, PathBuf};

use volary_flight_proto::ids::StoreId;

/// Size of the block that holds the header. No frame shares a block with the header, so that no
/// write of a frame can tear the header.
pub(super) const HEADER_BLOCK: u64 = 4096;

const HEADER_BYTES: usize = 48;
const MAGIC: &[u8; 8] = b"VOLARYLG";
const FORMAT: u32 = 1;
const EXTENSION: &str = "log";

/// The header of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// The store that the log belongs to.
    pub(super) store: StoreId,
    /// Number of the file. Files are numbered one after another.
    pub(super) file: u64,
    /// Number of the first frame in the file.
    pub(super) first: u64,
}

/// The reason why a file has no header that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// There is no header, or its checksum does not match.
    Invalid,
    /// A newer release wrote the file, in this format.
    Newer(u32),
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(self.store.0.as_bytes());
        bytes[32..40].copy_from_slice(&self.file.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first.to_le_bytes());
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(BadHeader::Invalid)?;
        if &bytes[..8] != MAGIC {
            return Err(BadHeader::Invalid);
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let half = |at: usize| {
            let mut number = [0; 4];
            number.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(number)
        };
        if half(8) > FORMAT {
            return Err(BadHeader::Newer(half(8)));
        }
        if half(12) != crc32fast::hash(&bytes[16..]) {
            return Err(BadHeader::Invalid);
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[16..32]);
        Ok(Self {
            store: StoreId(uuid::Uuid::from_bytes(store)),
            file: number(32),
            first: number(40),
        })
    }
}

/// Returns the path of the file with this number.
pub(super) fn path_of(directory: &Path, file: u64) -> PathBuf {
    directory.join(format!("{file:016x}.{EXTENSION}"))
}

/// Returns the number of a file by its name. Returns `None` if it is not the name of a log file.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_canonical = digits.len() == 16 && digits.bytes().all(is_digit);
    let number = u64::from_str_radix(digits, 16).ok()?;
    is_canonical.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_and_any_bit_that_flips_is_found() {
        let header = FileHeader {
            store: StoreId::new(),
            file: 3,
            first: 700,
        };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A smaller format could be one that this release reads.
            let is_format = (64..96).contains(&bit);
            assert!(
                is_format || FileHeader::decode(&flipped).is_err(),
                "bit {bit}"
            );
        }
        let mut newer = bytes;
        newer[8] = 9;
        assert_eq!(FileHeader::decode(&newer), Err(BadHeader::Newer(9)));
        assert_eq!(FileHeader::decode(&bytes[..40]), Err(BadHeader::Invalid));
    }

    #[test]
    fn the_name_of_a_file_says_its_number() {
        let path = path_of(Path::new("log"), 0x1f);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            (name, parse_name(name)),
            ("000000000000001f.log", Some(0x1f))
        );
        for other in [
            "1f.log",
            "000000000000001F.log",
            "000000000000001f.tmp",
            ".log",
            "+00000000000001f.log",
        ] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
