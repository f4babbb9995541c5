//! The streams of rows that have come: each is taken once. What was overheard on its way can be sent again as long as its seal holds.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use parking_lot::Mutex;
use volary_flight_proto::write::DESCRIPTOR_LIFETIME;
use volary_flight_proto::{Error, ErrorCode, Result};

/// So many are remembered, some 100 bytes each.
const MOST: usize = 1 << 20;

/// Which streams have come to this start of the worker within the life of their seals. Those of an earlier start name that one.
#[derive(Debug, Default)]
pub struct Received(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: HashSet<String>,
    /// The same, with when they may be forgotten.
    in_order: VecDeque<(Instant, String)>,
}

impl Received {
    /// Takes a stream.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if it has come before; `RESOURCE_EXHAUSTED` if there are too many to be remembered.
    pub fn take(&self, stream_id: &str) -> Result<()> {
        self.take_at(stream_id, Instant::now())
    }

    fn take_at(&self, stream_id: &str, now: Instant) -> Result<()> {
        let mut state = self.0.lock();
        while let Some((until, _)) = state.in_order.front()
            && *until < now
            && let Some((_, forgotten)) = state.in_order.pop_front()
        {
            state.known.remove(&forgotten);
        }
        if state.known.contains(stream_id) {
            return Err(Error::new(
                ErrorCode::AlreadyExists,
                "the rows of this write have come already, and are not taken again",
            ));
        }
        if state.known.len() >= MOST {
            return Err(Error::new(
                ErrorCode::ResourceExhausted,
                format!(
                    "{MOST} writes have begun within {DESCRIPTOR_LIFETIME:?}; retry later, and send more rows at a time"
                ),
            ));
        }
        state.known.insert(stream_id.to_owned());
        // The clocks of gateways may be late.
        let until = now + 2 * DESCRIPTOR_LIFETIME;
        state.in_order.push_back((until, stream_id.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_taken_once_and_forgotten_when_its_seal_has_expired() {
        let (received, now) = (Received::default(), Instant::now());
        received.take_at("a", now).unwrap();
        received.take_at("b", now).unwrap();
        let again = received.take_at("a", now + DESCRIPTOR_LIFETIME);
        assert_eq!(again.unwrap_err().code(), ErrorCode::AlreadyExists);
        received
            .take_at("c", now + 3 * DESCRIPTOR_LIFETIME)
            .unwrap();
        assert_eq!(received.0.lock().known.len(), 1);
    }
}
