//! While a batch of a producer is on its way, nobody else can know whether it will be committed. So
//! a producer writes to a table through one stream or one statement at a time. A client whose
//! connection broke takes its producer over from the stream that is left of the connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use volary_catalog::ProducerName;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, Result};

/// The producers that write now, or wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct ProducerLeases {
    slots: Mutex<HashMap<(TableId, ProducerName), Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    turn: Arc<AsyncMutex<()>>,
    /// Tells the holder that somebody else wants the producer.
    taken_over: CancellationToken,
    /// Number of those who hold the producer or wait for it. The slot is removed with the last one.
    users: usize,
    /// Number of those who wait to take the producer over.
    takers: usize,
}

/// What happens to the present holder of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The holder is told to end.
    TakeOver,
    /// The holder ends when its batch is decided.
    Wait,
}

/// The right to write as a producer. It must be held until every batch is decided.
#[derive(Debug)]
pub(crate) struct ProducerLease {
    /// It is dropped first, so that the next one is served.
    _turn: OwnedMutexGuard<()>,
    taken_over: CancellationToken,
    _user: SlotUser,
}

#[derive(Debug)]
struct SlotUser {
    leases: Arc<ProducerLeases>,
    key: (TableId, ProducerName),
    /// True while it waits to take the producer over.
    is_taker: bool,
}

impl SlotUser {
    /// Makes the user the holder. Returns a token that tells it that somebody else wants the
    /// producer.
    fn hold(&mut self) -> CancellationToken {
        let taken_over = CancellationToken::new();
        if let Some(slot) = self.leases.slots.lock().get_mut(&self.key) {
            slot.takers -= usize::from(std::mem::take(&mut self.is_taker));
            if slot.takers > 0 {
                // A later stream has come while this one waited.
                taken_over.cancel();
            }
            slot.taken_over = taken_over.clone();
        }
        taken_over
    }
}

impl Drop for SlotUser {
    fn drop(&mut self) {
        let mut slots = self.leases.slots.lock();
        if let Some(slot) = slots.get_mut(&self.key) {
            slot.takers -= usize::from(self.is_taker);
            slot.users -= 1;
            if slot.users == 0 {
                slots.remove(&self.key);
            }
        }
    }
}

impl ProducerLeases {
    /// Waits until nobody else writes as this producer, for `timeout` at most.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the holder does not end in time.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        table: TableId,
        producer: &ProducerName,
        claim: Claim,
        timeout: Duration,
    ) -> Result<ProducerLease> {
        let key = (table, producer.clone());
        let is_taker = claim == Claim::TakeOver;
        let (turn, mut user) = {
            let mut slots = self.slots.lock();
            let slot = slots.entry(key.clone()).or_default();
            slot.users += 1;
            if is_taker {
                slot.takers += 1;
                slot.taken_over.cancel();
            }
            let user = SlotUser {
                leases: Arc::clone(self),
                key,
                is_taker,
            };
            (Arc::clone(&slot.turn), user)
        };
        let turn = tokio::time::timeout(timeout, turn.lock_owned()).await;
        let turn = turn.map_err(|_| {
            Error::unavailable(format!(
                "a batch of producer {producer} is still being written, and its outcome was waited for {timeout:?}; send the batch again later"
            ))
        })?;
        Ok(ProducerLease {
            _turn: turn,
            taken_over: user.hold(),
            _user: user,
        })
    }
}

impl ProducerLease {
    /// Completes when another stream wants to write as the producer.
    pub(crate) fn taken_over(&self) -> &CancellationToken {
        &self.taken_over
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_producer_has_one_holder_whom_a_stream_may_replace() {
        let leases = Arc::new(ProducerLeases::default());
        let table = TableId(7);
        let kea = ProducerName::parse("it", "kea").unwrap();
        let first = leases.acquire(table, &kea, Claim::TakeOver, LONG);
        let first = first.await.unwrap();
        let tui = ProducerName::parse("it", "tui").unwrap();
        let other = leases.acquire(table, &tui, Claim::Wait, LONG);
        drop(other.await.unwrap());

        // One that waits does not disturb the holder, and gives up after its time.
        let waiting = leases.acquire(table, &kea, Claim::Wait, Duration::from_millis(1));
        let error = waiting.await.unwrap_err();
        assert!(
            error.message().contains("is still being written"),
            "{error}"
        );
        assert!(!first.taken_over().is_cancelled());

        let mut second = pin!(leases.acquire(table, &kea, Claim::TakeOver, LONG));
        let is_pending = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending()));
        assert!(is_pending.await);
        assert!(first.taken_over().is_cancelled());
        let third = tokio::spawn({
            let (leases, kea) = (Arc::clone(&leases), kea.clone());
            async move { leases.acquire(table, &kea, Claim::TakeOver, LONG).await }
        });
        while leases.slots.lock()[&(table, kea.clone())].users < 3 {
            tokio::task::yield_now().await;
        }
        drop(first);
        // The newest stream gets the producer, also from one that has waited before it.
        let second = second.await.unwrap();
        assert!(second.taken_over().is_cancelled());
        drop(second);
        let third = third.await.unwrap().unwrap();
        assert!(!third.taken_over().is_cancelled());
        drop(third);
        assert!(leases.slots.lock().is_empty());
    }
}
