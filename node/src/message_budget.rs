//! A message is useful to nobody before it is complete, and its sender decides when that happens.
//! So incomplete messages have a budget of their own, and each sender has a share of it.
//!
//! A sender that is not identified yet is a stranger. Strangers have a budget separate from that of
//! users, which also covers the headers of their calls. So a flood of calls from strangers takes
//! nothing from known users, and users who fill their budget keep nobody from logging in.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volary_flight_proto::{Error, ErrorCode, Result};

/// The most bytes that all strangers of one address may hold: their messages, and the headers of
/// their unidentified calls. The headers of a call to a worker take about 1 KiB until a gateway has
/// said who calls, which takes milliseconds. So 250 clients behind one address may call at the same
/// moment. A limit of 64 KiB would allow one address only four large tickets at a time.
pub const MAX_STRANGERS_BYTES: usize = 256 << 10;
/// The strangers' budget is the users' budget divided by this number.
const STRANGERS_PART: usize = 8;
/// Time after which a refused sender is told to try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The sender of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A node of the cluster. The windows of its streams limit what it sends.
    Node,
    /// A user, by name.
    User(Arc<str>),
    /// A sender that is not identified yet, by its address.
    Stranger(Option<IpAddr>),
}

impl Sender {
    /// Creates a sender of which only the address is known.
    pub fn stranger(peer: Option<SocketAddr>) -> Self {
        Self::Stranger(peer.map(|peer| peer.ip().to_canonical()))
    }

    /// Returns whether the sender is not identified yet.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(self, Self::Stranger(_))
    }
}

/// The budget of a node for incomplete messages. Clones share it.
#[derive(Debug, Clone)]
pub struct MessageBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max_bytes: usize,
    /// Text that tells a refused sender what to do.
    advice: &'static str,
    held_bytes: Mutex<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    users: usize,
    strangers: usize,
    by_sender: HashMap<Sender, usize>,
}

impl HeldBytes {
    /// Returns the bytes that all senders of this sender's kind (users or strangers) hold.
    fn total_for(&mut self, sender: &Sender) -> &mut usize {
        if sender.is_stranger() {
            &mut self.strangers
        } else {
            &mut self.users
        }
    }
}

impl MessageBudget {
    /// Creates a budget. All users together hold at most `most_bytes`, and one user at most half of
    /// it. `advice` tells a refused sender what to do.
    pub fn new(most_bytes: usize, advice: &'static str) -> Self {
        Self(Arc::new(Shared {
            max_bytes: most_bytes,
            advice,
            held_bytes: Mutex::default(),
        }))
    }

    /// Returns an empty share of the budget for the sender.
    pub(crate) fn share(&self, sender: Sender) -> BudgetShare {
        BudgetShare {
            budget: self.clone(),
            sender,
            bytes: 0,
        }
    }

    /// Returns the most bytes that one user may hold.
    pub fn max_of_user(&self) -> usize {
        self.0.max_bytes / 2
    }

    fn max_of_sender(&self, sender: &Sender) -> usize {
        match sender {
            Sender::Node => usize::MAX,
            Sender::User(_) => self.max_of_user(),
            Sender::Stranger(_) => MAX_STRANGERS_BYTES,
        }
    }

    /// Returns the most bytes that all senders of this sender's kind may hold.
    fn max_of_kind(&self, sender: &Sender) -> usize {
        if sender.is_stranger() {
            // The budget is never smaller than the share of one address.
            (self.0.max_bytes / STRANGERS_PART).max(MAX_STRANGERS_BYTES)
        } else {
            self.0.max_bytes
        }
    }

    fn take(&self, sender: &Sender, bytes: usize) -> Result<()> {
        let (of_one, of_all) = if sender.is_stranger() {
            (
                "calls of unidentified clients from this address",
                "calls of unidentified clients",
            )
        } else {
            ("incomplete messages of this sender", "incomplete messages")
        };
        let mut held = self.0.held_bytes.lock();
        let of_sender = held.by_sender.get(sender).copied().unwrap_or_default();
        self.check(of_one, of_sender, bytes, self.max_of_sender(sender))?;
        let of_kind = held.total_for(sender);
        self.check(of_all, *of_kind, bytes, self.max_of_kind(sender))?;
        *of_kind += bytes;
        *held.by_sender.entry(sender.clone()).or_default() += bytes;
        Ok(())
    }

