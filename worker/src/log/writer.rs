use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use bytes::Bytes;
use volary_flight_proto::ids::StoreId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk::SharedDisk;
use volary_node::{durable, kill_point, private_files};

use super::file::{FileHeader, HEADER_BLOCK, path_of};
use super::frame::{self, FrameHeader, frame_bytes};
use super::recovery::LogContent;
use super::{Appended, LogSize, NewFrame, Position};

/// Maximum number of bytes that are written with one sync, unless one frame is larger. The frames
/// that come later wait less for a smaller group.
const GROUP_BYTES: usize = 4 << 20;

/// Size of the first file, in bytes. Each file that is created is twice as large as the one before
/// it, up to the size that is wanted. So a worker with few small writes has a small log.
const FIRST_FILE_BYTES: u64 = 256 << 10;

/// Number of zeros that are written at a time when a file is prepared.
const ZEROS: usize = 1 << 20;

/// Learns what became of a frame.
pub(super) type Settle = Box<dyn FnOnce(Appended) + Send>;

/// Learns the number of the last file that is not written any more.
pub(super) type Closed = Box<dyn FnOnce(u64) + Send>;

/// What the thread is asked to do.
pub(super) enum Request {
    /// Appends a frame.
    Append(NewFrame, Settle),
    /// Lets the files before this one be recycled.
    ReleaseBefore(u64),
    /// Makes the next frame begin another file.
    CloseFile(Closed),
}

/// Writes the log.
pub(super) struct Writer {
    directory: PathBuf,
    disk: SharedDisk,
    store: StoreId,
    size: LogSize,
    /// The files with frames that may be needed, ascending, with their sizes in bytes. The last one
    /// may be `current`.
    files: VecDeque<(u64, u64)>,
    /// The last file whose frames are not needed any more, to be recycled.
    released: Option<PathBuf>,
    /// A file that another thread prepares, with its number.
    preparing: Option<(u64, JoinHandle<Result<File>>)>,
    /// Size of the next file that is created, in bytes.
    file_bytes: u64,
    /// The file that is written. `None` before the first frame, and after an error.
    current: Option<CurrentFile>,
    next_file: u64,
    /// Number of the next frame.
    next: u64,
}

struct CurrentFile {
    number: u64,
    file: File,
    path: PathBuf,
    position: u64,
    /// Size of the file, in bytes.
    bytes: u64,
    /// The keys of the context frames in the file.
    contexts: BTreeSet<u64>,
}

/// The encoded frames of a group.
struct Group {
    bytes: Vec<u8>,
    settles: Vec<(Position, Settle)>,
    contexts: BTreeSet<u64>,
}

impl Writer {
    /// Creates the writer that goes on where `content` ends. It always goes on in another file, so
    /// that no frame of a torn end follows its frames. The file has at least the number
    /// `first_file`.
    pub(super) fn new(
        directory: PathBuf,
        disk: SharedDisk,
        store: StoreId,
        size: LogSize,
        content: &LogContent,
        first_file: u64,
    ) -> Result<Self> {
        for path in &content.unused {
            durable::remove_file(disk.as_ref(), path)?;
        }
        let last_file = content.files.last().copied().unwrap_or_default();
        let sized = content.files.iter().map(|number| {
            let path = path_of(&directory, *number);
            (
                *number,
                path.metadata().map_or(0, |metadata| metadata.len()),
            )
        });
        Ok(Self {
            files: sized.collect(),
            directory,
            disk,
            store,
            size,
            released: None,
            preparing: None,
            file_bytes: FIRST_FILE_BYTES.min(size.file_bytes),
            current: None,
            next_file: first_file.max(last_file + 1),
            next: content.next,
        })
    }

