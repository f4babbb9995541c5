//! The bytes of a frame, with little-endian numbers:
//!
//! ```text
//! length   u32   of the payload, in bytes
//! crc      u32   CRC-32 (as in zlib) of everything after this field, up to the end of the payload
//! file     u64   number of the file
//! number   u64   number of the frame
//! synced   u64   number of the frame up to which everything was durable when this one was written
//! kind     u32
//! zero     u32
//! payload        padded with zeros to a multiple of 8 bytes
//! ```

use std::ops::Range;

/// Number of bytes before the payload.
pub(super) const HEADER_BYTES: usize = 40;

/// Frames begin at multiples of this number of bytes.
pub(super) const ALIGNMENT: usize = 8;

/// The description of a frame, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Number of the file. A recycled file still has frames that it had under earlier numbers.
    pub(super) file: u64,
    /// Number of the frame. Frames are numbered one after another, across files.
    pub(super) number: u64,
    /// Number of the frame up to which everything was durable when this one was written.
    pub(super) synced: u64,
    /// The kind of the payload.
    pub(super) kind: u32,
}

/// Returns the number of bytes that a frame with this payload takes.
pub(super) fn frame_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// Appends a frame to `out`. The payload is the parts one after the other; they have less than 4
/// GiB.
pub(super) fn encode(header: FrameHeader, payload: &[&[u8]], out: &mut Vec<u8>) {
    let start = out.len();
    let length: usize = payload.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for number in [header.file, header.number, header.synced] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&header.kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    payload.iter().for_each(|part| out.extend_from_slice(part));
    let crc = crc32fast::hash(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + frame_bytes(length), 0);
}

/// Reads the frame that begins at `start`. Returns its header and the range of its payload, or
/// `None` if there is no whole frame with a valid checksum.
pub(super) fn decode(bytes: &[u8], start: usize) -> Option<(FrameHeader, Range<usize>)> {
    let frame = bytes.get(start..)?;
    let length = usize::try_from(number_at(frame, 0, 4)?).ok()?;
    let end = HEADER_BYTES.checked_add(length)?;
    let crc = number_at(frame, 4, 4)?;
    // This is tested first, because it excludes almost everything that is no frame.
    if number_at(frame, 36, 4)? != 0 {
        return None;
    }
    if u64::from(crc32fast::hash(frame.get(8..end)?)) != crc {
        return None;
    }
    let header = FrameHeader {
        file: number_at(frame, 8, 8)?,
        number: number_at(frame, 16, 8)?,
        synced: number_at(frame, 24, 8)?,
        kind: u32::try_from(number_at(frame, 32, 4)?).ok()?,
    };
    Some((header, start + HEADER_BYTES..start + end))
}

fn number_at(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..length].copy_from_slice(bytes.get(at..at + length)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FrameHeader = FrameHeader {
        file: 3,
        number: 700,
        synced: 698,
        kind: 2,
    };

    #[test]
    fn a_frame_has_its_bytes() {
        let mut bytes = vec![9; 8];
        encode(HEADER, &[b"ke", b"a"], &mut bytes);
        let expected = [
            "0909090909090909",
            "030000008f84cea1",
            "0300000000000000",
            "bc02000000000000",
            "ba02000000000000",
            "0200000000000000",
            "6b65610000000000",
        ];
        let encoded: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(encoded, expected.concat());
        assert_eq!(bytes.len(), 8 + frame_bytes(3));
        let (header, payload) = decode(&bytes, 8).unwrap();
        assert_eq!((header, &bytes[payload]), (HEADER, &b"kea"[..]));
    }

    #[test]
    fn any_bit_that_flips_and_any_byte_that_is_missing_is_found() {
        let mut bytes = Vec::new();
        encode(HEADER, &[b"a payload"], &mut bytes);
        let content = HEADER_BYTES + 9;
        for bit in 0..content * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped, 0).is_none(), "bit {bit}");
        }
        for length in 0..content {
            assert!(decode(&bytes[..length], 0).is_none(), "{length} bytes");
        }
        assert!(decode(&bytes, 8).is_none());
        assert!(decode(&[0; 128], 0).is_none());
    }
}
