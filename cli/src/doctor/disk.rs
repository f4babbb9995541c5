use std::path::Path;

use volary_flight_proto::Error;
use volary_node::disk_space::DiskSpace;

use super::report::Report;
use crate::terminal;

/// Share of a disk that should be available. Below it, a load or spilled data may soon fill the
/// disk.
const MIN_AVAILABLE: f64 = 0.1;

/// Checks how full the disk below a path is, and which kind of file system it has.
pub(super) fn check(report: &mut Report, name: &str, path: &Path) {
    let space = match DiskSpace::of(path) {
        Ok(space) => space,
        Err(error) => {
            let what = format!("cannot look at the disk of {}", path.display());
            report.fail(name, &Error::io(what, error));
            return;
        }
    };
    if space.is_read_only {
        report.fail_with(
            name,
            format!("the file system of {} is read-only", path.display()),
            "mount it so that it can be written to, or choose another directory",
        );
        return;
    }
    let found = format!(
        "{} of {} are available below {}",
        terminal::bytes(space.available_bytes),
        terminal::bytes(space.size_bytes),
        path.display()
    );
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of a disk need not be exact"
    )]
    let share = space.available_bytes as f64 / space.size_bytes.max(1) as f64;
    if share < MIN_AVAILABLE {
        report.warn(name, found, "free space, or give the node a larger disk");
    } else if let Some((kind, advice)) = doubtful_kind(path) {
        report.warn(name, format!("{found}, on {kind}"), advice);
    } else {
        report.ok(name, found);
    }
}

/// Returns a kind of file system that is no good place for data, with what to do.
#[cfg(target_os = "linux")]
fn doubtful_kind(path: &Path) -> Option<(&'static str, &'static str)> {
    use nix::sys::statfs::{
        NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, SMB_SUPER_MAGIC, TMPFS_MAGIC, statfs,
    };

    let kind = statfs(path).ok()?.filesystem_type();
    if kind == TMPFS_MAGIC {
        return Some((
            "a file system in memory (tmpfs)",
            "what it holds is lost when the machine restarts: choose a directory on a disk",
        ));
    }
    if kind == OVERLAYFS_SUPER_MAGIC {
        return Some((
            "the file system of a container (overlay)",
            "what it holds is lost with the container: mount a volume there",
        ));
    }
    if kind == NFS_SUPER_MAGIC || kind == SMB_SUPER_MAGIC {
        return Some((
            "a file system of another machine",
            "use a disk of this machine, because not every such file system keeps what was synced, and locks",
        ));
    }
    None
}

#[cfg(not(target_os = "linux"))]
fn doubtful_kind(_: &Path) -> Option<(&'static str, &'static str)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_says_how_much_is_available() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        check(&mut report, "disk", dir.path());
        assert!(!report.has_failed(), "{}", report.lines());
        assert!(
            report.lines().contains("are available below"),
            "{}",
            report.lines()
        );
        check(&mut report, "disk", &dir.path().join("none"));
        assert!(
            report.lines().contains("cannot look at the disk"),
            "{}",
            report.lines()
        );
    }
}