    /// Does what is asked until nobody can ask any more.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        let mut waiting: Option<(NewFrame, Settle)> = None;
        while let Some(first) = waiting.take().or_else(|| self.next_frame(requests)) {
            let mut closing = None;
            let mut group = vec![first];
            let mut bytes = frame_size(&group[0].0);
            while bytes < GROUP_BYTES
                && let Ok(request) = requests.try_recv()
            {
                match request {
                    Request::ReleaseBefore(file) => self.release_before(file),
                    Request::CloseFile(closed) => {
                        // The frames that came before are written to the file first.
                        closing = Some(closed);
                        break;
                    }
                    Request::Append(frame, settle) => {
                        let size = frame_size(&frame);
                        if bytes + size > GROUP_BYTES {
                            waiting = Some((frame, settle));
                            break;
                        }
                        bytes += size;
                        group.push((frame, settle));
                    }
                }
            }
            self.append(group, bytes);
            if let Some(closed) = closing {
                self.close_file(closed);
            }
        }
        if let Some((_, preparing)) = self.preparing.take() {
            let _ = preparing.join();
        }
    }

    fn close_file(&mut self, closed: Closed) {
        self.current = None;
        closed(self.next_file - 1);
    }

    fn next_frame(&mut self, requests: &Receiver<Request>) -> Option<(NewFrame, Settle)> {
        loop {
            match requests.recv().ok()? {
                Request::Append(frame, settle) => return Some((frame, settle)),
                Request::ReleaseBefore(file) => self.release_before(file),
                Request::CloseFile(closed) => self.close_file(closed),
            }
        }
    }

    /// Writes the frames, and settles them. `bytes` is their size, with all context frames.
    fn append(&mut self, frames: Vec<(NewFrame, Settle)>, bytes: usize) {
        let bytes = bytes as u64;
        let is_too_large = HEADER_BLOCK + bytes > self.size.file_bytes;
        let fits = self
            .current
            .as_ref()
            .is_some_and(|current| current.position + bytes <= current.bytes);
        if !fits && !is_too_large && self.can_begin_file() {
            self.current = None;
            if let Err(error) = self.begin_file(HEADER_BLOCK + bytes) {
                return fail(frames, error);
            }
        } else if !fits {
            return frames
                .into_iter()
                .for_each(|(_, settle)| settle(Appended::Full));
        }
        let Some(mut current) = self.current.take() else {
            return fail(frames, Error::internal("the log has no file"));
        };
        let first = self.next;
        let group = self.encode(frames, &current);
        kill_point("log.before_write");
        let written = self
            .disk
            .write_at(&current.file, &current.path, current.position, &group.bytes)
            .and_then(|()| {
                kill_point("log.before_sync");
                self.disk.sync_file(&current.file, &current.path)
            });
        match written {
            Ok(()) => {
                kill_point("log.after_sync");
                current.position += group.bytes.len() as u64;
                self.prepare_next(&current);
                current.contexts.extend(group.contexts);
                self.current = Some(current);
                for (position, settle) in group.settles {
                    settle(Appended::Durable(position));
                }
            }
            Err(source) => {
                // The next file begins with the same frame, so that these frames do not count.
                self.next = first;
                let what = format!("cannot write the log file {}", current.path.display());
                let error = std::sync::Arc::new(Error::io(what, source));
                tracing::error!(%error, "the log goes on in another file");
                for (_, settle) in group.settles {
                    settle(Appended::Failed(Error::shared(&error)));
                }
            }
        }
    }

    fn encode(&mut self, frames: Vec<(NewFrame, Settle)>, current: &CurrentFile) -> Group {
        let mut group = Group {
            bytes: Vec::new(),
            settles: Vec::new(),
            contexts: BTreeSet::new(),
        };
        let synced = self.next - 1;
        let mut push = |kind, payload: &[&[u8]], bytes: &mut Vec<u8>| {
            let header = FrameHeader {
                file: current.number,
                number: self.next,
                synced,
                kind,
            };
            self.next += 1;
            frame::encode(header, payload, bytes);
            Position {
                file: header.file,
                number: header.number,
            }
        };
        for (frame, settle) in frames {
            if let Some(context) = frame.context
                && !current.contexts.contains(&context.key)
                && group.contexts.insert(context.key)
            {
                push(context.kind, &[&context.payload], &mut group.bytes);
            }
            let payload: Vec<&[u8]> = frame.payload.iter().map(Bytes::as_ref).collect();
            let position = push(frame.kind, &payload, &mut group.bytes);
            group.settles.push((position, settle));
        }
        group
    }

    fn can_begin_file(&self) -> bool {
        self.has_room() || self.released.is_some()
    }

    /// Returns whether one more file may be created.
    fn has_room(&self) -> bool {
        let files = self.files.iter();
        let bytes: u64 = files.map(|(_, bytes)| bytes).sum();
        bytes + self.file_bytes <= self.size.bytes
    }

    /// Begins the next file, which is at least `needed` bytes large. Its header is durable before
    /// the first frame is written.
    fn begin_file(&mut self, needed: u64) -> Result<()> {
        kill_point("log.before_next_file");
        let number = self.next_file;
        let path = path_of(&self.directory, number);
        let failed = |source| {
            Error::io(
                format!("cannot begin the log file {}", path.display()),
                source,
            )
        };
        let is_large = |file: &File| file.metadata().is_ok_and(|it| it.len() >= needed);
        let file = match self.take_prepared(number).filter(is_large) {
            Some(file) => file,
            None => match self.released.take() {
                Some(released) => {
                    kill_point("log.before_reuse");
                    fs::rename(&released, &path).map_err(failed)?;
                    kill_point("log.after_reuse");
                    let mut options = fs::OpenOptions::new();
                    options.write(true).open(&path).map_err(failed)?
                }
                None => {
                    let bytes = self.take_file_bytes().max(needed);
                    prepare(&self.disk, &path, bytes)?
                }
            },
        };
        let file_bytes = file.metadata().map_err(failed)?.len();
        let header = FileHeader {
            store: self.store,
            file: number,
            first: self.next,
        };
        self.next_file += 1;
        self.disk
            .write_at(&file, &path, 0, &header.encode())
            .and_then(|()| {
                kill_point("log.before_header_sync");
                self.disk.sync_file(&file, &path)
            })
            .and_then(|()| self.disk.sync_directory(&self.directory))
            .map_err(failed)?;
        kill_point("log.after_next_file");
        self.files.push_back((number, file_bytes));
        self.current = Some(CurrentFile {
            number,
            file,
            path,
            position: HEADER_BLOCK,
            bytes: file_bytes,
            contexts: BTreeSet::new(),
        });
        Ok(())
    }

    /// Returns the file that was prepared under this number, if there is one.
    fn take_prepared(&mut self, number: u64) -> Option<File> {
        let (_, preparing) = self
            .preparing
            .take_if(|(prepared, _)| *prepared == number)?;
        preparing.join().ok()?.ok()
    }

    /// Prepares the next file on another thread, because that takes long, when the current one is
    /// written up to the middle.
    fn prepare_next(&mut self, current: &CurrentFile) {
        let is_early = current.position < current.bytes / 2;
        if is_early || !self.has_room() || self.preparing.is_some() || self.released.is_some() {
            return;
        }
        let number = self.next_file;
        let path = path_of(&self.directory, number);
        let (disk, bytes) = (self.disk.clone(), self.take_file_bytes());
        let preparing = std::thread::Builder::new()
            .name("volary-log-file".to_owned())
            .spawn(move || prepare(&disk, &path, bytes));
        // Without the thread, the file is prepared when it is needed.
        self.preparing = preparing.ok().map(|preparing| (number, preparing));
    }

    /// Returns the size of the next file that is created.
    fn take_file_bytes(&mut self) -> u64 {
        let bytes = self.file_bytes;
        self.file_bytes = (2 * bytes).min(self.size.file_bytes);
        bytes
    }

    fn release_before(&mut self, file: u64) {
        while let Some((first, _)) = self.files.front().copied()
            && first < file
            && self.current.as_ref().is_none_or(|it| it.number != first)
        {
            self.files.pop_front();
            let path = path_of(&self.directory, first);
            kill_point("log.before_release");
            // The last file is kept to be recycled, if it has the full size. The others give their
            // space back. They are deleted in their order: a start may still find some of them, and
            // takes a gap between files for damage.
            if let Some(earlier) = self.released.take() {
                self.remove(&earlier);
            }
            let is_full_size = path
                .metadata()
                .is_ok_and(|metadata| metadata.len() >= self.size.file_bytes);
            if is_full_size {
                self.released = Some(path);
            } else {
                self.remove(&path);
            }
        }
    }

    fn remove(&self, path: &Path) {
        if let Err(error) = durable::remove_file(self.disk.as_ref(), path) {
            tracing::warn!(%error, "a log file that is not needed any more cannot be deleted");
        }
    }
}

