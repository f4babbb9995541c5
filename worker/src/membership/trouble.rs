//! What fails again and again is said once.

use volary_flight_proto::{Error, ErrorCode};

/// Something that is done again and again: it is logged when it begins to fail, or to fail in another way, and when it works
/// again, not each time.
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
                tracing::warn!(%error, "{} fails; it is tried again", self.what);
            }
            None if self.failing.is_some() => tracing::info!("{} works again", self.what),
            _ => {}
        }
        self.failing = error.map(Error::code);
    }
}
