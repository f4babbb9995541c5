//! Users, roles and tokens are in the catalog (`catalog::access`), so that they are the same on
//! every gateway. As long as the cluster has no users, everybody on the gateway's own machine may
//! do everything, under any name.

/// Makes and reads the bearer tokens with which clients continue their sessions.
mod bearer;
/// Counts how logins end.
mod counts;
/// Runs what takes a lot of memory, so that the allocator keeps little of it.
mod hash_threads;
/// Hashes and checks passwords, and remembers those that were right a moment ago.
pub(crate) mod passwords;
/// Makes clients wait after failed logins.
pub(crate) mod throttle;
/// Makes the tokens that services and tools show instead of a password.
pub mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use volary_catalog::access::{
    LimitChanges, MAX_NAME_BYTES, NewPrincipal, PrincipalChange, PrincipalKind, Rights,
};
use volary_catalog::{Catalog, CatalogState, now_ms};
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use crate::config;
use bearer::BearerTokens;
use counts::LoginCounts;
use passwords::MAX_BYTES as MAX_PASSWORD_BYTES;
pub use passwords::Passwords;
pub(crate) use passwords::check_new_password;
use throttle::{Origin, Throttle};

/// Name of a caller that gives no name.
const ANONYMOUS: &str = "anonymous";

/// Maximum number of closed sessions that are remembered. Each takes some 200 bytes. If there are
/// more, the sessions that were closed first are forgotten, and their tokens are valid until they
/// expire.
const MAX_CLOSED_SESSIONS: u64 = 1_000_000;

/// The user that has the password of `gateway.security.admin_password`.
const ADMIN: &str = "admin";

/// The credentials that a client shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// The client shows no credentials.
    None,
    /// The name and the password of a user.
    Basic {
        /// Name of the user.
        user: String,
        /// Password of the user.
        password: String,
    },
    /// A token of a session that a gateway opened, or a token that CREATE TOKEN made.
    Bearer(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Passwords and tokens never reach a log.
        f.write_str(match self {
            Self::None => "Credentials::None",
            Self::Basic { .. } => "Credentials::Basic(…)",
            Self::Bearer(_) => "Credentials::Bearer(…)",
        })
    }
}

/// A caller that was identified.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// Name of the user, and what the user may do.
    pub rights: Arc<Rights>,
    /// The session that the caller's bearer token continues.
    pub session: Option<String>,
    /// Says whether the bearer token has to be replaced, because it will expire.
    pub is_renewal_due: bool,
}

impl Principal {
    /// Creates the principal of a call that continues no session.
    fn new(rights: &Arc<Rights>) -> Self {
        Self {
            rights: Arc::clone(rights),
            session: None,
            is_renewal_due: false,
        }
    }

    /// Returns the name of the user.
    pub(crate) fn name(&self) -> &str {
        self.rights.user()
    }

    /// Returns the user that tickets and handles of this caller are bound to, or an empty name as
    /// long as the cluster has no users.
    pub(crate) fn ticket_user(&self) -> &str {
        self.rights.owner().unwrap_or_default()
    }
}

/// Checks credentials.
#[derive(Debug)]
pub struct Login {
    catalog: Catalog,
    allows_anonymous: bool,
    passwords: Arc<Passwords>,
    throttle: Throttle,
    bearer_tokens: BearerTokens,
    /// Sessions that were closed, as long as one of their tokens may be valid. Other gateways do
    /// not know of them.
    closed_sessions: Cache<String, ()>,
    counts: LoginCounts,
}

impl Login {
    /// Creates a login for the users in the catalog.
    ///
    /// # Errors
    /// `DATA_LOSS` if the catalog's key for tokens is damaged. `RESOURCE_EXHAUSTED` if the system
    /// gives no threads.
    pub fn new(catalog: Catalog, config: &config::Security) -> Result<Self> {
        Ok(Self {
            allows_anonymous: config.allow_anonymous,
            passwords: Arc::new(Passwords::new()?),
            throttle: Throttle::default(),
            closed_sessions: Cache::builder()
                .max_capacity(MAX_CLOSED_SESSIONS)
                // The default policy would rather refuse a new entry than forget an old one.
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(config.token_lifetime)
                .build(),
            bearer_tokens: BearerTokens::new(catalog.state().token_key()?, config.token_lifetime),
            counts: LoginCounts::default(),
            catalog,
        })
    }

    /// Returns how many logins ended in which way.
    pub(crate) fn counts(&self) -> &LoginCounts {
        &self.counts
    }

    /// Returns the part of the login that checks and hashes passwords.
    pub fn passwords(&self) -> &Arc<Passwords> {
        &self.passwords
    }

