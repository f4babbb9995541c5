use std::path::{Path, PathBuf};

/// The data directory of a node. The fuzzer ends its process without dropping anything, so the next
/// process removes the directories of processes that have ended.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates a directory for a node with this name.
    ///
    /// # Panics
    /// Panics if no directory can be created.
    pub fn new(node: &str) -> Self {
        let all = std::env::temp_dir().join("volary-fuzz");
        for entry in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            if !Path::new("/proc").join(entry.file_name()).exists() {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let directory = tempfile::Builder::new()
            .prefix(node)
            .tempdir_in(process_directory(&all))
            .expect("a directory for temporary files");
        Self(directory.keep())
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

fn process_directory(all: &Path) -> PathBuf {
    let own = all.join(std::process::id().to_string());
    std::fs::create_dir_all(&own).expect("a directory for temporary files");
    own
}
