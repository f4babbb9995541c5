//! Makes the files of a worker's log, byte by byte, as `worker/src/log` describes them.

use volary_flight_proto::ids::StoreId;

/// Position of the first frame of a file.
const FIRST_FRAME: usize = 4096;

/// Number of bytes of a frame before its payload.
const HEAD_BYTES: usize = 40;

/// Frames begin at multiples of this number of bytes.
const ALIGNMENT: usize = 8;

/// Returns the name of a log file.
pub fn name(file: u64) -> String {
    format!("{file:016x}.log")
}

/// Returns the block that a file begins with. `first` is the number of its first frame.
pub fn header(store: StoreId, file: u64, first: u64) -> Vec<u8> {
    let mut content = store.0.as_bytes().to_vec();
    content.extend(file.to_le_bytes());
    content.extend(first.to_le_bytes());
    let mut block = b"VOLARYLG".to_vec();
    block.extend(1_u32.to_le_bytes());
    block.extend(crc32fast::hash(&content).to_le_bytes());
    block.extend(content);
    block.resize(FIRST_FRAME, 0);
    block
}

/// Returns a frame whose checksum is correct.
pub fn frame(file: u64, number: u64, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    // Everything before the frame was durable when it was written.
    for number in [file, number, number - 1, u64::from(kind)] {
        content.extend(number.to_le_bytes());
    }
    content.extend(payload);
    let length = u32::try_from(payload.len()).expect("inputs are short");
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend(crc32fast::hash(&content).to_le_bytes());
    frame.extend(content);
    frame.resize(frame.len().next_multiple_of(ALIGNMENT), 0);
    frame
}

/// Returns the kinds and the payloads of the frames in a file that a worker has written.
pub(crate) fn frames_of(file: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut rest = file.get(FIRST_FRAME..).unwrap_or_default();
    while let Some(length) = rest.first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            break;
        }
        frames.push((rest[32], rest[HEAD_BYTES..HEAD_BYTES + length].to_vec()));
        rest = &rest[(HEAD_BYTES + length).next_multiple_of(ALIGNMENT)..];
    }
    frames
}