    /// Makes sure that the user `admin` exists, is an administrator, and has this password.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a password that is too short or too long. The errors of the catalog.
    pub async fn ensure_admin(&self, password: &str) -> Result<()> {
        let at = |error: Error| error.at("gateway.security.admin_password");
        check_new_password(password).map_err(at)?;
        let by = Arc::new(Rights::of_gateway());
        let existing = self.catalog.state().access().user(ADMIN).cloned();
        let has_password = match &existing {
            Some(user) => self.passwords.verify(Some(user), password, None).await?,
            None => false,
        };
        if has_password && existing.as_ref().is_some_and(|user| user.admin) {
            return Ok(());
        }
        let hash = if has_password {
            None
        } else {
            Some(self.passwords.hash(password).await?)
        };
        if existing.is_none() {
            let admin = NewPrincipal {
                name: ADMIN.to_owned(),
                kind: PrincipalKind::User,
                password: hash,
                admin: true,
                limits: LimitChanges::default(),
            };
            let created = self.catalog.create_principal(admin, false, &by).await;
            created.map_err(at)?;
        } else {
            let change = PrincipalChange {
                name: ADMIN.to_owned(),
                kind: PrincipalKind::User,
                password: hash,
                admin: Some(true),
                limits: LimitChanges::default(),
            };
            let changed = self.catalog.change_principal(change, &by).await;
            changed.map_err(at)?;
        }
        Ok(())
    }

    /// Returns the caller that shows these credentials.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for wrong credentials. `RESOURCE_EXHAUSTED` if too many passwords are
    /// being checked.
    pub(crate) async fn identify(
        &self,
        credentials: &Credentials,
        peer: Option<SocketAddr>,
    ) -> Result<Principal> {
        let state = self.catalog.state();
        if !state.access().has_users() {
            return self.identify_without_users(credentials, peer);
        }
        match credentials {
            Credentials::None => Err(unauthenticated(
                "log in: this cluster has users, and the call has neither a name with a password nor a token",
            )),
            Credentials::Bearer(token) if BearerTokens::is_bearer_token(token) => {
                self.identify_by_session(&state, token)
            }
            Credentials::Bearer(token) => {
                let principal = identify_by_token(&state, token);
                self.counts.add_checked(&principal);
                principal
            }
            Credentials::Basic { user, password } => {
                self.identify_by_password(&state, user, password, peer)
                    .await
            }
        }
    }

    /// Checks the credentials of a call that goes on, such as a stream of batches. Passwords are
    /// not checked, because the rights of a user end when the password changes: see
    /// [`volary_catalog::access::Access::current_rights`].
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the token was dropped or has expired, or if the session was closed.
    /// `UNAVAILABLE` if the token of a session has expired. The client may have a newer one, so it
    /// should open the stream again.
    pub(crate) fn check_again(&self, credentials: &Credentials) -> Result<()> {
        let state = self.catalog.state();
        let Credentials::Bearer(token) = credentials else {
            return Ok(());
        };
        if !state.access().has_users() {
            return Ok(());
        }
        if !BearerTokens::is_bearer_token(token) {
            return identify_by_token(&state, token).map(drop);
        }
        let checked = self.identify_by_session(&state, token);
        checked.map(drop).map_err(|error| {
            if !self.bearer_tokens.has_expired(token) {
                return error;
            }
            Error::unavailable(
                "the session's token with which the stream was opened has expired; open another stream with the session's newest token, or log in again, and send what was not answered",
            )
        })
    }

    /// Returns the token in the cookie, if it continues the session of the token that is shown.
    /// Otherwise returns the credentials that are shown. JDBC keeps the newest token as a cookie,
    /// but still shows the one that it logged in with.
    pub(crate) fn newest_credentials(
        &self,
        shown: Credentials,
        cookie: Option<String>,
    ) -> Credentials {
        match (shown, cookie) {
            (Credentials::Bearer(token), Some(newer))
                if BearerTokens::is_bearer_token(&token)
                    && self.bearer_tokens.is_continued_by(&token, &newer) =>
            {
                Credentials::Bearer(newer)
            }
            (shown, _) => shown,
        }
    }

    /// Returns the bearer token with which the principal continues this session.
    pub(crate) fn bearer_token(&self, principal: &Principal, session: &str) -> String {
        self.bearer_tokens
            .seal(principal.name(), principal.rights.generation(), session)
    }

    /// Closes the session of the principal. This gateway does not accept the session's tokens any
    /// more.
    pub(crate) fn close_session(&self, principal: &Principal) {
        if let Some(session) = &principal.session {
            self.closed_sessions.insert(session.clone(), ());
        }
    }

