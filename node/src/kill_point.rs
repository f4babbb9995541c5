//! A test names points in the environment variable `VOLARY_KILL_POINTS`, each with the pass at
//! which the process ends: `log.before_sync:3,store.after_commit:1`. Unlike a signal, a point hits
//! the moment between two steps that are microseconds apart.
//!
//! A name is `<part>.<moment>`, in lower case: the part is what is written (`log`, `flush`,
//! `store`, `catalog`), and the moment begins with `before_` or `after_`. Each name has one place.
//! The torture test finds the points in the source, so a new point needs no other line. The crate
//! says whether workers or gateways pass it.

use std::env;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use volary_flight_proto::{Error, Result};

/// Name of the environment variable. No setting has such a name, so no configuration sets it.
const VARIABLE: &str = "VOLARY_KILL_POINTS";

static ARMED: OnceLock<Vec<ArmedPoint>> = OnceLock::new();

/// A point at which the process is to end.
#[derive(Debug)]
struct ArmedPoint {
    name: String,
    /// Number of the pass that ends the process.
    pass: u64,
    passed: AtomicU64,
}

/// Arms the points that the environment variable names, and warns of them. Does nothing if it is
/// not set.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the variable does not list points with their passes.
pub fn arm_from_environment() -> Result<()> {
    let Some(text) = env::var_os(VARIABLE) else {
        return Ok(());
    };
    let text = text.to_string_lossy();
    let points = parse(&text)?;
    tracing::warn!(
        points = %text,
        "{VARIABLE} is set: this process will end itself, as in a crash; unset it unless this is a test"
    );
    let _ = ARMED.set(points);
    Ok(())
}

/// Ends the process at once, as a crash does, if this point is armed and this is the pass. Files
/// keep what was written to them, synced or not.
#[inline]
pub fn kill_point(name: &str) {
    if let Some(armed) = ARMED.get() {
        pass(armed, name);
    }
}

#[cold]
fn pass(armed: &[ArmedPoint], name: &str) {
    if let Some(point) = armed.iter().find(|point| point.is_last_pass(name)) {
        tracing::warn!(
            point = name,
            pass = point.pass,
            "a kill point ends the process"
        );
        process::abort();
    }
}

impl ArmedPoint {
    /// Counts a pass of this name. Returns whether the process is to end.
    fn is_last_pass(&self, name: &str) -> bool {
        self.name == name && self.passed.fetch_add(1, Ordering::AcqRel) + 1 == self.pass
    }
}

fn parse(text: &str) -> Result<Vec<ArmedPoint>> {
    text.split(',').map(parse_point).collect()
}

fn parse_point(text: &str) -> Result<ArmedPoint> {
    let split = text.trim().split_once(':');
    let pass = split.and_then(|(_, pass)| pass.parse().ok());
    let (Some((name, _)), Some(pass @ 1..)) = (split, pass) else {
        return Err(Error::invalid(format!(
            "variable {VARIABLE}: \"{text}\" is no kill point with a pass, such as log.before_sync:3; unset the variable unless this is a test"
        )));
    };
    Ok(ArmedPoint {
        name: name.to_owned(),
        pass,
        passed: AtomicU64::new(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_ends_the_process_at_its_pass_and_at_no_other() {
        let points = parse("log.before_sync:3, store.after_commit:1").unwrap();
        let [log, store] = &points[..] else {
            panic!("{points:?}");
        };
        let passes: Vec<_> = (0..5)
            .map(|_| log.is_last_pass("log.before_sync"))
            .collect();
        assert_eq!(passes, [false, false, true, false, false]);
        assert!(!store.is_last_pass("log.before_sync"));
        assert!(store.is_last_pass("store.after_commit"));
    }

    #[test]
    fn what_is_no_list_of_points_is_refused() {
        for text in [
            "",
            "log.before_sync",
            "log.before_sync:",
            "a:0",
            "a:1,",
            "a:-1",
            "a:x",
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.message().contains("VOLARY_KILL_POINTS"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_process_without_armed_points_passes_all_of_them() {
        kill_point("log.before_sync");
    }
}
