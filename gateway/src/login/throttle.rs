//! The first few logins of one user from one address may fail. After that, each failure doubles the
//! wait before the next attempt, up to a minute.
//!
//! Somebody who guesses from another address does not keep the user out. Behind a proxy, where all
//! clients have one address, only the user whose password is guessed has to wait.
//! [`Passwords`](super::Passwords) limits how many passwords are checked in total.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use moka::ops::compute::Op;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

/// Number of logins that may fail before there is a wait.
pub(crate) const FAILURES_BEFORE_WAIT: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Time after the last attempt until the failures of a user from an address are forgotten.
const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);
/// Maximum number of pairs of user and address whose failures are remembered.
pub(crate) const MAX_REMEMBERED: u64 = 100_000;
/// Number of leading bits that make up the network of an IPv6 address. Whoever has one address of a
/// network has all of them.
const NETWORK_BITS: u32 = 64;

/// The user of a login attempt, and the address that it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    user: String,
    address: Option<IpAddr>,
}

impl Origin {
    pub(super) fn new(user: &str, peer: Option<SocketAddr>) -> Self {
        Self {
            user: user.to_owned(),
            address: peer.map(|peer| network(peer.ip().to_canonical())),
        }
    }

    /// Returns the address of an IPv4 client, or the network of an IPv6 client.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let bits = address.to_bits() & (u128::MAX << (128 - NETWORK_BITS));
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Attempts {
    count: u32,
    last: Instant,
}

impl Attempts {
    fn wait(self) -> Duration {
        match self.count.checked_sub(FAILURES_BEFORE_WAIT) {
            None => Duration::ZERO,
            Some(excess) => FIRST_WAIT
                .saturating_mul(2_u32.saturating_pow(excess))
                .min(LONGEST_WAIT),
        }
    }

    fn incremented(self) -> Self {
        Self {
            count: self.count.saturating_add(1),
            last: Instant::now(),
        }
    }

    fn remaining_wait(self) -> Duration {
        self.wait().saturating_sub(self.last.elapsed())
    }
}

/// Logins that have failed or are being attempted, counted for each origin.
#[derive(Debug)]
pub(super) struct Throttle(Cache<Origin, Attempts>);

impl Default for Throttle {
    fn default() -> Self {
        let attempts = Cache::builder()
            .max_capacity(MAX_REMEMBERED)
            // The default policy keeps entries that are used often, and would not admit new ones.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(REMEMBERED_FOR);
        Self(attempts.build())
    }
}

impl Throttle {
    /// Begins an attempt, or refuses it if the origin has to wait. The first attempt after a wait
    /// counts as failed before it is made. Otherwise, many attempts at a time would get around the
    /// wait.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`. The error says how long to wait.
    pub(super) fn begin_attempt(&self, origin: &Origin) -> Result<()> {
        let mut refused = None;
        self.0.entry_by_ref(origin).and_compute_with(|former| {
            match former.map(moka::Entry::into_value) {
                Some(former) if !former.remaining_wait().is_zero() => {
                    refused = Some(former);
                    Op::Nop
                }
                Some(former) if former.count >= FAILURES_BEFORE_WAIT => {
                    Op::Put(former.incremented())
                }
                Some(_) | None => Op::Nop,
            }
        });
        let Some(refused) = refused else {
            return Ok(());
        };
        Err(Error::new(
            ErrorCode::Unauthenticated,
            format!(
                "{} logins of this user from this address have failed; try again in {} s",
                refused.count,
                refused.remaining_wait().as_secs() + 1
            ),
        )
        .with_sqlstate(SqlState::InvalidPassword))
    }

    /// Notes that an attempt has failed.
    pub(super) fn note_failure(&self, origin: &Origin) {
        self.0.entry_by_ref(origin).and_compute_with(|former| {
            let none = Attempts {
                count: 0,
                last: Instant::now(),
            };
            match former.map_or(none, moka::Entry::into_value) {
                // The attempt was counted before it was made.
                former if former.count > FAILURES_BEFORE_WAIT => Op::Nop,
                former => Op::Put(former.incremented()),
            }
        });
    }

    /// Takes back an attempt in which no password was checked.
    pub(super) fn withdraw_attempt(&self, origin: &Origin) {
        self.0.entry_by_ref(origin).and_compute_with(|former| {
            match former.map(moka::Entry::into_value) {
                Some(former) if former.count > FAILURES_BEFORE_WAIT => {
                    let before = Attempts {
                        count: former.count - 1,
                        ..former
                    };
                    // The wait that the attempt had to respect is over.
                    let last = former.last.checked_sub(before.wait());
                    Op::Put(Attempts {
                        last: last.unwrap_or(former.last),
                        ..before
                    })
                }
                Some(_) | None => Op::Nop,
            }
        });
    }

    pub(super) fn note_success(&self, origin: &Origin) {
        self.0.invalidate(origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(address.parse().unwrap(), 7000))
    }

    #[test]
    fn an_attempt_without_a_check_is_none() {
        let throttle = Throttle::default();
        let here = Origin::new("kea", peer("10.0.0.1"));
        throttle.begin_attempt(&here).unwrap();
        throttle.withdraw_attempt(&here);
        let over = Attempts {
            count: FAILURES_BEFORE_WAIT,
            last: Instant::now().checked_sub(FIRST_WAIT).unwrap(),
        };
        throttle.0.insert(here.clone(), over);
        for _ in 0..3 {
            throttle.begin_attempt(&here).unwrap();
            assert!(throttle.begin_attempt(&here).is_err());
            throttle.withdraw_attempt(&here);
        }
        let kept = throttle.0.get(&here).unwrap();
        assert_eq!(kept.count, FAILURES_BEFORE_WAIT);
    }

    #[test]
    fn after_a_few_failures_one_waits_longer_and_longer() {
        let throttle = Throttle::default();
        let here = Origin::new("kea", peer("10.0.0.1"));
        // All connections of a pool may log in at once.
        for _ in 0..100 {
            throttle.begin_attempt(&here).unwrap();
        }
        for _ in 0..FAILURES_BEFORE_WAIT {
            throttle.begin_attempt(&here).unwrap();
            throttle.note_failure(&here);
        }
        for _ in 0..2 {
            let error = throttle.begin_attempt(&here).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unauthenticated);
            assert!(error.message().contains("5 logins"), "{error}");
        }
        for other in [
            Origin::new("kea", None),
            Origin::new("kea", peer("10.0.0.2")),
            Origin::new("auk", peer("10.0.0.1")),
        ] {
            throttle.begin_attempt(&other).unwrap();
        }
        throttle.note_success(&here);
        throttle.begin_attempt(&here).unwrap();

        let waits = [4, 5, 6, 7, 12, 1000].map(|count| {
            let last = Instant::now();
            Attempts { count, last }.wait().as_secs()
        });
        assert_eq!(waits, [0, 1, 2, 4, 60, 60]);
    }

    #[test]
    fn the_addresses_of_one_network_are_one() {
        let origin = |address| Origin::new("kea", peer(address));
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
    }
}