/// Creates a file of zeros. May block.
fn prepare(disk: &SharedDisk, path: &Path, bytes: u64) -> Result<File> {
    let failed = |source| {
        Error::io(
            format!("cannot create the log file {}", path.display()),
            source,
        )
    };
    let file = private_files::file_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(failed)?;
    let zeros = vec![0; ZEROS];
    let mut position = 0;
    while position < bytes {
        let length = usize::try_from(bytes - position).map_or(ZEROS, |rest| rest.min(ZEROS));
        let written = disk.write_at(&file, path, position, &zeros[..length]);
        if let Err(source) = written {
            // The space is given back, for example on a full disk.
            drop(durable::remove_file(disk.as_ref(), path));
            return Err(failed(source));
        }
        position += length as u64;
    }
    kill_point("log.before_zeros_sync");
    disk.sync_file(&file, path).map_err(failed)?;
    Ok(file)
}

fn frame_size(frame: &NewFrame) -> usize {
    let payload = frame.payload.iter().map(Bytes::len).sum();
    let context = frame.context.as_ref();
    frame_bytes(payload) + context.map_or(0, |context| frame_bytes(context.payload.len()))
}

fn fail(frames: Vec<(NewFrame, Settle)>, error: Error) {
    // A full disk is no reason to fail: the rows can go elsewhere.
    let is_full = error.code() == ErrorCode::ResourceExhausted;
    let error = std::sync::Arc::new(error);
    for (_, settle) in frames {
        settle(if is_full {
            Appended::Full
        } else {
            Appended::Failed(Error::shared(&error))
        });
    }
}
