//! A process that reaches its limit on open files loses connections and spilled data in the middle
//! of its work. So the limit is raised as far as possible, and a configuration that needs more is
//! refused at the start.

use rlimit::{Resource, getrlimit, increase_nofile_limit};
use volary_flight_proto::{Error, ErrorCode, Result};

/// File descriptors for everything that does not grow with the number of workers: clients, the
/// runtimes, the catalog, spilled data, and files that are loaded.
pub const RESERVE: u64 = 100;

/// Raises the limit of this process to the highest that it may set. Call it at the start of the
/// process.
pub fn raise_limit() {
    if let Err(error) = increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit on open files cannot be raised");
    }
}

/// Returns the limit of this process, or `None` if the system does not report it.
pub fn limit() -> Option<u64> {
    let (soft, _hard) = getrlimit(Resource::NOFILE).ok()?;
    Some(soft)
}

/// Refuses a number of workers if this process may not open enough files for them. Each worker
/// takes `per_worker` files. `process` names the process in the error: "this gateway".
///
/// # Errors
/// `RESOURCE_EXHAUSTED`, with the limit and the need, if the workers need more files.
pub fn check_workers(process: &str, workers: usize, per_worker: u64) -> Result<()> {
    match limit() {
        Some(limit) => check_limit(limit, process, workers, per_worker),
        None => Ok(()),
    }
}

fn check_limit(limit: u64, process: &str, workers: usize, per_worker: u64) -> Result<()> {
    let need = (workers as u64)
        .saturating_mul(per_worker)
        .saturating_add(RESERVE);
    if need <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ResourceExhausted,
        format!(
            "{process} may open {limit} files, and {workers} workers need {need}: raise the limit (ulimit -n, LimitNOFILE= of systemd, the container's nofile), or run fewer workers"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_workers_than_files_are_refused_with_the_limit_and_the_need() {
        let error = check_limit(1024, "this gateway", 400, 4).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        let said = "this gateway may open 1024 files, and 400 workers need 1700: raise the limit";
        assert!(error.message().starts_with(said), "{error}");
        check_limit(1700, "this gateway", 400, 4).unwrap();
        check_limit(u64::MAX, "this gateway", usize::MAX, u64::MAX).unwrap();
    }

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let before = limit().unwrap();
        raise_limit();
        assert!(limit().unwrap() >= before);
    }
}
