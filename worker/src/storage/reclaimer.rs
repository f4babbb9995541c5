//! A segment ends on the thread that reads it last, often one that serves queries. Such threads
//! must not wait for the disk.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};

use volary_flight_proto::Error;
use volary_node::disk::SharedDisk;
use volary_node::durable;

/// Deletes files and directories on a thread of its own. The thread starts with the first of them,
/// and ends when all clones are gone.
#[derive(Debug, Clone)]
pub(super) struct Reclaimer {
    disk: SharedDisk,
    sender: Arc<OnceLock<Sender<Garbage>>>,
}

enum Garbage {
    File(PathBuf),
    Directory(PathBuf),
    /// Asks for an answer when everything before it is deleted.
    #[cfg(test)]
    Marker(Sender<()>),
}

impl Reclaimer {
    /// Creates a reclaimer for this disk.
    pub(super) fn new(disk: SharedDisk) -> Self {
        Self {
            disk,
            sender: Arc::default(),
        }
    }

    pub(super) fn delete_file(&self, path: &Path) {
        self.send(Garbage::File(path.to_owned()));
    }

    pub(super) fn delete_directory(&self, path: &Path) {
        self.send(Garbage::Directory(path.to_owned()));
    }

    /// Waits until everything is deleted that was sent before.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        let (sender, receiver) = mpsc::channel();
        self.send(Garbage::Marker(sender));
        receiver.recv().unwrap();
    }

    fn send(&self, garbage: Garbage) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = mpsc::channel();
            let disk = Arc::clone(&self.disk);
            let started = std::thread::Builder::new()
                .name("volary-reclaim".to_owned())
                .spawn(move || delete_all(&disk, &receiver));
            if let Err(error) = started {
                tracing::warn!(%error, "the thread that deletes files cannot be started; the worker deletes them after its next start");
            }
            sender
        });
        // If the thread is gone, the next start of the worker finds the files.
        let _ = sender.send(garbage);
    }
}

fn delete_all(disk: &SharedDisk, garbage: &Receiver<Garbage>) {
    for garbage in garbage {
        let deleted = match &garbage {
            Garbage::File(path) => durable::remove_file(disk.as_ref(), path),
            Garbage::Directory(path) => remove_directory(path).map_err(|source| {
                Error::io(
                    format!("cannot delete directory {}", path.display()),
                    source,
                )
            }),
            #[cfg(test)]
            Garbage::Marker(sender) => {
                sender.send(()).unwrap();
                Ok(())
            }
        };
        if let Err(error) = deleted {
            tracing::warn!(%error, "rows that are no longer needed cannot be deleted; the worker tries again after its next start");
        }
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
