//! A start reads the log up to the first frame that is not whole. Such a frame is either the end of
//! the log, torn because the machine stopped while it was written, or it was damaged later. The
//! second case is told from what follows it: each frame says up to where everything was durable
//! when it was written, and a file is begun only when everything before its first frame is durable.
//!
//! A file whose sync failed is followed by a file that begins with the first frame of the failed
//! group. So whatever the older file has from that frame on does not count.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use volary_flight_proto::ids::StoreId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::file::{BadHeader, FileHeader, HEADER_BLOCK, parse_name};
use super::frame::{self, ALIGNMENT, FrameHeader, frame_bytes};

/// A frame that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Number of the frame.
    pub(crate) number: u64,
    /// Number of the frame's file.
    pub(crate) file: u64,
    /// The kind of the payload.
    pub(crate) kind: u32,
    /// The payload.
    pub(crate) payload: Bytes,
}

/// What a start finds.
#[derive(Debug, Default)]
pub(super) struct LogContent {
    /// All whole frames, in the order of their numbers.
    pub(super) frames: Vec<Recovered>,
    /// The numbers of the files, ascending.
    pub(super) files: Vec<u64>,
    /// Files that are not needed: the store says so, or they were being prepared and hold no frame.
    pub(super) unused: Vec<PathBuf>,
    /// Number of the next frame.
    pub(super) next: u64,
    /// Number of bytes after the last whole frame that belong to frames which are not whole.
    pub(super) torn_bytes: u64,
}

/// A file with a header.
struct Found {
    path: PathBuf,
    header: FileHeader,
    bytes: Bytes,
}

/// Reads the log in a directory, from file `first_file` on. May block.
///
/// # Errors
/// Returns `DATA_LOSS`, with the file and the position, if a frame that was durable is damaged, or
/// if a file is missing or belongs to another store. Returns `INVALID_ARGUMENT` for a file of a
/// newer release, and the errors of the file system.
pub(super) fn read(directory: &Path, store: StoreId, first_file: u64) -> Result<LogContent> {
    let mut content = LogContent {
        next: 1,
        ..LogContent::default()
    };
    let mut files: BTreeMap<u64, Found> = BTreeMap::new();
    for (number, path) in numbered_files(directory)? {
        if number < first_file {
            content.unused.push(path);
            continue;
        }
        match read_file(&path, number, store)? {
            Some((header, bytes)) => {
                files.insert(
                    number,
                    Found {
                        path,
                        header,
                        bytes,
                    },
                );
            }
            None => content.unused.push(path),
        }
    }
    if let Some(first) = files.values().next() {
        content.next = first.header.first;
    }
    content.files = files.keys().copied().collect();
    let mut files = files.into_values().peekable();
    while let Some(found) = files.next() {
        if found.header.first != content.next {
            return Err(damage(
                &found.path,
                HEADER_BLOCK,
                &format!(
                    "it begins with frame {}, but frame {} comes next: a file is missing",
                    found.header.first, content.next
                ),
            ));
        }
        let next_first = files.peek().map(|next| next.header.first);
        let end = read_frames(&found, next_first.unwrap_or(u64::MAX), &mut content);
        if next_first == Some(content.next) {
            continue;
        }
        if next_first.is_some() || has_durable_after(&found, end, content.next) {
            let follows = found.header.file + 1;
            let is_gap = files.peek().is_some_and(|next| next.header.file != follows);
            let what = if is_gap {
                format!("frame {} is not here, and a file is missing", content.next)
            } else {
                format!("frame {} is damaged", content.next)
            };
            return Err(damage(&found.path, end as u64, &what));
        }
        content.torn_bytes = torn_bytes(&found.bytes, end);
    }
    Ok(content)
}

fn numbered_files(directory: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    let failed = |source| Error::io(format!("cannot list {}", directory.display()), source);
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let number = entry.file_name().to_str().and_then(parse_name);
        if let Some(number) = number {
            files.insert(number, entry.path());
        }
    }
    Ok(files)
}

/// Returns the header and the content of a file. Returns `None` if the file was not begun: it has
/// no valid header, or that of the file that was recycled.
fn read_file(path: &Path, number: u64, store: StoreId) -> Result<Option<(FileHeader, Bytes)>> {
    let bytes = fs::read(path)
        .map_err(|source| Error::io(format!("cannot read {}", path.display()), source))?;
    match FileHeader::decode(&bytes) {
        Ok(header) if header.store != store => {
            Err(damage(path, 0, "it belongs to another worker's log"))
        }
        Ok(header) if header.file == number => Ok(Some((header, bytes.into()))),
        // A header is durable before the first frame of its file is written.
        Ok(_) | Err(BadHeader::Invalid) => {
            let first = frame::decode(&bytes, HEADER_BLOCK as usize);
            if first.is_some_and(|(header, _)| header.file == number) {
                return Err(damage(path, 0, "its header is damaged"));
            }
            Ok(None)
        }
        Err(BadHeader::Newer(format)) => Err(Error::invalid(format!(
            "{} has format {format}, which this release does not read; start the worker with the release that wrote the file, or a newer one",
            path.display()
        ))),
    }
}

/// Adds the whole frames of a file before frame `end`, and returns the position after the last one.
fn read_frames(found: &Found, end: u64, content: &mut LogContent) -> usize {
    let mut position = HEADER_BLOCK as usize;
    while content.next < end
        && let Some((header, payload)) = frame::decode(&found.bytes, position)
    {
        if header.file != found.header.file || header.number != content.next {
            break;
        }
        position += frame_bytes(payload.len());
        content.frames.push(Recovered {
            number: header.number,
            file: header.file,
            kind: header.kind,
            payload: found.bytes.slice(payload),
        });
        content.next += 1;
    }
    position
}

/// Returns whether a frame after `start` was written when frame `number` was durable.
fn has_durable_after(found: &Found, start: usize, number: u64) -> bool {
    later_frames(&found.bytes, start).any(|header| {
        header.file == found.header.file && header.number > number && header.synced >= number
    })
}

fn later_frames(bytes: &[u8], start: usize) -> impl Iterator<Item = FrameHeader> {
    let positions = (start..bytes.len()).step_by(ALIGNMENT);
    positions.filter_map(|position| Some(frame::decode(bytes, position)?.0))
}

/// Returns how far the bytes after `start` differ from zero.
fn torn_bytes(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    let last = rest.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |last| last as u64 + 1)
}

fn damage(path: &Path, position: u64, what: &str) -> Error {
    Error::new(
        ErrorCode::DataLoss,
        format!(
            "the log file {}, at byte {position}: {what}; restore the worker's data directory from its newest backup (docs/repair.md)",
            path.display()
        ),
    )
}
