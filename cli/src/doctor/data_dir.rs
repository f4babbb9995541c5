use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::data_dir::{Inspection, NodeRole};

use super::disk;
use super::report::Report;

/// Size of the file that is written and synced as a test, in bytes. It is larger than what a file
/// system may store beside the names of files.
const PROBE_BYTES: usize = 64 << 10;
/// Permissions of the group and of all other users.
const OTHER_USERS_MODE: u32 = 0o077;
const ROOT: u32 = 0;

/// Checks the data directory of a node. `owner` is put before the name of the check if there are
/// several nodes. Returns the directory, which stays locked while the other checks run, or `None`
/// if it does not exist, or the code of the error if it cannot be used.
pub(super) fn check(
    report: &mut Report,
    owner: &str,
    path: &Path,
    role: NodeRole,
) -> Result<Option<Inspection>, ErrorCode> {
    let name = format!("{owner}data directory");
    let inspection = match Inspection::of(path, role) {
        Ok(inspection) => inspection,
        Err(error) => {
            report.fail(&name, &error);
            return Err(error.code());
        }
    };
    match check_writes(path) {
        Ok(Some(user)) => report.warn(
            &name,
            format!(
                "{} belongs to the user with the number {user}, and volary doctor runs as root",
                path.display()
            ),
            "run it as the user of the node, to see what that user may do",
        ),
        Ok(None) => report.ok(&name, describe(path, inspection.as_ref())),
        Err(error) => report.fail(&name, &error),
    }
    Ok(inspection)
}

/// Checks the disk below a data directory, which need not exist yet.
pub(super) fn check_disk(report: &mut Report, path: &Path) {
    disk::check(report, "disk", &existing(path));
}

fn describe(path: &Path, inspection: Option<&Inspection>) -> String {
    let path = path.display();
    let Some(inspection) = inspection else {
        return format!("{path} does not exist yet, and can be created");
    };
    let identity = inspection.identity();
    let cluster = identity.and_then(|identity| identity.cluster_id);
    let worker = identity.and_then(|identity| identity.worker_id);
    match (identity, cluster, worker) {
        (None, ..) => format!("{path} is empty"),
        (Some(_), Some(cluster), Some(worker)) => {
            format!("{path} belongs to worker {worker} of cluster {cluster}")
        }
        (Some(identity), Some(cluster), None) => {
            format!(
                "{path} belongs to the {} of cluster {cluster}",
                identity.role
            )
        }
        (Some(identity), None, _) => {
            format!(
                "{path} belongs to a {} that has not joined a cluster yet",
                identity.role
            )
        }
    }
}

/// Checks that this user can write to the directory, or create it. Returns the owner of the
/// directory if that is another user and this process runs as root, which may do everything.
fn check_writes(path: &Path) -> Result<Option<u32>> {
    let place = existing(path);
    let what = if place == path {
        format!("cannot write to {}", path.display())
    } else {
        format!(
            "cannot create {}, because {} cannot be written to",
            path.display(),
            place.display()
        )
    };
    let failed = |source| Error::io(&what, source);
    // On Linux the file has no name, so nothing is left behind, whatever happens.
    let mut probe = tempfile::tempfile_in(&place).map_err(failed)?;
    probe
        .write_all(&[0; PROBE_BYTES])
        .and_then(|()| probe.sync_all())
        .map_err(failed)?;
    let user = probe.metadata().map_err(failed)?.uid();
    if place != path {
        return Ok(None);
    }
    let directory = std::fs::metadata(&place).map_err(failed)?;
    if directory.uid() == user {
        return Ok(None);
    }
    if user == ROOT {
        return Ok(Some(directory.uid()));
    }
    if directory.mode() & OTHER_USERS_MODE == 0 {
        return Ok(None);
    }
    Err(Error::invalid(format!(
        "other users may read {0}, and it belongs to another user, so the node cannot change its permissions; choose a directory of the node's own, such as {0}/volary, which is created if it does not exist",
        path.display()
    )))
}

/// Returns the path, or its nearest parent that exists.
fn existing(path: &Path) -> PathBuf {
    let found = path.ancestors().find(|place| place.exists());
    match found {
        Some(place) if !place.as_os_str().is_empty() => place.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use volary_node::DataDir;

    use super::*;

    fn lines(path: &Path, role: NodeRole) -> String {
        let mut report = Report::default();
        let _inspection = check(&mut report, "", path, role);
        report.lines()
    }

    #[test]
    fn a_directory_is_checked_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let said = lines(&path, NodeRole::Worker);
        assert!(
            said.contains("a/b does not exist yet, and can be created"),
            "{said}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let open = DataDir::open(&path, NodeRole::Worker).unwrap();
        let said = lines(&path, NodeRole::Worker);
        assert!(said.contains("in use by another process"), "{said}");
        drop(open);
        let said = lines(&path, NodeRole::Worker);
        assert!(said.contains("has not joined a cluster yet"), "{said}");
        let said = lines(&path, NodeRole::Gateway);
        assert!(said.starts_with("failed "), "{said}");
        assert!(said.contains("of a worker, not of a gateway"), "{said}");
        let mut names: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["lock", "volary.json"]);
    }

    #[test]
    fn a_path_below_a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = lines(&file.path().join("data"), NodeRole::Gateway);
        assert!(said.starts_with("failed "), "{said}");
        assert!(said.contains("Not a directory"), "{said}");
    }
}
