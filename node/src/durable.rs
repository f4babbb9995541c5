//! Files that survive a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Replaces `path` by `content`: after a crash the file has its old or its new content, whole.
///
/// # Errors
/// Those of the file system, with the path; a full disk is `RESOURCE_EXHAUSTED`. The content may be replaced nevertheless, and
/// not durably.
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
    sync_directory(parent(path))
}

/// Makes the names in a directory durable: a file is only as durable as its name.
///
/// # Errors
/// Those of the file system, with the path.
pub fn sync_directory(path: &Path) -> Result<()> {
    sync(path).map_err(|source| not_synced(path, source))
}

fn not_synced(directory: &Path, source: io::Error) -> Error {
    let what = format!("cannot sync directory {}", directory.display());
    Error::io(what, source)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory).and_then(|directory| directory.sync_all())
}

/// Creates a directory and the parents that it lacks, durably.
///
/// # Errors
/// Those of the file system, with the path.
pub fn create_directory(path: &Path) -> Result<()> {
    let parent = parent(path);
    let made = match fs::create_dir(path) {
        Err(source) if source.kind() == ErrorKind::NotFound && parent != path => {
            create_directory(parent)?;
            fs::create_dir(path)
        }
        made => made,
    };
    let was_there = match made {
        Ok(()) => false,
        Err(_) if path.is_dir() => true,
        Err(source) => {
            let what = format!("cannot create directory {}", path.display());
            return Err(Error::io(what, source));
        }
    };
    match sync(parent) {
        // This process could not have made anything there: it is the parent of a mounted volume, for example.
        Err(source) if was_there && is_refusal(&source) => Ok(()),
        // Also if it was there: whoever made it may have been killed before its name was durable.
        synced => synced.map_err(|source| not_synced(parent, source)),
    }
}

/// Whether a directory may not be read, or lies where nothing is ever written.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
    )
}

/// The directory that a path's name stands in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Reads a JSON file whose object says in `format` which release can read it; none if there is no such file.
///
/// # Errors
/// `INVALID_ARGUMENT` if its format is newer than `newest_format`, `DATA_LOSS` if it is damaged, and those of the file system.
pub fn read_json<T: DeserializeOwned>(path: &Path, newest_format: u32) -> Result<Option<T>> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(source) if source.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let what = format!("cannot read {}", path.display());
            return Err(Error::io(what, source));
        }
    };
    let damaged = |source: serde_json::Error| {
        Error::with_source(
            ErrorCode::DataLoss,
            format!("{} is damaged; restore it from a backup", path.display()),
            source,
        )
    };
    // The format first and alone: what a newer release writes beside it need not be understood.
    let Format { format } = serde_json::from_slice(&text).map_err(damaged)?;
    if format > newest_format {
        return Err(Error::invalid(format!(
            "{} has format {format}, this release reads up to format {newest_format}; start it with the release that wrote it, or a newer one",
            path.display()
        )));
    }
    serde_json::from_slice(&text).map(Some).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_created_with_its_parents_and_may_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data").join("worker");
        create_directory(&path).unwrap();
        assert!(path.is_dir());
        create_directory(&path).unwrap();
        // A path without a parent, and names that stand in the current directory.
        create_directory(Path::new("/")).unwrap();
        create_directory(Path::new(".")).unwrap();
        assert_eq!(parent(Path::new("data")), Path::new("."));
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("worker")] {
            let error = create_directory(&path).unwrap_err();
            let name = path.display().to_string();
            assert!(error.message().contains(&name), "{error}");
        }
    }
}
