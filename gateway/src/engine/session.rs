//! Sessions and their settings.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use volary_catalog::access::Rights;
use volary_flight_proto::Result;
use volary_flight_proto::ids::SessionId;
use volary_flight_proto::ticket::fingerprint;

use super::settings;
use super::transaction::SinceBegin;

/// A client's session: its settings, shared by all calls that carry its token.
#[derive(Debug, Clone)]
pub struct Session {
    id: SessionId,
    caller: Caller,
    pub(super) since_begin: SinceBegin,
    settings: Arc<RwLock<HashMap<String, String>>>,
    rights: Arc<Rights>,
}

/// Who wants a place for a statement.
#[derive(Debug, Clone)]
pub struct Claimant {
    pub(super) caller: Caller,
    pub(super) rights: Arc<Rights>,
}

/// Who has the places that are counted together: a user, or a caller as long as there are no users.
#[derive(Hash)]
pub(super) enum Owner<'a> {
    User(&'a str),
    Caller(Caller),
}

impl Claimant {
    /// Returns whose places it takes.
    pub(super) fn owner(&self) -> Owner<'_> {
        let user = self.rights.owner();
        user.map_or(Owner::Caller(self.caller), Owner::User)
    }

    /// Returns a number that tells users apart, by which workers share their places: callers, as long as there
    /// are no users.
    pub(super) fn number(&self) -> u32 {
        let number = match self.owner() {
            Owner::User(user) => fingerprint(user),
            Owner::Caller(Caller::Session(session)) => fingerprint(&session.to_string()),
            Owner::Caller(Caller::Connection(peer)) => fingerprint(&peer.to_string()),
            Owner::Caller(Caller::Unknown) => 0,
        };
        // A ticket for each of thousands of workers has it: half of it is enough.
        number as u32
    }
}

/// Whose statements wait one behind the other: callers are given places in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A session that its client names.
    Session(SessionId),
    /// A connection, of a client that names no session.
    Connection(SocketAddr),
    /// A client of which nothing is known.
    Unknown,
}

impl Session {
    /// A new one with these settings, of somebody with these rights.
    pub fn new(settings: HashMap<String, String>, rights: Arc<Rights>) -> Self {
        let id = SessionId::new();
        Self {
            id,
            caller: Caller::Session(id),
            since_begin: SinceBegin::default(),
            settings: Arc::new(RwLock::new(settings)),
            rights,
        }
    }

    /// The same session, as of a call of somebody with these rights.
    #[must_use]
    pub fn with_rights(self, rights: Arc<Rights>) -> Self {
        Self { rights, ..self }
    }

    /// What may be done in it.
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// The same session, with its settings, whose statements wait as those of another caller.
    #[must_use]
    pub fn called_by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Whose statements these are, where they wait.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Who wants places for them.
    pub(super) fn claimant(&self) -> Claimant {
        Claimant {
            caller: self.caller,
            rights: Arc::clone(&self.rights),
        }
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The settings that are not the default, by DataFusion's or Volary's key.
    pub fn settings(&self) -> HashMap<String, String> {
        self.settings.read().clone()
    }

    /// How long a statement of the session may take; `None` for as long as the gateway lets it.
    pub fn statement_timeout(&self) -> Option<Duration> {
        settings::statement_timeout(&self.settings.read())
    }

    /// Whether it has sent BEGIN, and neither COMMIT nor ROLLBACK.
    pub fn has_begun(&self) -> bool {
        self.since_begin.has_begun()
    }

    /// Whether there is a setting of this name.
    pub fn has_setting(name: &str) -> bool {
        settings::key(name).is_ok()
    }

    /// Changes a setting, by any of its names; `None` takes it back to its default.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a setting that does not exist, or a value that it does not take.
    pub fn change(&self, name: &str, value: Option<String>) -> Result<()> {
        let key = settings::key(name)?;
        match value {
            Some(value) => {
                settings::check(key, &value)?;
                self.settings.write().insert(key.to_owned(), value);
            }
            None => {
                self.settings.write().remove(key);
            }
        }
        Ok(())
    }
}