    /// Returns the caller of a call to a cluster without users.
    fn identify_without_users(
        &self,
        credentials: &Credentials,
        peer: Option<SocketAddr>,
    ) -> Result<Principal> {
        let is_local = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
        if !is_local && !self.allows_anonymous {
            return Err(unauthenticated(
                "this cluster has no users yet, and serves only clients of the gateway's own machine: set gateway.security.admin_password, or create the first user there (CREATE USER name PASSWORD '…' ADMIN)",
            ));
        }
        let mut principal = Principal::new(&Arc::new(Rights::of_open_cluster(ANONYMOUS)));
        match credentials {
            Credentials::Basic { user, .. } if !user.is_empty() && user.len() <= MAX_NAME_BYTES => {
                principal.rights = Arc::new(Rights::of_open_cluster(user));
            }
            // Without users, a token only names a session. A token that is not valid is therefore
            // no error here.
            Credentials::Bearer(token) => {
                if let Ok(claims) = self.bearer_tokens.open(token) {
                    principal.rights = Arc::new(Rights::of_open_cluster(claims.user));
                    principal.session = Some(claims.session);
                    principal.is_renewal_due = claims.is_renewal_due;
                }
            }
            Credentials::Basic { .. } | Credentials::None => {}
        }
        Ok(principal)
    }

    fn identify_by_session(&self, state: &CatalogState, token: &str) -> Result<Principal> {
        let claims = self.bearer_tokens.open(token)?;
        if self.closed_sessions.contains_key(&claims.session) {
            return Err(unauthenticated("the session was closed; log in again"));
        }
        let access = state.access();
        let user = access.user(&claims.user);
        match (user, access.rights(&claims.user)) {
            (Some(user), Some(rights)) if user.generation == claims.generation => Ok(Principal {
                session: Some(claims.session),
                is_renewal_due: claims.is_renewal_due,
                ..Principal::new(rights)
            }),
            _ => Err(unauthenticated(
                "the session has ended, because its user was changed or dropped; log in again",
            )),
        }
    }

    async fn identify_by_password(
        &self,
        state: &CatalogState,
        name: &str,
        password: &str,
        peer: Option<SocketAddr>,
    ) -> Result<Principal> {
        let wrong_password = || {
            unauthenticated("the user name or the password is wrong; check both")
                .with_sqlstate(SqlState::InvalidPassword)
        };
        // No user can have such a name or password, so the failure is not remembered.
        if name.len() > MAX_NAME_BYTES || password.len() > MAX_PASSWORD_BYTES {
            return Err(wrong_password());
        }
        let user = state.access().user(name);
        let origin = Origin::new(name, peer);
        // The throttle comes before the cache of passwords that were right a moment ago. Otherwise,
        // somebody who guesses could find a password in the cache without having to wait.
        self.throttle
            .begin_attempt(&origin)
            .inspect_err(|_| self.counts.add_throttled())?;
        let is_right = match user {
            Some(user) if self.passwords.was_verified(user, password) => true,
            _ => {
                let is_right = self
                    .passwords
                    .verify(user.map(AsRef::as_ref), password, origin.address())
                    .await
                    // The password was not checked.
                    .inspect_err(|_| {
                        self.throttle.withdraw_attempt(&origin);
                        self.counts.add_throttled();
                    })?;
                if !is_right {
                    self.throttle.note_failure(&origin);
                    tracing::warn!(user = name, peer = ?peer, "a login has failed");
                }
                is_right
            }
        };
        let checked = match state.access().rights(name) {
            Some(rights) if is_right => {
                self.throttle.note_success(&origin);
                Ok(Principal::new(rights))
            }
            _ => Err(wrong_password()),
        };
        self.counts.add_checked(&checked);
        checked
    }
}

fn identify_by_token(state: &CatalogState, token: &str) -> Result<Principal> {
    let access = state.access();
    let refused = || {
        unauthenticated(
            "the token was not issued by this cluster, or was dropped; log in with a name and a password, or create a token with CREATE TOKEN",
        )
    };
    let record = tokens::hash(token)
        .and_then(|hash| access.token_by_hash(&hash))
        .ok_or_else(refused)?;
    if record
        .expires_at_ms
        .is_some_and(|expires| expires <= now_ms())
    {
        return Err(unauthenticated(format!(
            "the token \"{}\" has expired; create a new one with CREATE TOKEN",
            record.name
        )));
    }
    let user = access.user(&record.user).ok_or_else(refused)?;
    let rights = access.rights(&user.name).ok_or_else(refused)?;
    Ok(Principal::new(rights))
}

fn unauthenticated(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::Unauthenticated, what)
}
