//! A gateway's catalog holds the keys of sessions and the hashes of passwords, and a worker's
//! segments hold the rows. Whoever can read them needs no login.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use volary_flight_proto::{Error, Result};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Permissions of the group and of all other users.
const OTHER_USERS_MODE: u32 = 0o077;

/// Returns options with which a new file can be read only by its owner.
pub fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates a directory that only its owner can read. Its parent must exist.
///
/// # Errors
/// The errors of the file system.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Removes the permissions of other users from a file, if the file exists and they have any.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn restrict_file(path: &Path) -> io::Result<()> {
    match restrict(path, FILE_MODE) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        closed => closed.map(drop),
    }
}

/// Removes the permissions of other users from a data directory, if they have any.
///
/// # Errors
/// `INVALID_ARGUMENT` if the directory belongs to another user, so that this process cannot change
/// its permissions, and the errors of the file system.
pub(crate) fn restrict_directory(path: &Path) -> Result<()> {
    match restrict(path, DIRECTORY_MODE) {
        Ok(None) => Ok(()),
        Ok(Some(mode)) => {
            tracing::warn!(
                path = %path.display(),
                "other users could read the data directory (mode {mode:04o}); its mode is now {DIRECTORY_MODE:04o}"
            );
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::invalid(format!(
            "other users may read data directory {0}, and it belongs to another user, so this process cannot change its permissions; choose a directory of the node's own, such as {0}/volary, which is created if it does not exist",
            path.display()
        ))),
        Err(source) => Err(Error::io(
            format!(
                "cannot remove the permissions of other users from {}",
                path.display()
            ),
            source,
        )),
    }
}

/// Sets the mode if others had permissions, and returns the former mode in this case.
fn restrict(path: &Path, mode: u32) -> io::Result<Option<u32>> {
    let former = fs::metadata(path)?.permissions().mode() & 0o7777;
    if former & OTHER_USERS_MODE == 0 {
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
        restrict_directory(&directory).unwrap();
        restrict_file(&file).unwrap();
        assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
        restrict_file(&directory.join("none")).unwrap();
    }
}
