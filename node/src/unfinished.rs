//! Memory of messages of which a part has come.
//!
//! A message is of use to nobody before it is whole, and whoever sends it decides when that is. So these messages have a budget of
//! their own, and each sender has a share of it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volary_flight_proto::{Error, ErrorCode, Result};

/// What all who are not known may hold, of one address, in bytes.
pub const MOST_OF_STRANGERS: usize = 64 << 10;
/// When a sender is told to try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Who sends a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A node of the cluster. What it sends is bounded by the windows of its streams.
    Node,
    /// A user, by its name.
    User(Arc<str>),
    /// Nobody knows who, from this address.
    Stranger(Option<IpAddr>),
}

impl Sender {
    /// One of whom only its address is known.
    pub fn stranger(peer: Option<SocketAddr>) -> Self {
        Self::Stranger(peer.map(|peer| peer.ip().to_canonical()))
    }
}

/// The budget of a node. Clones share it.
#[derive(Debug, Clone)]
pub struct Unfinished(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most_bytes: usize,
    /// What a sender that is refused can do.
    advice: &'static str,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    by_sender: HashMap<Sender, usize>,
}

impl Unfinished {
    /// All senders together hold at most `most_bytes`, and one user half of it. `advice` tells one that is refused what to do.
    pub fn new(most_bytes: usize, advice: &'static str) -> Self {
        Self(Arc::new(Shared {
            most_bytes,
            advice,
            held: Mutex::default(),
        }))
    }

    /// A share of a sender's that holds nothing yet.
    pub(crate) fn share(&self, sender: Sender) -> Share {
        Share {
            budget: self.clone(),
            sender,
            bytes: 0,
        }
    }

    /// What one user may hold, in bytes.
    pub fn most_of_user(&self) -> usize {
        self.0.most_bytes / 2
    }

    fn most_of(&self, sender: &Sender) -> usize {
        match sender {
            Sender::Node => usize::MAX,
            Sender::User(_) => self.most_of_user(),
            Sender::Stranger(_) => MOST_OF_STRANGERS,
        }
    }

    fn take(&self, sender: &Sender, bytes: usize) -> Result<()> {
        let mut held = self.0.held.lock();
        let of_sender = held.by_sender.get(sender).copied().unwrap_or_default();
        let most = self.most_of(sender);
        if of_sender.saturating_add(bytes) > most {
            return Err(self.refusal(&format!(
                "messages of this sender that are not whole yet take {of_sender} bytes, and may take {most}"
            )));
        }
        if held.bytes.saturating_add(bytes) > self.0.most_bytes {
            return Err(self.refusal(&format!(
                "messages that are not whole yet take {} bytes, and may take {}",
                held.bytes, self.0.most_bytes
            )));
        }
        held.bytes += bytes;
        *held.by_sender.entry(sender.clone()).or_default() += bytes;
        Ok(())
    }

    fn refusal(&self, what: &str) -> Error {
        let text = format!("{what}; {}", self.0.advice);
        Error::new(ErrorCode::ResourceExhausted, text).with_retry_after(RETRY_AFTER)
    }

    fn give_back(&self, sender: &Sender, bytes: usize) {
        let mut held = self.0.held.lock();
        held.bytes -= bytes;
        if let Some(of_sender) = held.by_sender.get_mut(sender) {
            *of_sender -= bytes;
            if *of_sender == 0 {
                held.by_sender.remove(sender);
            }
        }
    }

    /// What all of them hold now.
    pub fn bytes(&self) -> usize {
        self.0.held.lock().bytes
    }
}

/// What one call's message holds of the budget. Dropping it gives that back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Unfinished,
    sender: Sender,
    bytes: usize,
}

impl Share {
    /// Holds so many bytes more.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the sender's share, or the budget, has no such room.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        if self.sender == Sender::Node || bytes == 0 {
            return Ok(());
        }
        self.budget.take(&self.sender, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Holds so many bytes less.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.budget.give_back(&self.sender, bytes);
            self.bytes -= bytes;
        }
    }

    /// Holds nothing any more.
    pub(crate) fn clear(&mut self) {
        self.shrink(self.bytes);
    }

    /// Holds as much for another sender, as which the same one has turned out.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if that one's share has no such room.
    pub(crate) fn turn_to(&mut self, sender: Sender) -> Result<()> {
        let bytes = self.bytes;
        self.clear();
        self.sender = sender;
        self.grow(bytes)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Sender {
        Sender::User(name.into())
    }

    #[test]
    fn each_sender_has_a_share_and_all_have_the_budget() {
        let budget = Unfinished::new(100, "send less");
        let mut kea = budget.share(user("kea"));
        kea.grow(30).unwrap();
        let mut keas_second = budget.share(user("kea"));
        let error = keas_second.grow(21).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(
            error.message().contains("take 30 bytes, and may take 50"),
            "{error}"
        );
        keas_second.grow(20).unwrap();
        let mut auk = budget.share(user("auk"));
        auk.grow(50).unwrap();
        let error = budget.share(user("owl")).grow(1).unwrap_err();
        assert!(
            error.message().contains("may take 100; send less"),
            "{error}"
        );
        // Nodes are known by the cluster's key.
        budget.share(Sender::Node).grow(1 << 40).unwrap();
        drop(kea);
        auk.clear();
        assert_eq!(budget.bytes(), 20);
        drop(keas_second);
        assert_eq!(budget.bytes(), 0);
        assert!(budget.0.held.lock().by_sender.is_empty());
    }

    #[test]
    fn strangers_hold_little_until_they_are_known() {
        let budget = Unfinished::new(1 << 30, "send less");
        let mut share = budget.share(Sender::stranger(None));
        share.grow(MOST_OF_STRANGERS).unwrap();
        let mut of_same_address = budget.share(Sender::stranger(None));
        of_same_address.grow(1).unwrap_err();
        share.turn_to(user("kea")).unwrap();
        share.grow(1 << 20).unwrap();
        of_same_address.grow(1).unwrap();
    }
}
