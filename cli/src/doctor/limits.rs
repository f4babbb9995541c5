use volary_flight_proto::Result;
use volary_node::open_files;
use volary_node::size::{MemorySize, total_memory_bytes};

use super::report::Report;
use crate::terminal;

/// Number of files that a node should be able to open. A statement on a worker may read thousands
/// of segments, and each client takes a connection.
const RECOMMENDED_FILES: u64 = 4096;

const RAISE_FILES: &str =
    "raise the limit (ulimit -n, LimitNOFILE= of systemd, the container's nofile)";

/// Checks how many files a node may open. `need` refuses the start of the node if they are too few.
pub(super) fn check_open_files(report: &mut Report, need: Result<()>) {
    const NAME: &str = "open files";
    if let Err(error) = need {
        report.fail(NAME, &error);
        return;
    }
    match open_files::limit() {
        None => report.ok(NAME, "the system does not say how many files may be open"),
        Some(limit) if limit < open_files::RESERVE => report.fail_with(
            NAME,
            format!(
                "the node may open {limit} files, and needs {}",
                open_files::RESERVE
            ),
            RAISE_FILES,
        ),
        Some(limit) if limit < RECOMMENDED_FILES => report.warn(
            NAME,
            format!("the node may open {limit} files, and may need more under load"),
            RAISE_FILES,
        ),
        Some(limit) => report.ok(NAME, format!("the node may open {limit} files")),
    }
}

/// Checks the memory limit, the setting `key`, against the memory of the machine or its cgroup.
pub(super) fn check_memory(report: &mut Report, key: &str, limit: MemorySize) {
    const NAME: &str = "memory";
    let (limit, total) = (limit.bytes() as u64, total_memory_bytes());
    let found = format!(
        "{key} is {}, and there are {}",
        terminal::bytes(limit),
        terminal::bytes(total)
    );
    if limit > total {
        report.warn(
            NAME,
            found,
            &format!("lower {key}, or the system may end the process"),
        );
    } else {
        report.ok(NAME, found);
    }
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::Error;

    use super::*;

    #[test]
    fn a_limit_above_the_memory_of_the_machine_is_a_warning() {
        let mut report = Report::default();
        check_memory(&mut report, "gateway.memory.limit", MemorySize::Percent(50));
        check_memory(
            &mut report,
            "gateway.memory.limit",
            MemorySize::Bytes(1 << 60),
        );
        let lines = report.lines();
        let (within, above) = lines.split_once('\n').unwrap();
        assert!(within.starts_with("ok "), "{within}");
        assert!(
            above.starts_with("warning ") && above.contains("lower gateway.memory.limit"),
            "{above}"
        );
    }

    #[test]
    fn too_few_files_fail_with_the_reason_of_the_node() {
        let mut report = Report::default();
        check_open_files(&mut report, Err(Error::invalid("too few; raise it")));
        assert_eq!(report.lines(), "failed   open files: too few; raise it");
    }
}
