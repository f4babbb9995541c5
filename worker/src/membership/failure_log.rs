use volary_flight_proto::{Error, ErrorCode};

/// Logs when an activity that is repeated begins to fail, when it begins to fail in another way,
/// and when it works again. Repetitions of the same failure are not logged.
#[derive(Debug)]
pub(super) struct FailureLog {
    activity: &'static str,
    logged_failure: Option<ErrorCode>,
}

impl FailureLog {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            activity: what,
            logged_failure: None,
        }
    }

    pub(super) fn record(&mut self, error: Option<&Error>) {
        match error {
            Some(error) if self.logged_failure != Some(error.code()) => {
                tracing::warn!(
                    error = format_args!("{error:#}"),
                    "{} fails; the worker tries again",
                    self.activity
                );
            }
            None if self.logged_failure.is_some() => {
                tracing::info!("{} works again", self.activity);
            }
            _ => {}
        }
        self.logged_failure = error.map(Error::code);
    }
}