    /// Refuses `more` bytes if they do not fit beside the `held` bytes. In the error, `what` names
    /// what takes the held bytes.
    fn check(&self, what: &str, held: usize, more: usize, most: usize) -> Result<()> {
        if held.saturating_add(more) <= most {
            return Ok(());
        }
        let text = format!(
            "{what} take {held} bytes, and may take {most}; {}",
            self.0.advice
        );
        Err(Error::new(ErrorCode::ResourceExhausted, text).with_retry_after(RETRY_AFTER))
    }

    fn give_back(&self, sender: &Sender, bytes: usize) {
        let mut held = self.0.held_bytes.lock();
        *held.total_for(sender) -= bytes;
        if let Some(of_sender) = held.by_sender.get_mut(sender) {
            *of_sender -= bytes;
            if *of_sender == 0 {
                held.by_sender.remove(sender);
            }
        }
    }

    /// Returns the bytes that all senders hold now.
    pub fn bytes(&self) -> usize {
        let held = self.0.held_bytes.lock();
        held.users + held.strangers
    }
}

/// The bytes of the budget that one call holds, for its message or for its headers. Dropping it
/// returns them.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: MessageBudget,
    sender: Sender,
    bytes: usize,
}

impl BudgetShare {
    /// Takes this many more bytes from the budget.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the sender's share or the budget has no room for them.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        if self.sender == Sender::Node || bytes == 0 {
            return Ok(());
        }
        self.budget.take(&self.sender, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns this many bytes to the budget.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.budget.give_back(&self.sender, bytes);
            self.bytes -= bytes;
        }
    }

    /// Returns all bytes to the budget.
    pub(crate) fn clear(&mut self) {
        self.shrink(self.bytes);
    }

    /// Charges the bytes to another sender, because the stranger has been identified.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if that sender's share has no room for them.
    pub(crate) fn charge_to(&mut self, sender: Sender) -> Result<()> {
        let bytes = self.bytes;
        self.clear();
        self.sender = sender;
        self.grow(bytes)
    }
}

impl Drop for BudgetShare {
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
        let budget = MessageBudget::new(100, "send less");
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
        // The cluster's key limits who can be a node, so nodes have no limit.
        budget.share(Sender::Node).grow(1 << 40).unwrap();
        drop(kea);
        auk.clear();
        assert_eq!(budget.bytes(), 20);
        drop(keas_second);
        assert_eq!(budget.bytes(), 0);
        assert!(budget.0.held_bytes.lock().by_sender.is_empty());
    }

    #[test]
    fn strangers_hold_little_until_they_are_known() {
        let budget = MessageBudget::new(1 << 30, "send less");
        let mut share = budget.share(Sender::stranger(None));
        share.grow(MAX_STRANGERS_BYTES).unwrap();
        let mut of_same_address = budget.share(Sender::stranger(None));
        of_same_address.grow(1).unwrap_err();
        share.charge_to(user("kea")).unwrap();
        share.grow(1 << 20).unwrap();
        of_same_address.grow(1).unwrap();
    }

    #[test]
    fn users_and_strangers_take_nothing_from_each_other() {
        let budget = MessageBudget::new(2 * STRANGERS_PART * MAX_STRANGERS_BYTES, "send less");
        let from = |last: u8| Sender::Stranger(Some(IpAddr::from([127, 0, 0, last])));
        let mut users: Vec<_> = ["kea", "auk"].map(|name| budget.share(user(name))).into();
        for share in &mut users {
            share.grow(budget.max_of_user()).unwrap();
        }
        budget.share(user("owl")).grow(1).unwrap_err();
        let mut strangers: Vec<_> = [1, 2].map(|last| budget.share(from(last))).into();
        for share in &mut strangers {
            share.grow(MAX_STRANGERS_BYTES).unwrap();
        }
        let error = budget.share(from(3)).grow(1).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        users.clear();
        budget.share(from(3)).grow(1).unwrap_err();
        strangers.clear();
        budget.share(from(3)).grow(1).unwrap();
        assert_eq!(budget.bytes(), 0);
    }
}
