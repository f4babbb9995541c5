//! Argon2id is slow and takes memory on purpose (some 20 ms and 19 MiB). So only a few hashes are
//! computed at a time, on threads of their own. If a client shows its
//! password with each call, the password is not checked each time.

use std::net::IpAddr;
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use moka::sync::Cache;
use volary_flight_proto::seal::Key;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::admission::Admission;

use volary_catalog::access::PrincipalRecord;

use super::hash_threads::HashThreads;

/// Maximum number of passwords that are checked at the same time.
const MAX_CONCURRENT_CHECKS: usize = 2;
/// Maximum number of passwords that wait for their turn. Further ones are refused.
pub(crate) const MAX_WAITING: usize = 256;
/// Maximum number of passwords from one address that wait for their turn. Further ones are refused.
pub(crate) const MAX_WAITING_PER_ADDRESS: usize = 64;
/// Maximum time that a password waits for its turn.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Time for which a password that was right is not checked again.
const VERIFIED_FOR: Duration = Duration::from_secs(5 * 60);
const MAX_VERIFIED: u64 = 10_000;
/// Maximum length of a password in bytes. A longer one is refused before it is hashed.
pub(super) const MAX_BYTES: usize = 1024;
const MIN_CHARS: usize = 8;

/// Hashes and checks passwords.
#[derive(Debug)]
pub struct Passwords {
    threads: HashThreads,
    /// Turns to check passwords. They go to one address after the other, whether or not the users
    /// exist. So somebody who floods a gateway with names learns nothing about the names, and does
    /// not delay clients at other addresses.
    check_turns: Admission,
    /// Turns to hash new passwords.
    hash_turns: Admission,
    max_wait: Duration,
    /// Keyed hashes of pairs of a user and a password that was right.
    verified: Cache<[u8; 32], ()>,
    key: Key,
}

/// Refuses a new password that is too short or too long.
///
/// # Errors
/// `INVALID_ARGUMENT`. The error does not contain the password.
pub(crate) fn check_new_password(password: &str) -> Result<()> {
    if password.chars().count() < MIN_CHARS || password.len() > MAX_BYTES {
        return Err(Error::invalid(format!(
            "a password must have at least {MIN_CHARS} characters and at most {MAX_BYTES} bytes; choose another one"
        )));
    }
    Ok(())
}

