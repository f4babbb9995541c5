//! The sessions of clients, by the token that the handshake gave out.
//!
//! A session is kept for tokens of this gateway alone. An API key may be shared by many connections, so it names no
//! session; and a client without a token gets one only when it changes a setting (drivers take over a token that any
//! response carries).

use std::collections::HashMap;
use std::sync::Arc;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use uuid::Uuid;

use super::auth::Credentials;
use super::types::Profile;
use crate::engine::Session;

const TOKEN_PREFIX: &str = "volary-session-";

/// A client's session.
#[derive(Debug, Clone)]
pub(super) struct ClientSession {
    /// The engine's part of it.
    pub(super) engine: Session,
    /// The session option `volary-types`.
    types: Arc<Mutex<Option<Profile>>>,
}

impl ClientSession {
    /// A new one with the engine's settings that are not the default.
    pub(super) fn new(settings: HashMap<String, String>) -> Self {
        Self {
            engine: Session::new(settings),
            types: Arc::default(),
        }
    }

    /// The types that the session asks for; `None` for the default.
    pub(super) fn profile(&self) -> Option<Profile> {
        *self.types.lock()
    }

    /// Sets or unsets them.
    pub(super) fn set_profile(&self, profile: Option<Profile>) {
        *self.types.lock() = profile;
    }

    fn is_default(&self) -> bool {
        self.profile().is_none() && self.engine.settings().is_empty()
    }
}

/// The sessions that are kept.
#[derive(Debug)]
pub(super) struct Sessions {
    by_token: Cache<String, ClientSession>,
}

impl Sessions {
    /// Keeps so many; the one that was not used for the longest time is forgotten first.
    pub(super) fn new(max_sessions: u64) -> Self {
        Self {
            by_token: Cache::builder()
                .max_capacity(max_sessions)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }

    /// Opens a session and gives its token.
    pub(super) fn open(&self) -> String {
        self.keep(ClientSession::new(HashMap::new()))
    }

    /// The session of a call; a new default one where the credentials name none. A token of a session that was forgotten, or
    /// that another gateway opened, names a new one.
    pub(super) fn of(&self, credentials: &Credentials) -> ClientSession {
        let new = || ClientSession::new(HashMap::new());
        match credentials {
            Credentials::Bearer(token) if is_session_token(token) => {
                self.by_token.get_with_by_ref(token.as_str(), new)
            }
            Credentials::Bearer(_) | Credentials::Basic { .. } | Credentials::None => new(),
        }
    }

    /// Keeps the session of a call without credentials if the call has changed it, and gives the token that the client must be
    /// told.
    pub(super) fn keep_if_changed(
        &self,
        credentials: &Credentials,
        session: &ClientSession,
    ) -> Option<String> {
        (*credentials == Credentials::None && !session.is_default())
            .then(|| self.keep(session.clone()))
    }

    /// Forgets the session.
    pub(super) fn close(&self, credentials: &Credentials) {
        if let Credentials::Bearer(token) = credentials {
            self.by_token.invalidate(token);
        }
    }

    fn keep(&self, session: ClientSession) -> String {
        // Not the session's id: ids stand in logs.
        let token = format!("{TOKEN_PREFIX}{}", Uuid::new_v4().simple());
        self.by_token.insert(token.clone(), session);
        token
    }
}

/// Whether a gateway of Volary gave out the token.
fn is_session_token(token: &str) -> bool {
    token
        .strip_prefix(TOKEN_PREFIX)
        .is_some_and(|id| Uuid::try_parse(id).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(token: &str) -> Credentials {
        Credentials::Bearer(token.to_owned())
    }

    #[test]
    fn a_token_names_the_same_session_until_it_is_closed() {
        let sessions = Sessions::new(10);
        let credentials = bearer(&sessions.open());
        let id = sessions.of(&credentials).engine.id();
        assert_eq!(sessions.of(&credentials).engine.id(), id);
        sessions.close(&credentials);
        assert_ne!(sessions.of(&credentials).engine.id(), id);
    }

    #[test]
    fn an_api_key_names_no_session() {
        let sessions = Sessions::new(10);
        let key = bearer("key");
        assert_ne!(sessions.of(&key).engine.id(), sessions.of(&key).engine.id());
    }

    #[test]
    fn a_client_without_a_token_gets_one_when_it_changes_a_setting() {
        let sessions = Sessions::new(10);
        let session = sessions.of(&Credentials::None);
        assert_eq!(sessions.keep_if_changed(&Credentials::None, &session), None);
        session.set_profile(Some(Profile::Native));
        assert_eq!(sessions.keep_if_changed(&bearer("key"), &session), None);
        let token = sessions
            .keep_if_changed(&Credentials::None, &session)
            .unwrap();
        assert_eq!(
            sessions.of(&bearer(&token)).profile(),
            Some(Profile::Native)
        );
    }
}
