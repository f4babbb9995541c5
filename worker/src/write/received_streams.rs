//! If a stream could be accepted twice, an eavesdropper could replay it as long as its seal is
//! valid.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volary_flight_proto::seal::now_s;
use volary_flight_proto::write::DESCRIPTOR_LIFETIME;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Maximum number of streams that are remembered. Each takes some 200 bytes.
const MAX_STREAMS: usize = 1 << 20;

/// Longest time for which a seal may be valid, by the worker's own clock. The gateway's clock may
/// be ahead by as much as the lifetime of a seal.
const MAX_SEAL_LIFETIME: Duration = Duration::from_secs(2 * DESCRIPTOR_LIFETIME.as_secs());

/// The streams that this start of the worker has received, and whose seals are still valid. Streams
/// for an earlier start need not be remembered, because they name that start.
#[derive(Debug, Default)]
pub(crate) struct ReceivedStreams(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stream_ids: HashSet<Arc<str>>,
    /// The known streams, ordered by the last second (since 1970) in which their seals are valid.
    by_expiry: BTreeSet<(u64, Arc<str>)>,
}

impl ReceivedStreams {
    /// Accepts a stream. `expires_s` is the last second (since 1970) in which its seal is valid.
    ///
    /// # Errors
    /// Returns `ALREADY_EXISTS` if the stream was received before, and `PERMISSION_DENIED` for a
    /// seal that is valid for too long. Returns `RESOURCE_EXHAUSTED` if there are too many streams
    /// to remember.
    pub(crate) fn accept(&self, stream_id: &str, expires_s: u64) -> Result<()> {
        self.accept_at(stream_id, expires_s, now_s())
    }

    fn accept_at(&self, stream_id: &str, expires_s: u64, now_s: u64) -> Result<()> {
        // The stream would have to be remembered for as long as its seal is valid.
        if expires_s.saturating_sub(now_s) > MAX_SEAL_LIFETIME.as_secs() {
            return Err(Error::new(
                ErrorCode::PermissionDenied,
                format!(
                    "the write descriptor is valid for another {} s, and the maximum is {MAX_SEAL_LIFETIME:?}; synchronize the clocks of the gateway and the worker",
                    expires_s - now_s
                ),
            ));
        }
        let mut state = self.0.lock();
        state.forget_until(now_s);
        if state.stream_ids.contains(stream_id) {
            return Err(Error::new(
                ErrorCode::AlreadyExists,
                "the worker has already received this stream of rows, and does not accept it twice",
            ));
        }
        if state.stream_ids.len() >= MAX_STREAMS {
            let text = format!(
                "{MAX_STREAMS} writes have begun within {MAX_SEAL_LIFETIME:?}; retry later, and send more rows in each write"
            );
            let first = state.by_expiry.first();
            let first_expires_s = first.map_or(now_s, |(expires_s, _)| *expires_s);
            let forgotten_in = Duration::from_secs(first_expires_s.saturating_sub(now_s) + 1);
            let error = Error::new(ErrorCode::ResourceExhausted, text);
            return Err(error.with_retry_after(forgotten_in));
        }
        let stream_id: Arc<str> = stream_id.into();
        state.stream_ids.insert(Arc::clone(&stream_id));
        state.by_expiry.insert((expires_s, stream_id));
        Ok(())
    }
}

impl State {
    /// Forgets the streams whose seals are not valid any more.
    fn forget_until(&mut self, now_s: u64) {
        while let Some((expires_s, _)) = self.by_expiry.first()
            && *expires_s < now_s
            && let Some((_, forgotten)) = self.by_expiry.pop_first()
        {
            self.stream_ids.remove(&forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn a_stream_is_taken_once_as_long_as_its_seal_holds() {
        let received = ReceivedStreams::default();
        let lifetime = DESCRIPTOR_LIFETIME.as_secs();
        // The clock of one gateway is ahead, and the clock of the other one is late.
        received
            .accept_at("ahead", NOW + 2 * lifetime, NOW)
            .unwrap();
        received.accept_at("late", NOW + 1, NOW).unwrap();
        for (stream, expires) in [("late", NOW + 1), ("ahead", NOW + 2 * lifetime)] {
            for now in [NOW, expires] {
                let again = received.accept_at(stream, expires, now);
                assert_eq!(again.unwrap_err().code(), ErrorCode::AlreadyExists);
            }
            // From now on, the seal is refused when it is opened.
            received.0.lock().forget_until(expires + 1);
            assert!(!received.0.lock().stream_ids.contains(stream));
        }
        assert!(received.0.lock().by_expiry.is_empty());
    }

    #[test]
    fn too_many_streams_are_refused_until_the_first_is_forgotten() {
        let received = ReceivedStreams::default();
        for stream in 0..MAX_STREAMS {
            let accepted = received.accept_at(&stream.to_string(), NOW + 20, NOW);
            accepted.unwrap();
        }
        let refused = received.accept_at("one more", NOW + 30, NOW + 5);
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
        let wait = refused.retry_after().unwrap();
        assert_eq!(wait, Duration::from_secs(16));
        let then = NOW + 5 + wait.as_secs();
        received.accept_at("one more", NOW + 30, then).unwrap();
    }

    #[test]
    fn a_seal_that_holds_for_longer_than_it_is_remembered_is_refused() {
        let expires = NOW + MAX_SEAL_LIFETIME.as_secs() + 1;
        let refused = ReceivedStreams::default().accept_at("a", expires, NOW);
        assert_eq!(refused.unwrap_err().code(), ErrorCode::PermissionDenied);
    }
}