impl Passwords {
    /// Knows no password that is right yet.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the system gives no threads.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            threads: HashThreads::new(MAX_CONCURRENT_CHECKS)?,
            check_turns: Admission::new("passwords", MAX_CONCURRENT_CHECKS, MAX_WAITING)
                .with_max_waiting_per_session(MAX_WAITING_PER_ADDRESS),
            hash_turns: Admission::new("new passwords", 1, MAX_WAITING),
            max_wait: MAX_WAIT,
            verified: Cache::builder()
                .max_capacity(MAX_VERIFIED)
                .time_to_live(VERIFIED_FOR)
                .build(),
            key: Key::random(),
        })
    }

    /// Hashes a new password. Returns a PHC string, which shown passwords are checked against.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many passwords wait.
    pub async fn hash(&self, password: &str) -> Result<String> {
        let password = password.to_owned();
        let hashed = self.run_in_turn(&self.hash_turns, None, move || {
            let hash = Argon2::default().hash_password(password.as_bytes());
            hash.map(|hash| hash.to_string())
        });
        hashed
            .await?
            .map_err(|source| Error::internal(format!("a password cannot be hashed: {source}")))
    }

    /// Returns whether the password was checked a short while ago and was right.
    pub(super) fn was_verified(&self, user: &PrincipalRecord, password: &str) -> bool {
        self.verified.contains_key(&self.cache_key(user, password))
    }

    /// Returns whether the password is the user's. `address` is the address of the client that
    /// shows it. The check takes equally long if there is no such user.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many passwords wait.
    pub(super) async fn verify(
        &self,
        user: Option<&PrincipalRecord>,
        password: &str,
        address: Option<IpAddr>,
    ) -> Result<bool> {
        let hash = user.and_then(|user| user.password.clone());
        let shown = password.to_owned();
        let is_right = self.run_in_turn(&self.check_turns, address, move || match hash {
            Some(hash) => PasswordHash::new(&hash).is_ok_and(|hash| {
                Argon2::default()
                    .verify_password(shown.as_bytes(), &hash)
                    .is_ok()
            }),
            None => {
                let _as_long = Argon2::default().hash_password(shown.as_bytes());
                false
            }
        });
        let is_right = is_right.await?;
        if let (Some(user), true) = (user, is_right) {
            self.verified.insert(self.cache_key(user, password), ());
        }
        Ok(is_right)
    }

    fn cache_key(&self, user: &PrincipalRecord, password: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(self.key.as_bytes());
        hasher.update(&user.generation.to_le_bytes());
        hasher.update(&(user.name.len() as u64).to_le_bytes());
        hasher.update(user.name.as_bytes());
        hasher.update(password.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Waits for a turn of this address, and then does `work` on one of the threads.
    async fn run_in_turn<T: Send + 'static>(
        &self,
        turns: &Admission,
        address: Option<IpAddr>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let turn = tokio::time::timeout(self.max_wait, turns.enter_session(&address)).await;
        let turn = turn.ok().and_then(Result::ok).ok_or_else(|| {
            Error::new(
                ErrorCode::ResourceExhausted,
                "too many passwords are being checked; try again in a moment",
            )
        })?;
        // If a client goes away, its turn lasts until the work is done. Otherwise, too many hashes
        // could be waiting for the threads.
        let work = move || {
            let _turn = turn;
            work()
        };
        self.threads.run(work).await
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use volary_catalog::access::PrincipalKind;

    use super::*;

    fn user(password: Option<String>, generation: u64) -> PrincipalRecord {
        PrincipalRecord {
            name: "kea".to_owned(),
            kind: PrincipalKind::User,
            password,
            generation,
            admin: false,
            member_of: Default::default(),
            grants: Default::default(),
            limits: Default::default(),
            created_at_ms: 0,
        }
    }

    #[tokio::test]
    async fn only_the_password_is_right_and_only_until_it_is_changed() {
        let passwords = Passwords::new().unwrap();
        let hash = passwords.hash("correct horse").await.unwrap();
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert_ne!(hash, passwords.hash("correct horse").await.unwrap());
        let kea = user(Some(hash), 1);
        assert!(!passwords.was_verified(&kea, "correct horse"));
        assert!(
            passwords
                .verify(Some(&kea), "correct horse", None)
                .await
                .unwrap()
        );
        assert!(passwords.was_verified(&kea, "correct horse"));
        for wrong in ["", "Correct horse", "correct horse "] {
            assert!(!passwords.verify(Some(&kea), wrong, None).await.unwrap());
            assert!(!passwords.was_verified(&kea, wrong));
        }
        let changed = user(None, 2);
        assert!(!passwords.was_verified(&changed, "correct horse"));
        assert!(!passwords.verify(Some(&changed), "", None).await.unwrap());
        assert!(!passwords.verify(None, "correct horse", None).await.unwrap());
    }

    #[tokio::test]
    async fn a_flood_from_one_address_tells_nothing_of_names_and_delays_nobody_elsewhere() {
        let mut passwords = Passwords::new().unwrap();
        passwords.max_wait = Duration::MAX;
        let kea = user(Some(passwords.hash("correct horse").await.unwrap()), 1);
        let checks = MAX_CONCURRENT_CHECKS + MAX_WAITING_PER_ADDRESS + 4;
        let here = Some(IpAddr::from([127, 0, 0, 1]));
        let flood = join_all((0..checks).map(|check| {
            let user = (check % 2 == 0).then_some(&kea);
            passwords.verify(user, "guessed", here)
        }));
        let elsewhere = Some(IpAddr::from([127, 0, 0, 2]));
        let other = passwords.verify(Some(&kea), "correct horse", elsewhere);
        let (flood, other) = tokio::join!(flood, other);
        assert!(other.unwrap());
        let (let_in, refused) = flood.split_at(checks - 4);
        assert!(let_in.iter().all(|checked| matches!(checked, Ok(false))));
        for refused in refused {
            let error = refused.as_ref().unwrap_err();
            assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        }
    }

    #[tokio::test]
    async fn a_password_does_not_wait_for_ever() {
        let mut passwords = Passwords::new().unwrap();
        passwords.max_wait = Duration::from_millis(1);
        let turns = (0..MAX_CONCURRENT_CHECKS).map(|_| passwords.check_turns.enter_session(&""));
        let _all_turns = join_all(turns).await;
        let error = passwords.verify(None, "guessed", None).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
    }

    #[test]
    fn short_and_endless_passwords_are_not_set() {
        check_new_password("12345678").unwrap();
        for refused in ["", "1234567", &"x".repeat(MAX_BYTES + 1)] {
            let error = check_new_password(refused).unwrap_err();
            assert!(error.message().contains("at least 8"), "{error}");
        }
    }
}
