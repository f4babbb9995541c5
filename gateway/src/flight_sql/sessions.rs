//! A client shows the token of its session as its bearer token or as a cookie. A client that shows
//! neither receives a token with its first answer, even if it has not changed a setting yet. The
//! answer that follows a change may be too late: drivers read the headers of a unary call's answer
//! at once, but those of a DoPut's answer too late or never.
//!
//! A token that CREATE TOKEN made does not name a session, because many connections may share it. A
//! client with such a token has a session if it keeps cookies.

use std::collections::HashMap;
use std::sync::Arc;

use moka::policy::EvictionPolicy;
use moka::sync::{Cache, CacheBuilder};
use parking_lot::Mutex;
use uuid::Uuid;
use volary_catalog::access::Rights;

use super::direct_option::DirectResults;
use crate::client_types::TypeProfile;
use crate::config;
use crate::engine::{Caller, Session};

const TOKEN_PREFIX: &str = "volary-session-";

/// The token that names a session. It is not the id of the session: ids are written to logs, and
/// whoever has the token has the session.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionToken(String);

impl SessionToken {
    /// Creates a token that no client knows yet. Its session can be created later, when a client
    /// shows the token.
    pub(super) fn new() -> Self {
        Self(format!("{TOKEN_PREFIX}{}", Uuid::new_v4().simple()))
    }

    /// Parses a token. Returns `None` if the text is not a token that a gateway of Volary made.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let id = text.strip_prefix(TOKEN_PREFIX)?;
        Uuid::try_parse(id).ok()?;
        Some(Self(text.to_owned()))
    }

    /// Returns the token as the client shows it.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens never reach a log.
        f.write_str("SessionToken(…)")
    }
}

/// A client's session.
#[derive(Debug, Clone)]
pub(super) struct ClientSession {
    /// The engine's part of the session.
    pub(super) engine: Session,
    options: Arc<Mutex<SessionOptions>>,
}

/// Options of a session that are not settings of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SessionOptions {
    /// Value of the option `volary-types`.
    types: Option<TypeProfile>,
    /// Value of the option `volary-direct-results`.
    direct_results: Option<DirectResults>,
}

impl ClientSession {
    /// Creates a session. `settings` are the engine's settings that differ from their defaults.
    pub(super) fn new(settings: HashMap<String, String>, rights: Arc<Rights>) -> Self {
        Self {
            engine: Session::new(settings, rights),
            options: Arc::default(),
        }
    }

    /// Returns the types that the session asks for, or `None` for the default.
    pub(super) fn profile(&self) -> Option<TypeProfile> {
        self.options.lock().types
    }

    /// Sets the types that the session asks for. `None` unsets them.
    pub(super) fn set_profile(&self, profile: Option<TypeProfile>) {
        self.options.lock().types = profile;
    }

    /// Returns whether the session asks for direct results, or `None` for the default.
    pub(super) fn direct_results(&self) -> Option<DirectResults> {
        self.options.lock().direct_results
    }

    /// Sets whether the session asks for direct results. `None` unsets it.
    pub(super) fn set_direct_results(&self, direct_results: Option<DirectResults>) {
        self.options.lock().direct_results = direct_results;
    }

    /// Returns whether the session has options, settings or an open transaction, which must be kept
    /// for later calls.
    fn has_state(&self) -> bool {
        !self.is_default() || self.engine.is_in_transaction()
    }

    /// Returns whether no option and no setting of the session is set.
    pub(super) fn is_default(&self) -> bool {
        *self.options.lock() == SessionOptions::default() && self.engine.settings().is_empty()
    }
}

/// Maximum number of users whose sessions are tracked.
const MAX_USERS: u64 = 10_000;

/// The sessions that are kept.
#[derive(Debug)]
pub(super) struct Sessions {
    by_key: Cache<SessionKey, ClientSession>,
    /// Tokens of each user's sessions, by the user's name. Each user has a share of all sessions. A
    /// user who begins many sessions makes the gateway forget only sessions of that user.
    by_user: Cache<String, Cache<SessionToken, ()>>,
    max_per_user: u64,
}

/// Counts the sessions that are kept.
#[derive(Debug, Clone)]
pub(crate) struct SessionCount(Cache<SessionKey, ClientSession>);

impl SessionCount {
    /// Returns how many sessions are kept.
    pub(crate) fn get(&self) -> u64 {
        // Without this, a cache that is not used counts no session that was begun or forgotten
        // since it was last used.
        self.0.run_pending_tasks();
        self.0.entry_count()
    }
}

/// The key of a session: a user and a token. A session belongs to its user. If another user shows
/// the token, it names another session.
type SessionKey = (String, SessionToken);

impl Sessions {
    /// Creates an empty collection. The settings limit the number of sessions in total and for each
    /// user. The session that was not used for the longest time is forgotten first.
    pub(super) fn new(config: &config::Query) -> Self {
        Self {
            by_key: least_recently_used(config.max_sessions).build(),
            by_user: least_recently_used(MAX_USERS).build(),
            max_per_user: config.max_sessions_per_user(),
        }
    }

    /// Returns a counter of the sessions.
    pub(super) fn count(&self) -> SessionCount {
        SessionCount(self.by_key.clone())
    }

    /// Returns the session that a client names, with the rights that its user has now. Returns a
    /// new session with default settings if the client names none. A token also names a new session
    /// if its session was forgotten, or if only another gateway knows it.
    pub(super) fn get_or_create(
        &self,
        rights: &Arc<Rights>,
        token: Option<&SessionToken>,
    ) -> ClientSession {
        let new = || ClientSession::new(HashMap::new(), Arc::clone(rights));
        let Some(token) = token else {
            return new();
        };
        self.note_used(rights, token);
        let mut session = self.by_key.get_with(session_key(rights, token), new);
        session.engine = session
            .engine
            .with_rights(Arc::clone(rights))
            .named_by_client();
        session
    }

