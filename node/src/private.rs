//! Files and directories that nobody but the node's own user reads, whatever the umask is.
//!
//! A gateway's catalog holds the keys of sessions and the hashes of passwords, a worker's segments hold the rows: who reads
//! them needs no login.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use volary_flight_proto::{Error, Result};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The rights of others: those of the group, and those of everybody.
const OTHERS: u32 = 0o077;

/// Options with which a new file is its owner's alone.
pub fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates a directory that is its owner's alone. Its parent must be there.
///
/// # Errors
/// Those of the file system.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Takes the rights of others to a file away, if they have any and there is such a file.
///
/// # Errors
/// Those of the file system.
pub fn close_file(path: &Path) -> io::Result<()> {
    match close(path, FILE_MODE) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        closed => closed.map(drop),
    }
}

/// Takes the rights of others to a data directory away, if they have any.
///
/// # Errors
/// `INVALID_ARGUMENT` if it belongs to another user, so that this process cannot close it; those of the file system.
pub fn close_directory(path: &Path) -> Result<()> {
    match close(path, DIRECTORY_MODE) {
        Ok(None) => Ok(()),
        Ok(Some(mode)) => {
            tracing::warn!(
                path = %path.display(),
                "other users could read the data directory (mode {mode:04o}): it is closed to them now (mode {DIRECTORY_MODE:04o})"
            );
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::invalid(format!(
            "other users may read data directory {0}, and it belongs to another user, so it cannot be closed to them; give a directory of the node's own, such as {0}/volary, which is made if it is not there",
            path.display()
        ))),
        Err(source) => Err(Error::io(
            format!("cannot close {} to other users", path.display()),
            source,
        )),
    }
}

/// The former mode, if others had rights.
fn close(path: &Path, mode: u32) -> io::Result<Option<u32>> {
    let former = fs::metadata(path)?.permissions().mode() & 0o7777;
    if former & OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(Some(former))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn open_to_all(path: &Path) {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_others_could_read_is_closed_to_them() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("data");
        create_directory(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        let file = directory.join("file");
        file_options().write(true).create(true).open(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        open_to_all(&directory);
        open_to_all(&file);
        close_directory(&directory).unwrap();
        close_file(&file).unwrap();
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
        close_file(&directory.join("none")).unwrap();
    }
}
