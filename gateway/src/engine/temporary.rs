//! A temporary table is an ordinary table under a name that only its session finds. So its rows are
//! on the workers, and joins with it run there. It ends with its session: when the client closes
//! the session, when the session was not used for long, when the gateway forgets the session, when
//! the user is dropped, and when a gateway starts.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use volary_catalog::{RelationName, TEMPORARY_SCHEMA};
use volary_flight_proto::ids::SessionId;
use volary_flight_proto::{Error, Result, SqlState};

use super::context::StatementContext;
use super::delete_files::delete_files;
use super::session_life::SessionLife;
use super::{Engine, Session};
use crate::sql::names::WrittenName;

/// Longest and shortest time between two searches for sessions that have ended.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The sessions that have created temporary tables.
#[derive(Debug, Default)]
pub(super) struct TemporarySessions(Mutex<HashMap<SessionId, Weak<SessionLife>>>);

impl TemporarySessions {
    fn add(&self, session: SessionId, life: &Arc<SessionLife>) {
        self.0.lock().insert(session, Arc::downgrade(life));
    }

    /// Returns the life of a session. Returns `None` if nobody remembers the session any more.
    fn life(&self, session: SessionId) -> Option<Arc<SessionLife>> {
        self.0.lock().get(&session)?.upgrade()
    }

    /// Forgets all sessions but these.
    fn retain(&self, sessions: &BTreeSet<SessionId>) {
        self.0
            .lock()
            .retain(|session, life| sessions.contains(session) || life.strong_count() > 0);
    }
}

impl Engine {
    /// Ends a session that its client has closed: drops its temporary tables.
    pub(crate) async fn end_session(&self, session: &Session) {
        session.life.close();
        if let Err(error) = self.drop_temporary_tables(session).await {
            // They are found at the next search for ended sessions.
            tracing::warn!(session = %session.id(), %error, "cannot drop the temporary tables of a closed session yet");
        }
    }

    /// Drops the temporary tables and views of a session. Returns whether there were any.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn drop_temporary_tables(&self, session: &Session) -> Result<bool> {
        match session.temporary_session() {
            Some(id) if self.catalog.state().has_temporary(id) => {
                self.drop_temporary_tables_of([id].into()).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn drop_temporary_tables_of(&self, sessions: BTreeSet<SessionId>) -> Result<()> {
        for table in self.catalog.drop_temporary(sessions).await? {
            delete_files(self, &table);
        }
        Ok(())
    }

    /// Drops the temporary tables of sessions that have ended, again and again. Never returns.
    pub(crate) async fn drop_abandoned_temporary_tables(self: Arc<Self>) {
        let idle_timeout = self.config.temporary_tables.idle_timeout;
        let pause = (idle_timeout / 4).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut ticks = tokio::time::interval(pause);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let all = self.catalog.state().sessions_with_temporary();
            self.temporary_sessions.retain(&all);
            let ended = all.into_iter().filter(|session| self.has_ended(*session));
            let ended: BTreeSet<_> = ended.collect();
            if ended.is_empty() {
                continue;
            }
            tracing::info!(
                sessions = ended.len(),
                "dropping the temporary tables of sessions that have ended"
            );
            if let Err(error) = self.drop_temporary_tables_of(ended).await {
                tracing::warn!(%error, "cannot drop the temporary tables of ended sessions yet");
            }
        }
    }

    /// Returns whether a session has ended: it was closed, forgotten or not used for too long. A
    /// session is in use as long as one of its statements runs.
    fn has_ended(&self, session: SessionId) -> bool {
        let life = self.temporary_sessions.life(session);
        if life.as_ref().is_some_and(|life| life.is_closed()) {
            return true;
        }
        let idle_timeout = self.config.temporary_tables.idle_timeout;
        let is_idle = life.is_none_or(|life| life.idle_time() >= idle_timeout);
        is_idle && !self.statements.has_statement_of(session)
    }
}

/// Returns the full name of a table or view that the statement creates. `is_temporary` says whether
/// the statement calls it temporary.
///
/// # Errors
/// `INVALID_ARGUMENT` for a temporary table in another schema than `pg_temp`, for a client that
/// names no session, and for a name in a schema of the cluster.
pub(super) fn name_of_new(
    engine: &Engine,
    context: &StatementContext,
    name: &WrittenName,
    is_temporary: bool,
) -> Result<RelationName> {
    let is_elsewhere = name
        .schema()
        .is_some_and(|schema| schema != TEMPORARY_SCHEMA);
    if !is_temporary && (is_elsewhere || name.schema().is_none()) {
        return context.new_relation(name);
    }
    if is_elsewhere {
        return Err(Error::invalid(format!(
            "{name} cannot be temporary: temporary tables and views are in the schema {TEMPORARY_SCHEMA}; leave the schema out, or leave TEMPORARY out"
        ))
        .with_sqlstate(SqlState::InvalidTableDefinition));
    }
    let Some(session) = context.search_path().session() else {
        return Err(Error::invalid(format!(
            "{name} cannot be temporary, because this client names no session, with which it would end. Log in with a user name (a handshake), or let the client keep cookies (ADBC: adbc.flight.sql.rpc.with_cookie_middleware), and send the statement again"
        )));
    };
    engine
        .temporary_sessions
        .add(session, context.session_life());
    Ok(RelationName::temporary(session, name.name()))
}
