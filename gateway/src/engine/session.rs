use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use volary_catalog::ProducerName;
use volary_catalog::access::Rights;
use volary_flight_proto::Result;
use volary_flight_proto::ids::SessionId;
use volary_flight_proto::ticket::fingerprint;

use super::session_life::SessionLife;
use super::settings;
use super::transaction::TransactionTracker;
use crate::sql::names::PUBLIC;

/// A client's session. All calls that carry its token share its settings.
#[derive(Debug, Clone)]
pub struct Session {
    id: SessionId,
    caller: Caller,
    pub(super) transaction: TransactionTracker,
    settings: Arc<RwLock<HashMap<String, String>>>,
    rights: Arc<Rights>,
    /// The session whose temporary tables statements find. `None` if the client has named no
    /// session.
    temporary_session: Option<SessionId>,
    /// The id that the client has given to the statement of this call.
    batch_id: Option<ProducerName>,
    pub(super) life: Arc<SessionLife>,
}

/// The user and the caller on whose behalf a statement asks for a place.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    pub(super) caller: Caller,
    pub(super) rights: Arc<Rights>,
}

/// The unit by which places are counted: a user, or a caller as long as there are no users.
#[derive(Hash)]
pub(super) enum PlaceOwner<'a> {
    User(&'a str),
    Caller(Caller),
}

impl Claimant {
    /// Returns the owner to whom the place is counted.
    pub(super) fn owner(&self) -> PlaceOwner<'_> {
        let user = self.rights.owner();
        user.map_or(PlaceOwner::Caller(self.caller), PlaceOwner::User)
    }

    /// Returns a number that distinguishes users. Workers use it to share their places among users.
    /// As long as there are no users, the number distinguishes callers.
    pub(super) fn owner_number(&self) -> u32 {
        let number = match self.owner() {
            PlaceOwner::User(user) => fingerprint(user),
            PlaceOwner::Caller(Caller::Session(session)) => fingerprint(&session.to_string()),
            PlaceOwner::Caller(Caller::Connection(peer)) => fingerprint(&peer.to_string()),
            PlaceOwner::Caller(Caller::Unknown) => 0,
        };
        // The tickets of thousands of workers carry this number. Half of the fingerprint is enough.
        number as u32
    }
}

/// The source of statements that wait in one queue. Callers are given places in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A session that the client names.
    Session(SessionId),
    /// The connection of a client that names no session.
    Connection(SocketAddr),
    /// A client about which nothing is known.
    Unknown,
}

impl Session {
    /// Creates a session with these settings, for a user with these rights.
    pub fn new(settings: HashMap<String, String>, rights: Arc<Rights>) -> Self {
        let id = SessionId::new();
        Self {
            id,
            caller: Caller::Session(id),
            transaction: TransactionTracker::default(),
            settings: Arc::new(RwLock::new(settings)),
            rights,
            temporary_session: None,
            batch_id: None,
            life: Arc::new(SessionLife::new()),
        }
    }

    /// Returns the same session, which its client has named and uses now. It may have temporary
    /// tables.
    #[must_use]
    pub(crate) fn named_by_client(self) -> Self {
        self.life.note_used();
        let temporary_session = Some(self.id);
        Self {
            temporary_session,
            ..self
        }
    }

    /// Returns the same session. Its statements find the temporary tables of another session, if
    /// one is given, from which a ticket comes.
    #[must_use]
    pub(crate) fn with_temporary_session(self, temporary_session: Option<SessionId>) -> Self {
        Self {
            temporary_session,
            ..self
        }
    }

    /// Returns the session whose temporary tables statements find. `None` if the client has named
    /// no session.
    pub(crate) fn temporary_session(&self) -> Option<SessionId> {
        self.temporary_session
    }

    /// Returns the same session. Its statement has the id that the client has given to it, if any.
    #[must_use]
    pub(crate) fn with_batch_id(self, batch_id: Option<ProducerName>) -> Self {
        Self { batch_id, ..self }
    }

    /// Returns the id that the client has given to the statement of this call.
    pub(crate) fn batch_id(&self) -> Option<&ProducerName> {
        self.batch_id.as_ref()
    }

    /// Returns the same session with these rights, which are those of the current call.
    #[must_use]
    pub(crate) fn with_rights(self, rights: Arc<Rights>) -> Self {
        Self { rights, ..self }
    }

    /// Returns the rights of the session's user.
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// Returns the same session. Its statements wait in the queue of this caller.
    #[must_use]
    pub(crate) fn with_caller(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Returns the caller in whose queue the session's statements wait.
    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    /// Returns the claimant on whose behalf the session's statements ask for places.
    pub(super) fn claimant(&self) -> Claimant {
        Claimant {
            caller: self.caller,
            rights: Arc::clone(&self.rights),
        }
    }

    /// Returns the id of the session.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Returns the settings that differ from their defaults, by DataFusion's or Volary's key.
    pub fn settings(&self) -> HashMap<String, String> {
        self.settings.read().clone()
    }

    /// Returns the time limit for each statement of the session. `None` if only the gateway's own
    /// limit applies.
    pub fn statement_timeout(&self) -> Option<Duration> {
        settings::statement_timeout(&self.settings.read())
    }

    /// Returns whether the session has sent BEGIN and neither COMMIT nor ROLLBACK since.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.is_open()
    }

    /// Returns whether a setting of this name exists.
    pub(crate) fn has_setting(name: &str) -> bool {
        settings::full_key(name).is_ok()
    }

    /// Returns whether this is a name of the setting with the current schema, which
    /// [`super::Engine::use_schema`] changes.
    pub(crate) fn is_schema_setting(name: &str) -> bool {
        settings::full_key(name).is_ok_and(|key| key == settings::SCHEMA)
    }

    /// Returns the current schema: the schema of names that are written without one.
    pub(crate) fn schema(&self) -> String {
        let values = self.settings.read();
        let schema = values.get(settings::SCHEMA).map(String::as_str);
        schema.unwrap_or(PUBLIC).to_owned()
    }

    /// Sets the current schema, which must exist. `None` stands for `public`.
    pub(super) fn set_schema(&self, schema: Option<&str>) {
        let mut values = self.settings.write();
        match schema {
            Some(schema) => values.insert(settings::SCHEMA.to_owned(), schema.to_owned()),
            None => values.remove(settings::SCHEMA),
        };
    }

    /// Resets all settings to their defaults.
    pub(super) fn reset_settings(&self) {
        self.settings.write().clear();
    }

    /// Changes a setting, by any of its names. `None` resets the setting to its default.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the setting does not exist, or does not take the value.
    pub(crate) fn change_setting(&self, name: &str, value: Option<String>) -> Result<()> {
        let key = settings::full_key(name)?;
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
