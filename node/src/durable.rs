//! Files that survive a crash.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use volary_flight_proto::{Error, Result};

/// Replaces `path` by `content`: after a crash the file has its old or its new content, whole.
///
/// # Errors
/// Those of the file system, with the path; a full disk is `RESOURCE_EXHAUSTED`.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let failed = |source| Error::io(format!("cannot write {}", path.display()), source);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&temporary)
        .map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)?;
    match path.parent() {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

/// Makes the names in a directory durable: a file is only as durable as its name.
///
/// # Errors
/// Those of the file system, with the path.
pub fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| Error::io(format!("cannot sync directory {}", path.display()), source))
}

/// Creates a directory and its parents, durably.
///
/// # Errors
/// Those of the file system, with the path.
pub fn create_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|source| {
        Error::io(
            format!("cannot create directory {}", path.display()),
            source,
        )
    })?;
    match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}
