//! A log of frames in numbered files. Frames that wait while the log syncs are written together,
//! with one sync.
//!
//! ```text
//! log/<number>.log   frames; recycled under a higher number when none of them is needed
//! ```
//!
//! A file has its whole length from the start, so a sync of new frames writes no metadata of the
//! file system. After a failed sync the log goes on in another file: what the failed file shows may
//! never reach the disk.

/// Describes the files of the log.
mod file;
/// Encodes and decodes frames.
mod frame;
/// Reads what a start finds.
mod recovery;
#[cfg(test)]
mod tests;
/// Writes frames on a thread of its own.
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use volary_flight_proto::ids::StoreId;
use volary_flight_proto::{Error, Result};
use volary_node::disk::SharedDisk;
use volary_node::durable;

pub(crate) use recovery::Recovered;
use writer::{Request, Writer};

/// Name of the directory in the data directory.
const DIRECTORY: &str = "log";

/// Number of frames that may wait for the writer. More of them make their senders wait.
const MOST_WAITING: usize = 1024;

/// The size of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSize {
    /// Size of a file, in bytes. No frame is larger.
    pub(crate) file_bytes: u64,
    /// Maximum size of all files together, in bytes. One of them may be in preparation.
    pub(crate) bytes: u64,
}

/// The place of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the file.
    pub(crate) file: u64,
    /// Number of the frame.
    pub(crate) number: u64,
}

/// What became of a frame.
#[derive(Debug)]
pub(crate) enum Appended {
    /// The frame is durable.
    Durable(Position),
    /// The log has no room for the frame. Nothing was written.
    Full,
    /// The frame may or may not become durable.
    Failed(Error),
}

/// A frame to write.
#[derive(Debug)]
pub(crate) struct NewFrame {
    /// The kind of the payload.
    pub(crate) kind: u32,
    /// The payload, in parts that are written one after the other.
    pub(crate) payload: Vec<Bytes>,
    /// A frame without which this one cannot be understood. It is written before this one unless
    /// the file already has a frame with its key.
    pub(crate) context: Option<ContextFrame>,
}

/// A frame that later frames of its file need.
#[derive(Debug, Clone)]
pub(crate) struct ContextFrame {
    /// Tells context frames apart.
    pub(crate) key: u64,
    /// The kind of the payload.
    pub(crate) kind: u32,
    /// The payload.
    pub(crate) payload: Bytes,
}

/// A log. Dropping it ends its thread when everything that waits is written, and waits for that.
pub(crate) struct Log {
    /// The channel on which the thread is asked. It is `None` while the log is dropped.
    requests: Option<SyncSender<Request>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the thread needs, until it is started with the first frame.
    unstarted: Mutex<Option<(Writer, Receiver<Request>)>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log of a data directory on this disk, and creates it if it does not exist. Also
    /// returns all frames that it has. `store` is the store that the log belongs to. `first_file`
    /// is the number of the first file that the store needs: the log goes on with this number at
    /// least, even if no file is there. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS`, with the file and the position, if a frame that was durable is damaged.
    /// Returns `INVALID_ARGUMENT` if a newer release wrote a file, and the errors of the file
    /// system.
    pub(crate) fn open(
        data_dir: &Path,
        disk: SharedDisk,
        store: StoreId,
        size: LogSize,
        first_file: u64,
    ) -> Result<(Self, Vec<Recovered>)> {
        let directory = data_dir.join(DIRECTORY);
        durable::create_directory(disk.as_ref(), &directory)?;
        let content = recovery::read(&directory, store, first_file)?;
        if content.torn_bytes > 0 {
            tracing::info!(
                bytes = content.torn_bytes,
                next = content.next,
                "the log ends with frames that were being written when the worker ended; they were not acknowledged, and are cut off"
            );
        }
        let (requests, receiver) = mpsc::sync_channel(MOST_WAITING);
        let writer = Writer::new(directory, disk, store, size, &content, first_file)?;
        let log = Self {
            requests: Some(requests),
            thread: Mutex::default(),
            unstarted: Mutex::new(Some((writer, receiver))),
        };
        Ok((log, content.frames))
    }

    /// Starts the thread, unless it runs already. Many workers of a large cluster never need it.
    fn start(&self) -> Result<()> {
        let Some((writer, receiver)) = self.unstarted.lock().take() else {
            return Ok(());
        };
        let thread = std::thread::Builder::new()
            .name("volary-log".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|source| Error::io("cannot start the thread of the log", source))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Returns the path of a file of the log, relative to the data directory.
    pub(crate) fn relative_path(file: u64) -> String {
        file::path_of(Path::new(DIRECTORY), file)
            .display()
            .to_string()
    }

    /// Appends a frame. `settle` learns what became of it, on the log's thread and in the order of
    /// the frames. May block.
    pub(crate) fn append(&self, frame: NewFrame, settle: impl FnOnce(Appended) + Send + 'static) {
        let settle = Box::new(settle);
        if let Err(error) = self.start() {
            return settle(Appended::Failed(error));
        }
        let Some(requests) = &self.requests else {
            return;
        };
        if let Err(unsent) = requests.send(Request::Append(frame, settle))
            && let Request::Append(_, settle) = unsent.0
        {
            settle(Appended::Failed(Error::internal(
                "the thread of the log has ended",
            )));
        }
    }

    /// Makes the next frame begin another file. `closed` learns the number of the last file that is
    /// not written any more, on the log's thread and after all frames of that file.
    pub(crate) fn close_file(&self, closed: impl FnOnce(u64) + Send + 'static) {
        // A log whose thread does not run has no file to close. If the thread is busy, the file
        // fills up soon.
        if self.unstarted.lock().is_none() {
            self.ask(Request::CloseFile(Box::new(closed)));
        }
    }

    fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.try_send(request);
        }
    }

    /// Lets the files before this one be recycled: none of their frames is needed any more.
    pub(crate) fn release_before(&self, file: u64) {
        // If the thread is busy, it learns of this file or a later one the next time.
        self.ask(Request::ReleaseBefore(file));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.get_mut().take()
            // The last user of the storage may be what the thread settles.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
