//! PostgreSQL refuses to run as root. So root runs it as another user, who must be able to enter
//! the directory of the data.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Directories in which every user may create files, on most systems.
const PUBLIC: [&str; 2] = ["/var/tmp", "/tmp"];
/// The permission of all other users to enter a directory.
const OTHERS_ENTER: u32 = 0o001;

/// Creates a directory on the file system of `near`: next to it, or if other users cannot enter
/// that and `is_for_others`, in a directory for everybody.
///
/// # Errors
/// Returns an error if there is no such directory, and the errors of the file system.
pub(super) fn create(near: &Path, is_for_others: bool) -> Result<TempDir> {
    let parent = near.parent().unwrap_or(near);
    let candidates = std::iter::once(parent.to_owned()).chain(PUBLIC.map(PathBuf::from));
    let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
    let chosen = candidates
        .into_iter()
        .find(|path| device(path) == device(near) && (!is_for_others || others_can_enter(path)));
    let chosen = chosen.with_context(|| {
        format!(
            "other users can enter neither {} nor a directory for everybody on the same file system; set TMPDIR to one that they can enter",
            parent.display()
        )
    })?;
    let created = tempfile::Builder::new()
        .prefix("volary-bench-postgres-")
        .tempdir_in(&chosen);
    created.with_context(|| format!("cannot create a directory in {}", chosen.display()))
}

fn others_can_enter(path: &Path) -> bool {
    path.ancestors().all(|directory| {
        fs::metadata(directory).is_ok_and(|it| it.permissions().mode() & OTHERS_ENTER != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_is_passed_over_for_others() {
        let private = tempfile::tempdir().unwrap();
        fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let near = private.path().join("near");
        fs::create_dir(&near).unwrap();
        let own = create(&near, false).unwrap();
        assert_eq!(own.path().parent(), Some(private.path()));
        assert!(!others_can_enter(private.path()));
        // Where no public directory is on the same file system, this is an error.
        if let Ok(public) = create(&near, true) {
            assert!(!public.path().starts_with(private.path()));
            assert!(others_can_enter(public.path().parent().unwrap()));
        }
    }
}