    /// Returns a token for the session of a call that named none. The session is kept only if the
    /// call has changed it.
    pub(super) fn issue_token(&self, session: &ClientSession) -> SessionToken {
        let token = SessionToken::new();
        if session.has_state() {
            let mut named_session = session.clone();
            named_session.engine = named_session
                .engine
                .with_caller(Caller::Session(session.engine.id()));
            let rights = session.engine.rights();
            self.note_used(rights, &token);
            self.by_key
                .insert(session_key(rights, &token), named_session);
        }
        token
    }

    /// Forgets the session.
    pub(super) fn close(&self, rights: &Rights, token: &SessionToken) {
        self.by_key.invalidate(&session_key(rights, token));
    }

    /// Notes that a user has used a session. Notes nothing if the cluster has no users, because all
    /// clients would then have one share together.
    fn note_used(&self, rights: &Rights, token: &SessionToken) {
        let Some(user) = rights.owner() else {
            return;
        };
        let user_sessions = self.by_user.get_with_by_ref(user, || {
            let (by_key, user) = (self.by_key.clone(), user.to_owned());
            least_recently_used(self.max_per_user)
                .eviction_listener(move |token: Arc<SessionToken>, (), cause| {
                    if cause.was_evicted() {
                        by_key.invalidate(&(user.clone(), SessionToken::clone(&token)));
                    }
                })
                .build()
        });
        user_sessions.insert(token.clone(), ());
        // Evicts sessions at once. Otherwise, the cache would evict them later, and a burst of new
        // sessions would exceed the user's share.
        user_sessions.run_pending_tasks();
    }
}

fn least_recently_used<K, V>(capacity: u64) -> CacheBuilder<K, V, Cache<K, V>>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(capacity)
        .eviction_policy(EvictionPolicy::lru())
}

fn session_key(rights: &Rights, token: &SessionToken) -> SessionKey {
    let user = rights.owner().unwrap_or_default();
    (user.to_owned(), token.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions_of(max_sessions: u64) -> Sessions {
        Sessions::new(&config::Query {
            max_sessions,
            ..config::Query::default()
        })
    }

    impl Sessions {
        /// Runs the tasks that caches otherwise run from time to time.
        fn run_pending_tasks(&self) {
            for (_, of_user) in &self.by_user {
                of_user.run_pending_tasks();
            }
            self.by_key.run_pending_tasks();
        }
    }

    fn anybody() -> Arc<Rights> {
        Arc::new(Rights::of_open_cluster("anybody"))
    }

    #[test]
    fn a_user_who_begins_many_sessions_keeps_those_of_others() {
        let sessions = sessions_of(40);
        let (kea, auk) = (
            Arc::new(Rights::without_grants("kea", 1)),
            Arc::new(Rights::without_grants("auk", 1)),
        );
        let kept = SessionToken::new();
        let id = sessions.get_or_create(&kea, Some(&kept)).engine.id();
        let first = SessionToken::new();
        let first_id = sessions.get_or_create(&auk, Some(&first)).engine.id();
        for _ in 0..1_000 {
            sessions.get_or_create(&auk, Some(&SessionToken::new()));
            sessions.run_pending_tasks();
        }
        assert!(sessions.by_key.entry_count() <= 11);
        assert_eq!(sessions.get_or_create(&kea, Some(&kept)).engine.id(), id);
        assert_ne!(
            sessions.get_or_create(&auk, Some(&first)).engine.id(),
            first_id
        );
    }

    #[test]
    fn a_token_names_the_same_session_until_it_is_closed() {
        let (sessions, by) = (sessions_of(10), anybody());
        let token = SessionToken::new();
        let id = sessions.get_or_create(&by, Some(&token)).engine.id();
        assert_eq!(sessions.get_or_create(&by, Some(&token)).engine.id(), id);
        sessions.close(&by, &token);
        assert_ne!(sessions.get_or_create(&by, Some(&token)).engine.id(), id);
    }

    #[test]
    fn a_session_is_its_users_alone() {
        let (sessions, token) = (sessions_of(10), SessionToken::new());
        let [kea, auk] = ["kea", "auk"].map(|user| Arc::new(Rights::without_grants(user, 1)));
        let session = sessions.get_or_create(&kea, Some(&token));
        assert_ne!(
            sessions.get_or_create(&auk, Some(&token)).engine.id(),
            session.engine.id()
        );
        let again = sessions.get_or_create(&kea, Some(&token));
        assert_eq!(again.engine.id(), session.engine.id());
        assert_eq!(again.engine.rights().user(), "kea");
    }

    #[test]
    fn a_client_that_names_no_session_has_another_one_at_each_call() {
        let (sessions, by) = (sessions_of(10), anybody());
        assert_ne!(
            sessions.get_or_create(&by, None).engine.id(),
            sessions.get_or_create(&by, None).engine.id()
        );
    }

    #[test]
    fn what_the_call_that_named_no_session_has_set_is_kept_under_the_new_token() {
        let (sessions, by) = (sessions_of(10), anybody());
        let session = sessions.get_or_create(&by, None);
        session.set_profile(Some(TypeProfile::Native));
        let token = sessions.issue_token(&session);
        let kept = sessions.get_or_create(&by, Some(&token));
        assert_eq!(kept.profile(), Some(TypeProfile::Native));
    }

    #[test]
    fn only_what_a_gateway_gave_out_is_a_token() {
        let token = SessionToken::new();
        assert_eq!(SessionToken::parse(token.as_str()), Some(token));
        for text in ["", "key", "volary-session-", "volary-session-1"] {
            assert_eq!(SessionToken::parse(text), None, "{text}");
        }
    }
}
