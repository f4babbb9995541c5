use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::disk::Disk;
use crate::private_files;

/// Replaces the content of `path` by `content`. After a crash, the file has either its whole old
/// content or its whole new content.
///
/// # Errors
/// The errors of the file system, with the path. A full disk is `RESOURCE_EXHAUSTED`. After an
/// error the content may still have been replaced, but not durably.
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let failed = |source| Error::io(format!("cannot write {}", path.display()), source);
    disk.write_file(&temporary, content).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)?;
    sync_directory(disk, parent(path))
}

/// Makes the names in a directory durable: a file is only as durable as its name.
///
/// # Errors
/// The errors of the file system, with the path.
pub fn sync_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.sync_directory(path)
        .map_err(|source| sync_error(path, source))
}

fn sync_error(directory: &Path, source: io::Error) -> Error {
    let what = format!("cannot sync directory {}", directory.display());
    Error::io(what, source)
}

/// Removes a file if it exists. After a crash the file may exist again.
///
/// # Errors
/// The errors of the file system, with the path.
pub fn remove_file(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            let what = format!("cannot delete {}", path.display());
            Err(Error::io(what, source))
        }
        _ => Ok(()),
    }
}

/// Creates a directory and its missing parents, durably. Only their owner can read them.
///
/// # Errors
/// The errors of the file system, with the path.
pub fn create_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    let parent = parent(path);
    let created = match private_files::create_directory(path) {
        Err(source) if source.kind() == ErrorKind::NotFound && parent != path => {
            create_directory(disk, parent)?;
            private_files::create_directory(path)
        }
        made => made,
    };
    let existed = match created {
        Ok(()) => false,
        Err(_) if path.is_dir() => true,
        Err(source) => {
            let what = format!("cannot create directory {}", path.display());
            return Err(Error::io(what, source));
        }
    };
    match disk.sync_directory(parent) {
        // This process could not have created the directory there. The parent is, for example, the
        // mount point of a volume.
        Err(source) if existed && is_refusal(&source) => Ok(()),
        // An existing directory is synced, too: the process that created it may have been killed
        // before the name was durable.
        synced => synced.map_err(|source| sync_error(parent, source)),
    }
}

/// Returns whether the error means that the directory may not be read, or that its file system does
/// not support writes or syncs.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
    )
}

/// Returns the directory that holds the name of the path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// The text between the body of a JSON file and its checksum. It begins the line of the checksum.
const CHECKSUM: &str = ",\n  \"checksum\": \"";
/// The text between the checksum and the end of the file.
const AFTER_CHECKSUM: &str = "\"\n}";

/// Encodes a value as the text of a file that [`read_json`] reads: JSON that people can read, with
/// a checksum in its last field. The value must be an object that is not empty, and its `format`
/// must be [`FIRST_CHECKSUM_FORMAT`] or later.
///
/// # Errors
/// `INTERNAL` if the value has no such JSON form.
pub fn to_json(value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value).map_err(|source| {
        Error::with_source(ErrorCode::Internal, "a file cannot be encoded", source)
    })?;
    let body = text.strip_suffix("\n}").ok_or_else(|| {
        Error::internal("a file cannot be encoded: its value is no object with fields")
    })?;
    let checksum = checksum(body);
    Ok(format!("{body}{CHECKSUM}{checksum}{AFTER_CHECKSUM}").into_bytes())
}

/// First format of JSON files with a checksum, which is the second format of all.
pub const FIRST_CHECKSUM_FORMAT: u32 = 2;

fn checksum(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().to_string()
}

/// Reads a JSON file. The field `format` of its object says which releases can read it. Returns
/// `None` if the file does not exist.
///
/// # Errors
/// `INVALID_ARGUMENT` if the file's format is newer than `newest_format`, `DATA_LOSS` if the file
/// is damaged, and the errors of the file system.
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
        Error::with_source(ErrorCode::DataLoss, damage_text(path), source)
    };
    // The format is read first and alone: this release need not understand what a newer release
    // wrote beside it.
    let Format { format } = serde_json::from_slice(&text).map_err(damaged)?;
    if format > newest_format {
        return Err(Error::invalid(format!(
            "{} has format {format}, but this release reads only up to format {newest_format}; start the node with the release that wrote the file, or a newer one",
            path.display()
        )));
    }
    let has_checksum = format != 1;
    if has_checksum && !matches_checksum(&text) {
        return Err(Error::new(
            ErrorCode::DataLoss,
            format!(
                "{}: its checksum does not match its content",
                damage_text(path)
            ),
        ));
    }
    serde_json::from_slice(&text).map(Some).map_err(damaged)
}

fn damage_text(path: &Path) -> String {
    format!("{} is damaged; restore it from a backup", path.display())
}

fn matches_checksum(text: &[u8]) -> bool {
    let body_and_checksum = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_suffix(AFTER_CHECKSUM))
        .and_then(|text| text.rsplit_once(CHECKSUM));
    body_and_checksum.is_some_and(|(body, found)| found == checksum(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::LocalDisk;

    #[test]
    fn a_directory_is_created_with_its_parents_and_may_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data").join("worker");
        create_directory(&LocalDisk, &path).unwrap();
        assert!(path.is_dir());
        create_directory(&LocalDisk, &path).unwrap();
        // One path has no parent, and one stands for the current directory.
        create_directory(&LocalDisk, Path::new("/")).unwrap();
        create_directory(&LocalDisk, Path::new(".")).unwrap();
        assert_eq!(parent(Path::new("data")), Path::new("."));
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("worker")] {
            let error = create_directory(&LocalDisk, &path).unwrap_err();
            let name = path.display().to_string();
            assert!(error.message().contains(&name), "{error}");
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Nest {
        format: u32,
        eggs: Vec<u32>,
    }

    #[test]
    fn any_bit_that_flips_in_a_file_with_a_checksum_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nest.json");
        let nest = Nest {
            format: FIRST_CHECKSUM_FORMAT,
            eggs: vec![3, 5],
        };
        let text = to_json(&nest).unwrap();
        replace_file(&LocalDisk, &file, &text).unwrap();
        assert_eq!(read_json(&file, FIRST_CHECKSUM_FORMAT).unwrap(), Some(nest));
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, &flipped).unwrap();
            let read = read_json::<Nest>(&file, FIRST_CHECKSUM_FORMAT);
            // The format is checked first, so the error may say that a newer release wrote the
            // file.
            let error = read.expect_err("a flipped bit is not noticed");
            assert!(error.message().contains("nest.json"), "{error}");
        }
    }

    #[test]
    fn a_file_of_a_format_without_checksums_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nest.json");
        fs::write(&file, r#"{"format": 1, "eggs": []}"#).unwrap();
        assert!(read_json::<Nest>(&file, 2).unwrap().is_some());
        fs::write(&file, r#"{"format": 2, "eggs": []}"#).unwrap();
        assert!(read_json::<Nest>(&file, 2).is_err());
    }
}
