//! Logs a repeated failure once.

use volary_flight_proto::{Error, ErrorCode};

/// Something that is done again and again. It is logged when it begins to fail, when it begins to
/// fail in another way, and when it works again. Repetitions of the same failure are not logged.
#[derive(Debug)]
pub(super) struct Trouble {
    what: &'static str,
    failing: Option<ErrorCode>,
}

impl Trouble {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            what,
            failing: None,
        }
    }

    pub(super) fn note(&mut self, error: Option<&Error>) {
        match error {
            Some(error) if self.failing != Some(error.code()) => {
                tracing::warn!(
                    error = format_args!("{error:#}"),
                    "{} fails; the worker tries again",
                    self.what
                );
            }
            None if self.failing.is_some() => tracing::info!("{} works again", self.what),
            _ => {}
        }
        self.failing = error.map(Error::code);
    }
}
