//! The server of tonic would enforce `grpc-timeout` itself, but only until the headers of the
//! response are sent. At the timeout it would answer with CANCELLED, which clients do not show as a
//! timeout. [`crate::server`] does not use it.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::metadata::MetadataMap;
use volary_flight_proto::{Error, ErrorCode, Result};

const GRPC_TIMEOUT: &str = "grpc-timeout";

/// Time by which this timer ends before the client's own timer, which started earlier. So the
/// client receives our error, which says what was ended and why. For short timeouts, a tenth of the
/// timeout is used if that is less.
const HEAD_START: Duration = Duration::from_millis(5);

/// The longest time to a deadline. It stands for no deadline: `Duration::MAX` cannot be added to an
/// `Instant`.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The time at which a call has to end.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    limit: Duration,
    set_by: SetBy,
}

/// The origin of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetBy {
    Client,
    Session,
    Gateway,
    /// The ticket for a part of a result. It carries the shorter of the session's and the gateway's
    /// limit.
    Ticket,
}

impl Deadline {
    /// Creates the deadline of a call that starts now and may take at most `limit`, or less if the
    /// client's `grpc-timeout` is shorter.
    pub fn from_metadata(metadata: &MetadataMap, limit: Duration) -> Self {
        let wanted = metadata
            .get(GRPC_TIMEOUT)
            .and_then(|value| value.to_str().ok())
            .and_then(parse)
            .filter(|wanted| *wanted < limit);
        let (limit, until, set_by) = match wanted {
            Some(wanted) => (wanted, wanted - HEAD_START.min(wanted / 10), SetBy::Client),
            None => (limit, limit.min(FOREVER), SetBy::Gateway),
        };
        Self {
            at: Instant::now() + until,
            limit,
            set_by,
        }
    }

    /// Returns how long the call may take, counted from when the deadline was set.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the time until the deadline. It is zero once the deadline has passed.
    pub fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns the earlier deadline: this one, or a session's `statement_timeout` that starts now.
    #[must_use]
    pub fn with_session_timeout(self, statement_timeout: Option<Duration>) -> Self {
        let session = statement_timeout.map(|limit| Self {
            at: Instant::now() + limit.min(FOREVER),
            limit,
            set_by: SetBy::Session,
        });
        match session {
            Some(session) if session.at < self.at => session,
            _ => self,
        }
    }

    /// Returns the earlier deadline: this one, or `limit` from now on. The ticket for a part of a
    /// result sets `limit`.
    #[must_use]
    pub fn with_ticket_timeout(self, limit: Duration) -> Self {
        let part = Self {
            at: Instant::now() + limit.min(FOREVER),
            limit,
            set_by: SetBy::Ticket,
        };
        if part.at < self.at { part } else { self }
    }

    /// Runs `work` until the deadline, and drops it then.
    ///
    /// # Errors
    /// The errors of the work, and `DEADLINE_EXCEEDED` if the deadline passes.
    pub async fn run_until<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        timeout_at(self.at, work)
            .await
            .unwrap_or_else(|_| Err(self.error()))
    }

    /// Completes when the deadline passes, with the error that the call ends with.
    pub async fn wait_expired(self) -> Error {
        sleep_until(self.at).await;
        self.error()
    }

    /// Returns the error that a call ends with when the deadline passes.
    pub fn error(&self) -> Error {
        let limit = self.limit;
        let advice = match self.set_by {
            SetBy::Client => "the client's timeout; set a longer one",
            SetBy::Session => "the session's statement_timeout; set a longer one",
            SetBy::Gateway => "gateway.query.timeout",
            SetBy::Ticket => "the session's statement_timeout, or gateway.query.timeout",
        };
        Error::new(
            ErrorCode::DeadlineExceeded,
            format!("the statement was ended after {limit:?}, {advice}"),
        )
    }
}

/// Parses the value of `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2,
/// "Requests").
fn parse(header: &str) -> Option<Duration> {
    let unit = header.chars().next_back()?;
    let digits = &header[..header.len() - unit.len_utf8()];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(number * 60 * 60)),
        'M' => Some(Duration::from_secs(number * 60)),
        'S' => Some(Duration::from_secs(number)),
        'm' => Some(Duration::from_millis(number)),
        'u' => Some(Duration::from_micros(number)),
        'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_grpc_timeout_is_read() {
        for (header, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("500m", Duration::from_millis(500)),
            ("82u", Duration::from_micros(82)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(parse(header), Some(expected));
        }
        for header in ["", "S", "1", "123456789S", "1s", "-1S", "1.5S", "ä", "1ä"] {
            assert_eq!(parse(header), None, "{header}");
        }
    }

    #[tokio::test]
    async fn work_that_takes_too_long_is_ended_with_deadline_exceeded() {
        let mut metadata = MetadataMap::new();
        metadata.insert(GRPC_TIMEOUT, "20m".parse().unwrap());
        let deadline = Deadline::from_metadata(&metadata, Duration::from_secs(60));
        let error = deadline
            .run_until(std::future::pending::<Result<()>>())
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
        assert!(
            error.message().contains("20ms, the client's timeout"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn the_gateways_own_limit_holds_for_a_client_that_sets_none_or_a_longer_one() {
        let mut metadata = MetadataMap::new();
        let limit = Duration::from_secs(60);
        assert_eq!(
            Deadline::from_metadata(&metadata, limit).set_by,
            SetBy::Gateway
        );
        metadata.insert(GRPC_TIMEOUT, "99999999H".parse().unwrap());
        assert_eq!(Deadline::from_metadata(&metadata, limit).limit, limit);
        let forever = Deadline::from_metadata(&metadata, Duration::MAX);
        assert_eq!(forever.set_by, SetBy::Client);
    }

    #[tokio::test]
    async fn the_sessions_timeout_holds_if_it_is_the_shortest() {
        let mut metadata = MetadataMap::new();
        let deadline = Deadline::from_metadata(&metadata, Duration::from_secs(60));
        assert_eq!(deadline.with_session_timeout(None).set_by, SetBy::Gateway);
        let longer = deadline.with_session_timeout(Some(Duration::MAX));
        assert_eq!(longer.set_by, SetBy::Gateway);
        let shorter = deadline.with_session_timeout(Some(Duration::from_secs(5)));
        let error = shorter.error();
        assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
        assert!(
            error
                .message()
                .contains("5s, the session's statement_timeout"),
            "{error}"
        );
        metadata.insert(GRPC_TIMEOUT, "1S".parse().unwrap());
        let deadline = Deadline::from_metadata(&metadata, Duration::from_secs(60));
        let shortest = deadline.with_session_timeout(Some(Duration::from_secs(5)));
        assert_eq!(shortest.set_by, SetBy::Client);
    }
}
