//! Bearer tokens are sealed, so that every gateway accepts them and no gateway has to remember
//! them. They are sealed with a key that only gateways have. Workers know the cluster's secret: if
//! tokens were sealed with it, a worker could make a token for any user.

use std::time::Duration;

use volary_flight_proto::seal::{Key, Purpose, Sealer, now_s};
use volary_flight_proto::session::SessionClaims;
use volary_flight_proto::{Error, ErrorCode, Result};

const PREFIX: &str = "volary-bearer-";

/// Makes and reads bearer tokens.
#[derive(Debug)]
pub(super) struct BearerTokens {
    sealer: Sealer,
    lifetime: Duration,
}

/// Content of a bearer token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) user: String,
    pub(super) generation: u64,
    pub(super) session: String,
    /// Says whether half of the token's lifetime is over. The client is then sent a new token.
    pub(super) is_renewal_due: bool,
}

impl BearerTokens {
    pub(super) fn new(key: Key, lifetime: Duration) -> Self {
        Self {
            sealer: Sealer::new(key),
            lifetime,
        }
    }

    /// Returns whether the text has the form of a bearer token, of this cluster or of another one.
    pub(super) fn is_bearer_token(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    pub(super) fn seal(&self, user: &str, generation: u64, session: &str) -> String {
        let claims = SessionClaims {
            user: user.to_owned(),
            generation,
            session: session.to_owned(),
            issued_at_s: now_s(),
        };
        let sealed = self.sealer.seal(Purpose::Session, &claims, self.lifetime);
        format!("{PREFIX}{}", hex::encode(sealed))
    }

    /// Returns whether the second token is valid and continues the session of the first one. The
    /// first token may have expired.
    pub(super) fn is_continued_by(&self, first: &str, second: &str) -> bool {
        let first = unpack(first).and_then(|sealed| {
            let sealer = &self.sealer;
            sealer.open_expired::<SessionClaims>(Purpose::Session, &sealed)
        });
        match (first, self.open(second)) {
            (Ok(first), Ok(second)) => first.user == second.user && first.session == second.session,
            _ => false,
        }
    }

    /// Returns whether the token was valid once and has expired.
    pub(super) fn has_expired(&self, text: &str) -> bool {
        let opened = unpack(text)
            .and_then(|sealed| self.sealer.open::<SessionClaims>(Purpose::Session, &sealed));
        opened.is_err_and(|error| error.code() == ErrorCode::DeadlineExceeded)
    }

    /// Returns the content of a valid token.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for a token that is not of this cluster, that was altered, or that has
    /// expired.
    pub(super) fn open(&self, text: &str) -> Result<Claims> {
        let opened = unpack(text)
            .and_then(|sealed| self.sealer.open::<SessionClaims>(Purpose::Session, &sealed));
        let claims = opened.map_err(|error| {
            let what = if error.code() == ErrorCode::DeadlineExceeded {
                "the session's token has expired; log in again"
            } else {
                "the session's token was not issued by this cluster, or was altered; log in again"
            };
            Error::new(ErrorCode::Unauthenticated, what)
        })?;
        let age = now_s().saturating_sub(claims.issued_at_s);
        Ok(Claims {
            user: claims.user,
            generation: claims.generation,
            session: claims.session,
            is_renewal_due: age > self.lifetime.as_secs() / 2,
        })
    }
}

/// Returns the sealed message in a token.
fn unpack(text: &str) -> Result<Vec<u8>> {
    let sealed = text
        .strip_prefix(PREFIX)
        .and_then(|text| hex::decode(text).ok());
    sealed.ok_or_else(|| Error::invalid("the session's token is truncated; log in again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearers(seconds: u64) -> BearerTokens {
        BearerTokens::new(Key::from_secret("gateways"), Duration::from_secs(seconds))
    }

    #[test]
    fn a_token_is_read_by_every_gateway_and_by_nobody_else() {
        let token = bearers(60).seal("kea", 3, "a session");
        assert!(BearerTokens::is_bearer_token(&token));
        let claims = Claims {
            user: "kea".to_owned(),
            generation: 3,
            session: "a session".to_owned(),
            is_renewal_due: false,
        };
        assert_eq!(bearers(60).open(&token).unwrap(), claims);
        let stranger = BearerTokens::new(Key::from_secret("workers"), Duration::from_secs(60));
        assert_eq!(
            stranger.open(&token).unwrap_err().code(),
            ErrorCode::Unauthenticated
        );
    }

    #[test]
    fn what_was_altered_or_cut_is_refused_as_credentials_are() {
        let token = bearers(60).seal("kea", 3, "a session");
        let sealed = hex::decode(token.strip_prefix(PREFIX).unwrap()).unwrap();
        let altered = (0..sealed.len() * 8).map(|bit| {
            let mut altered = sealed.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            format!("{PREFIX}{}", hex::encode(altered))
        });
        let cut = (0..token.len()).map(|length| token[..length].to_owned());
        for text in altered.chain(cut) {
            let error = bearers(60).open(&text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unauthenticated, "{text}");
            assert!(error.message().contains("log in again"), "{error}");
        }
    }

    #[test]
    fn a_session_is_continued_by_its_own_newer_token_alone() {
        let bearers = bearers(60);
        let of = |user: &str, session: &str| bearers.seal(user, 0, session);
        let claims = SessionClaims {
            user: "kea".to_owned(),
            generation: 0,
            session: "s".to_owned(),
            issued_at_s: 0,
        };
        let sealed = bearers
            .sealer
            .seal(Purpose::Session, &claims, Duration::ZERO);
        let expired = format!("{PREFIX}{}", hex::encode(sealed));
        assert!(bearers.is_continued_by(&expired, &of("kea", "s")));
        assert!(bearers.is_continued_by(&of("kea", "s"), &of("kea", "s")));
        for other in [of("kea", "t"), of("kaka", "s"), "x".to_owned()] {
            assert!(!bearers.has_expired(&other), "{other}");
            assert!(!bearers.is_continued_by(&expired, &other), "{other}");
        }
        let stranger = BearerTokens::new(Key::from_secret("workers"), Duration::from_secs(60));
        assert!(!stranger.is_continued_by(&expired, &of("kea", "s")));
        assert!(!stranger.has_expired(&expired));
    }

    #[test]
    fn a_token_is_due_before_it_expires() {
        let old = SessionClaims {
            user: "kea".to_owned(),
            generation: 0,
            session: String::new(),
            issued_at_s: now_s() - 31,
        };
        let bearers = bearers(60);
        let sealed = bearers
            .sealer
            .seal(Purpose::Session, &old, Duration::from_secs(29));
        let token = format!("{PREFIX}{}", hex::encode(sealed));
        assert!(bearers.open(&token).unwrap().is_renewal_due);
    }
}
