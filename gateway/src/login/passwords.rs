//! Passwords: their hashes, and those that were right a moment ago.
//!
//! Argon2id is slow and takes memory on purpose (some 20 ms and 19 MiB). So only few are computed at a time, away from the threads that serve
//! connections, and a client that shows its password with each call is not checked each time.

use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use moka::sync::Cache;
use std::sync::Arc;
use tokio::sync::Semaphore;
use volary_flight_proto::seal::Key;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::catalog::access::PrincipalRecord;

/// Hashes that are computed at the same time.
const AT_A_TIME: usize = 2;
/// Those that may wait for their turn; one more is refused.
const MOST_WAITING: usize = 256;
const MOST_STRANGERS: usize = 16;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// A password that was right is not checked again for so long.
const RIGHT_FOR: Duration = Duration::from_secs(5 * 60);
const MOST_RIGHT: u64 = 10_000;
/// Longer ones are refused before they are hashed.
pub(super) const MAX_BYTES: usize = 1024;
const MIN_CHARS: usize = 8;

/// Checks passwords.
#[derive(Debug)]
pub struct Passwords {
    of_users: Turns,
    /// Of names that are no user's: whoever makes them up keeps no user waiting.
    of_strangers: Turns,
    /// Those that are set.
    new: Turns,
    /// Users with passwords that were right, as keyed hashes.
    right: Cache<[u8; 32], ()>,
    key: Key,
}

/// Refuses what is no password to be set.
///
/// # Errors
/// `INVALID_ARGUMENT`, without the password.
pub fn check_new_password(password: &str) -> Result<()> {
    if password.chars().count() < MIN_CHARS || password.len() > MAX_BYTES {
        return Err(Error::invalid(format!(
            "a password has at least {MIN_CHARS} characters and at most {MAX_BYTES} bytes; choose another one"
        )));
    }
    Ok(())
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            of_users: Turns::new(AT_A_TIME, MOST_WAITING),
            of_strangers: Turns::new(1, MOST_STRANGERS),
            new: Turns::new(1, MOST_WAITING),
            right: Cache::builder()
                .max_capacity(MOST_RIGHT)
                .time_to_live(RIGHT_FOR)
                .build(),
            key: Key::random(),
        }
    }
}

impl Passwords {
    /// What a password is checked against from now on: a PHC string.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait.
    pub async fn hash(&self, password: &str) -> Result<String> {
        let password = password.to_owned();
        let hashed = self.new.take(move || {
            let hash = Argon2::default().hash_password(password.as_bytes());
            hash.map(|hash| hash.to_string())
        });
        hashed
            .await?
            .map_err(|source| Error::internal(format!("a password cannot be hashed: {source}")))
    }

    /// Whether the password was the user's when it was last checked, a short while ago.
    pub(super) fn was_right(&self, user: &PrincipalRecord, password: &str) -> bool {
        self.right.contains_key(&self.seen(user, password))
    }

    /// Whether it is the user's. It takes as long if there is no such user.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait.
    pub(super) async fn verify(
        &self,
        user: Option<&PrincipalRecord>,
        password: &str,
    ) -> Result<bool> {
        let hash = user.and_then(|user| user.password.clone());
        let shown = password.to_owned();
        let turns = if hash.is_some() {
            &self.of_users
        } else {
            &self.of_strangers
        };
        let is_right = turns.take(move || match hash {
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
            self.right.insert(self.seen(user, password), ());
        }
        Ok(is_right)
    }

    fn seen(&self, user: &PrincipalRecord, password: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(self.key.as_bytes());
        hasher.update(&user.generation.to_le_bytes());
        hasher.update(&(user.name.len() as u64).to_le_bytes());
        hasher.update(user.name.as_bytes());
        hasher.update(password.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// How many hashes of a kind are computed at a time, and wait.
#[derive(Debug)]
struct Turns {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Turns {
    fn new(running: usize, waiting: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(running)),
            waiting: Semaphore::new(waiting),
        }
    }

    async fn take<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let too_many = || {
            Error::new(
                ErrorCode::ResourceExhausted,
                "too many passwords are being checked; try again in a moment",
            )
        };
        let turn = {
            let _waiting = self.waiting.try_acquire().map_err(|_| too_many())?;
            let turn = Arc::clone(&self.running).acquire_owned();
            let turn = tokio::time::timeout(PATIENCE, turn).await;
            turn.ok()
                .and_then(std::result::Result::ok)
                .ok_or_else(too_many)?
        };
        // A client that goes away does not make room for another one before the work is done.
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|source| {
            Error::with_source(
                ErrorCode::Internal,
                "a password could not be checked",
                source,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::access::PrincipalKind;

    fn user(password: Option<String>, generation: u64) -> PrincipalRecord {
        PrincipalRecord {
            name: "kea".to_owned(),
            kind: PrincipalKind::User,
            password,
            generation,
            admin: false,
            member_of: Default::default(),
            grants: Default::default(),
            created_at_ms: 0,
        }
    }

    #[tokio::test]
    async fn only_the_password_is_right_and_only_until_it_is_changed() {
        let passwords = Passwords::default();
        let hash = passwords.hash("correct horse").await.unwrap();
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert_ne!(hash, passwords.hash("correct horse").await.unwrap());
        let kea = user(Some(hash), 1);
        assert!(!passwords.was_right(&kea, "correct horse"));
        assert!(passwords.verify(Some(&kea), "correct horse").await.unwrap());
        assert!(passwords.was_right(&kea, "correct horse"));
        for wrong in ["", "Correct horse", "correct horse "] {
            assert!(!passwords.verify(Some(&kea), wrong).await.unwrap());
            assert!(!passwords.was_right(&kea, wrong));
        }
        let changed = user(None, 2);
        assert!(!passwords.was_right(&changed, "correct horse"));
        assert!(!passwords.verify(Some(&changed), "").await.unwrap());
        assert!(!passwords.verify(None, "correct horse").await.unwrap());
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
